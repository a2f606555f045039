"""Gymnasium environments one by one and as a vector give the same frames; seeds, wrappers, refusals."""

import gymnasium
import numpy as np
import pytest
import torch
from frame_cases import RESETS, Episodes, Walk, assert_same, collect, noise
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from gaitway.envs.registry import make_env
from gaitway.frames.agent import FrameAgent, frame_seeds


class TestSeeds:
    def test_bug_49_seeds_differ_by_start_environment_and_base(self):
        world = FrameAgent(Episodes, 3, mode="framed")
        for _ in range(3):
            collect(world, 4)
        starts = [[seed for seed in env.seeds if seed is not None] for env in world.source.envs]
        assert starts == [[frame_seeds(0, j, 3)[k] for j in range(3)] for k in range(3)]
        everything = {seed for base in range(20) for j in range(10) for seed in frame_seeds(base, j, 5)}
        assert len(everything) == 20 * 10 * 5  # multiplied seeds would collide, and base 0 would give one start only
        assert all(0 <= seed < 2**31 for seed in everything)
        expected = np.random.SeedSequence(7, spawn_key=(2, 1)).generate_state(1)[0] & 0x7FFFFFFF
        assert frame_seeds(7, 2, 3)[1] == expected

    def test_automatic_resets_pass_no_seed(self):
        world = FrameAgent(Episodes, 1, mode="compact")
        collect(world, 6)
        assert world.source.envs[0].seeds == [frame_seeds(0, 0, 1)[0], None, None]

    def test_the_same_seed_gives_the_same_stream_and_another_one_another(self):
        actions = noise(20, 3)
        one = collect(FrameAgent(Walk, 3, mode="framed", seed=4), 20, actions)
        two = collect(FrameAgent(Walk, 3, mode="framed").seed(4), 20, actions)
        other = collect(FrameAgent(Walk, 3, mode="framed", seed=5), 20, actions)
        assert_same(one, two)
        assert not torch.equal(one["env/obs/policy"], other["env/obs/policy"])
        assert bool(one["env/terminated"].any())
        assert bool(one["env/truncated"].any())
        with pytest.raises(ValueError, match="use an integer >= 0"):
            FrameAgent(Walk).seed(True)

    def test_a_wrapper_that_resets_gives_the_stream_of_the_agent(self):
        wrapped = FrameAgent(lambda: gymnasium.wrappers.Autoreset(Walk()), 3)
        assert wrapped.mode == "framed"
        assert FrameAgent(Walk).mode == "frozen"
        actions = noise(20, 3)
        ws = collect(wrapped, 20, actions)
        assert_same(ws, collect(FrameAgent(Walk, 3, mode="framed"), 20, actions))
        # and the wrapper alone, stepped by hand, shows the same observations
        env = gymnasium.wrappers.Autoreset(Walk())
        rows = [env.reset(seed=frame_seeds(0, 0, 3)[1])[0]]
        rows += [env.step(action)[0] for action in actions[:19, 1].numpy()]
        assert np.array_equal(ws["env/obs/policy"][:, 1].numpy(), np.array(rows))


class TestVectorEnvironments:
    @pytest.mark.parametrize("mode", RESETS)
    def test_bug_50_the_same_rows_as_the_environments_one_by_one(self, mode):
        actions = noise(25, 4)
        vector = FrameAgent(SyncVectorEnv([Walk] * 4, autoreset_mode=RESETS[mode]))
        single = FrameAgent(Walk, 4, mode=mode)
        for _ in range(2):  # the second start has other seeds
            assert_same(collect(vector, 25, actions), collect(single, 25, actions))

    def test_bug_43_done_is_elementwise(self):
        vector = SyncVectorEnv([Walk] * 5, autoreset_mode=AutoresetMode.NEXT_STEP)
        ws = collect(FrameAgent(vector), 25, noise(25, 5))
        assert torch.equal(ws["env/done"], ws["env/terminated"] | ws["env/truncated"])
        assert not bool((ws["env/terminated"] & ws["env/truncated"]).any())
        assert bool(ws["env/done"].any())
        assert len(set(ws["env/done"].sum(0).tolist())) > 1

    def test_processes(self):
        vector = AsyncVectorEnv([Walk] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
        world = FrameAgent(vector)
        try:
            actions = noise(12, 2)
            assert_same(collect(world, 12, actions), collect(FrameAgent(Walk, 2, mode="compact"), 12, actions))
        finally:
            world.close()

    def test_frozen_hides_what_follows_the_end(self):
        actions = noise(12, 3)
        expected = collect(FrameAgent(Walk, 3, mode="frozen"), 12, actions)
        for reset in RESETS.values():
            vector = SyncVectorEnv([Walk] * 3, autoreset_mode=reset)
            assert_same(collect(FrameAgent(vector, mode="frozen"), 12, actions), expected)

    def test_other_combinations_name_the_remedy(self):
        next_step, same_step, disabled = (
            SyncVectorEnv([Walk], autoreset_mode=mode)
            for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
        )
        with pytest.raises(ValueError, match=r"AutoresetMode\.SAME_STEP, or use mode='framed'"):
            FrameAgent(next_step, mode="compact")
        with pytest.raises(ValueError, match=r"AutoresetMode\.NEXT_STEP, or use mode='compact'"):
            FrameAgent(same_step, mode="framed")
        with pytest.raises(ValueError, match="does not reset by itself"):
            FrameAgent(disabled)
        with pytest.raises(ValueError, match="framed_columns"):
            FrameAgent(make_env("toy/cue"), mode="framed")
        with pytest.raises(ValueError, match="leave num_envs out"):
            FrameAgent(next_step, 2)

    def test_a_vec_env_of_the_house(self):
        world = FrameAgent(make_env("toy/cue", num_envs=3, K=2), reward="departure")
        ws = collect(world, 8, torch.full((8, 3, 1), 0.5))
        assert ws["env/terminated"][:, 0].tolist() == [0, 0, 0, 1, 0, 0, 1, 0]
        assert (ws["env/obs/policy"][3, :, 0].abs() == 1).all()  # the cue of the next episode
        assert (ws["env/final_obs/policy"][3, :, 0] == 0).all()
        assert ws["env/timestep"][:, 0].tolist() == [0, 1, 2, 3, 1, 2, 3, 1]
        with pytest.raises(ValueError, match="2 rows for 3 instances"):
            collect(world, 2, torch.zeros(2, 2, 1))
