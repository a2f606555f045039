"""Gathered transitions: fields, memory that is used again, programs without a look at values."""

import pytest
import torch
from step_model import World, check_transitions, make
from torch.testing import assert_close

from gaitway.core.workspace import Workspace
from gaitway.data.step_replay import StepReplay


class TestGather:
    def filled(self, n_step=1):
        world, replay = World(2, 1), make(40, 2, n_step=n_step, gamma=0.9)
        replay.add(world.advance(35))
        return world, replay

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_a_batch_is_filled_again_and_a_fresh_one_stays(self, n_step):
        world, replay = self.filled(n_step)
        expected = world.transitions(20, n_step, 0.9)
        batch = replay.batch(64)
        fresh = replay.gather(replay.draw((64,)))
        kept = {name: value.clone() for name, value in fresh.items()}
        for _ in range(3):
            fields = replay.gather(replay.draw((64,)), out=batch)
            assert fields is batch.fields
            check_transitions(fields, expected)
        replay.add(world.advance(60))
        for name, value in fresh.items():
            assert torch.equal(value, kept[name])

    def test_fields_and_their_order(self):
        _, replay = self.filled()
        fields = replay.gather(replay.draw((5,)))
        assert set(fields) == {
            "obs/policy",
            "obs/image",
            "action",
            "reward",
            "discount",
            "truncated",
            "next_obs/policy",
            "next_obs/image",
            "skill",
        }
        assert fields["obs/image"].shape == (5, 3, 1)
        assert fields["obs/image"].dtype is torch.uint8
        assert fields["reward"].shape == fields["discount"].shape == (5,)

    @pytest.mark.parametrize("n_step", [1, 3])
    def test_one_program_without_looking_at_values(self, n_step):
        _, replay = self.filled(n_step)
        program = torch.compile(replay.gather, backend="eager", fullgraph=True)
        index = replay.draw((64,))
        for name, value in program(index).items():
            assert torch.equal(value, replay.gather(index)[name])

    def test_hand_made(self):
        # rewards 1, 2, 4, 8; gamma 0.5; the third step ends by time limit, reached 90
        flags = torch.zeros(4, 1, dtype=torch.bool)
        ended = flags.clone()
        ended[2] = True
        ws = Workspace.packed(
            {
                "env/obs/policy": torch.tensor([10.0, 20, 30, 40, 50])[:, None, None],
                "env/final_obs/policy": torch.tensor([20.0, 30, 90, 50])[:, None, None],
                "action": torch.arange(4)[:, None],
                "env/reward": torch.tensor([1.0, 2, 4, 8])[:, None],
                "env/terminated": flags,
                "env/truncated": ended,
            }
        )
        replay = StepReplay(8, 1, {"policy": ((1,), torch.float32)}, ((), torch.int64), n_step=2, gamma=0.5, seed=0)
        replay.add(ws)
        fields = replay.gather(torch.tensor([0, 1, 2]))
        assert_close(fields["reward"], torch.tensor([1 + 0.5 * 2, 2 + 0.5 * 4, 4]))
        assert_close(fields["discount"], torch.tensor([0.25, 0.25, 0.5]))
        assert fields["next_obs/policy"].flatten().tolist() == [30, 90, 90]
        assert fields["action"].tolist() == [0, 1, 2]
        assert replay.size == 3  # the window of the fourth step is open

    def test_wide_and_narrow_dtypes(self):
        groups = {"half": ((3,), torch.float16), "double": ((2,), torch.float64), "complex": ((), torch.complex128)}
        rows = torch.arange(7.0)
        observations = {
            "env/obs/half": rows[:, None, None].half().expand(7, 1, 3),
            "env/obs/double": rows[:, None, None].double().expand(7, 1, 2),
            "env/obs/complex": rows[:, None].to(torch.complex128) * 1j,
        }
        flags = torch.zeros(6, 1, dtype=torch.bool)
        steps = {"action": flags, "env/reward": rows[:6, None], "env/terminated": flags, "env/truncated": flags}
        for n_step in (1, 2):
            replay = StepReplay(4, 1, groups, ((), torch.bool), n_step=n_step, seed=0)
            replay.add(Workspace.packed({**observations, **steps}))
            fields = replay.gather(replay.draw((30,)))
            number = fields["obs/double"][:, 0]
            assert_close(fields["next_obs/double"], (number + n_step)[:, None].expand(30, 2))
            assert_close(fields["next_obs/half"], (number + n_step).half()[:, None].expand(30, 3))
            assert_close(fields["next_obs/complex"], (number + n_step) * 1j)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestCuda:
    @pytest.mark.parametrize("n_step", [1, 3])
    @pytest.mark.parametrize("where", ["cpu", "cuda"])
    def test_captured_and_replayed(self, n_step, where):
        world = World(2, 1)
        replay = make(40, 2, n_step=n_step, gamma=0.9, device="cuda", max_episode_steps=2)
        replay.add(world.advance(15).to(where))
        index, batch = torch.zeros(64, dtype=torch.int64, device="cuda"), replay.batch(64)
        graph, version = torch.cuda.CUDAGraph(), replay.version
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            replay.gather(index, out=batch)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            fresh = replay.gather(index)
            fields = replay.gather(index, out=batch)
        for _ in range(10):
            replay.add(world.advance(7).to(where))
            assert replay.version == version
            replay.draw((64,), out=index)
            graph.replay()
            for result in (fresh, fields):
                check_transitions(
                    {name: value.cpu() for name, value in result.items()}, world.transitions(20, n_step, 0.9)
                )

    def test_moving(self):
        replay, world = make(10, 2), World(2, 0)
        replay.add(world.advance(4))
        replay.to("cuda")
        replay.add(world.advance(3))
        fields = replay.gather(replay.draw((50,)))
        check_transitions({name: value.cpu() for name, value in fields.items()}, world.transitions(5, 1, 0.99))
