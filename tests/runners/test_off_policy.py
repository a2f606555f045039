"""The off-policy runner from Python: exact resume through a replay that wraps, exact counts, lost and fresh replays."""

import json
from dataclasses import replace

import pytest
import torch

import gaitway
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.files import StateFileError
from gaitway.envs.registry import make_env
from gaitway.envs.wrappers import Wrapper
from gaitway.runners import capacity
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.finite import NotFiniteError
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner, overlaps
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig, StopConfig

BASE = RunnerConfig(
    total_steps=640,
    evaluation=EvaluationConfig(interval=320, episodes=2, max_steps=20),
    checkpoints=CheckpointConfig(interval=64, keep_all=True),
)
SMALL = SACConfig(batch_size=16, replay_size=200, learning_starts=64, iteration_steps=64, update_ratio=0.5)
NETWORKS = SoftActorCriticConfig(actor_hidden=(16, 16), critic_hidden=(16, 16))


def make_runner(config=BASE, sac=SMALL, env_id="toy/pendulum", folder=None, num_envs=4, **options):
    env = make_env(env_id, num_envs=num_envs, seed=config.seed, **options)
    policy = SoftActorCritic(env.spec, NETWORKS, gaitway.core.seeding.stream(config.seed, "parameters"))
    algorithm = SAC(policy, sac, num_envs=num_envs, seed=config.seed)

    def more(purpose, num_envs):
        return make_env(env_id, num_envs=num_envs, seed=config.seed, purpose=purpose, **options)

    logger = Logger(folder.path) if folder is not None else None
    return OffPolicyRunner(env, algorithm, config, folder=folder, make_env=more, logger=logger)


def metrics(folder):
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def test_training_from_python_without_a_folder():
    runner = make_runner()
    summary = runner.learn(128)
    assert summary["steps"] == runner.env_steps == 128
    assert {"return", "length", "stochastic_return"} <= set(summary["last"])
    act = runner.inference_policy()
    assert act(runner.env.reset(seed=1)).shape == (4, 1)
    assert "env/obs" in str(runner.wiring)
    with pytest.raises(ValueError, match="no run folder"):
        runner.resume()


def test_actions_are_uniform_until_learning_starts():
    before = make_runner(sac=replace(SMALL, learning_starts=1000))
    untouched = before.parameters_sha256()
    before.learn(64)
    assert before.parameters_sha256() == untouched
    assert before.updates == 0
    action = before.rollout["action"]
    bound = before.env.spec.action.high[0]
    assert action.abs().max() <= bound
    assert action.abs().max() > 0.9 * bound
    assert abs(float(action.std()) - bound / 3**0.5) < 0.15 * bound  # that of a uniform distribution, 64 draws


@pytest.mark.parametrize("num_envs", [1, 3, 8])
@pytest.mark.parametrize("ratio", [0.25, 1, 3])
def test_gradient_steps_are_the_ratio_times_the_steps(ratio, num_envs):
    sac = replace(SMALL, update_ratio=ratio, learning_starts=10, iteration_steps=24, batch_size=4)
    runner = make_runner(sac=sac, num_envs=num_envs)
    counted = []
    update = runner.algorithm.update
    runner.algorithm.update = lambda replay, updates, now: (counted.append(updates), update(replay, updates, now))
    runner.learn(72)
    assert runner.env_steps == 72
    assert sum(counted) == runner.updates == int(ratio * (72 - 10))


def test_a_ratio_that_binary_floats_cannot_hold_does_not_drift():
    runner = make_runner(sac=replace(SMALL, update_ratio=0.1, learning_starts=0))
    runner.learn(64)
    for _ in range(1000):  # floats say that ten times 0.1 is less than 1
        runner._updates_due(1)
        assert runner.updates == runner.env_steps // 10


def test_rounds_of_several_steps_give_the_same_number_of_gradient_steps():
    sac = replace(SMALL, steps_per_round=4, iteration_steps=60, learning_starts=0, update_ratio=0.5)
    runner = make_runner(sac=sac)
    assert runner.rollout.T == 12  # 60 // 4 environments // 4 steps, in whole rounds
    runner.learn(96)
    assert (runner.env_steps, runner.updates) == (96, 48)


@pytest.mark.parametrize("n_step", [1, 3])
def test_resume_is_exact_through_a_replay_that_wraps(n_step, tmp_path):
    sac = replace(SMALL, n_step=n_step, update_ratio=0.7)
    whole = make_runner(sac=sac, folder=RunFolder.create(tmp_path / "whole"), max_episode_steps=23)
    whole.learn()
    whole.close()
    assert whole.env_steps > 3 * sac.replay_size

    folder = RunFolder.create(tmp_path / "parts")
    for stop in (192, 448, 640):  # the ring is not full, wrapped twice, wrapped three times
        part = make_runner(sac=sac, folder=folder, max_episode_steps=23)
        if stop > 192:
            part.resume()
        part.learn(stop - part.env_steps)
        # something written after the checkpoint, as by a run that is killed later
        part.upkeep.logger.log(part.env_steps + 1, {"after": 1.0})
        part.close()
    assert part.parameters_sha256() == whole.parameters_sha256()
    assert part.updates == whole.updates
    assert torch.equal(part.replay.draw((64,)), whole.replay.draw((64,)))
    extra = {192, 448}  # evaluations with which the parts ended
    expected = [line for line in metrics(whole.folder) if line["step"] not in extra]
    found = [line for line in metrics(folder) if line["step"] not in extra]
    assert found[:-1] == expected  # but for the line after the end


@pytest.mark.parametrize("missing", ["env", "policy_stream", "replay", "credit", "optimiser", "global"])
def test_a_checkpoint_that_lacks_something_is_not_exact(missing):
    runner = make_runner(sac=replace(SMALL, update_ratio=0.7))
    runner.learn(320)
    state = runner.state_dict()
    runner.learn(128)
    twin = make_runner(sac=replace(SMALL, update_ratio=0.7))
    fresh = twin.state_dict()
    if missing == "global":  # nothing of ours draws from it, so this one changes nothing: the test can tell them apart
        state["global_streams"] = fresh["global_streams"]
    elif missing == "credit":
        state["credit"] = [0, 1]
    elif missing == "optimiser":
        state["algorithm"] = fresh["algorithm"] | {"policy": state["algorithm"]["policy"]}
    elif missing == "replay":
        del state["replay"]
    else:
        state[missing] = fresh[missing]
    twin.load_state_dict(state)
    twin.learn(128)
    assert (twin.parameters_sha256() == runner.parameters_sha256()) == (missing == "global")


def test_going_back_to_an_older_checkpoint_is_exact_too(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    first = make_runner(folder=folder)
    first.learn()
    first.close()
    again = make_runner(folder=folder)
    assert again.resume("256") == 256
    again.learn()
    again.close()
    assert again.parameters_sha256() == first.parameters_sha256()


def test_old_chunks_go_with_the_checkpoints_that_needed_them(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    config = replace(BASE, checkpoints=CheckpointConfig(interval=64, keep=1))
    runner = make_runner(config, folder=folder)
    runner.learn()
    runner.close()
    state, _ = runner.checkpoints.load("best")
    needed = set(state["replay"]["chunks"]) | set(runner.checkpoints.load("last")[0]["replay"]["chunks"])
    found = {path.name for path in folder.replay.iterdir()}
    assert {name for name in found if any(name.startswith(chunk) for chunk in needed)} == found
    written = sum(path.stat().st_size for path in folder.replay.rglob("*") if path.is_file())
    assert written < 3 * 640 * 40  # each step once or twice, not the whole replay at each checkpoint


def chunk_files(folder):
    return sorted(path for path in folder.replay.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_chunk_is_refused_by_name_and_a_fresh_replay_goes_on(damage, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = make_runner(folder=folder)
    runner.learn(320)
    runner.close()
    lines = folder.metrics.read_bytes()
    victim = chunk_files(folder)[-1]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.unlink()
    if damage == "damaged":
        victim.write_bytes(bytes(content))
    twin = make_runner(folder=folder)
    with pytest.raises(StateFileError, match="--fresh-replay") as caught:
        twin.resume()
    assert victim.name.split(".")[0] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert folder.metrics.read_bytes() == lines

    other = make_runner(folder=folder)
    assert other.resume(fresh_replay=True) == 320
    assert other.replay.size == 0
    before = other.updates
    untouched = other.parameters_sha256()
    other.learn(64)  # learning_starts: fills the replay with what the policy does
    assert other.updates == before
    assert other.parameters_sha256() == untouched == runner.parameters_sha256()
    other.learn(64)
    assert other.updates == before + 32
    other.close()
    third = make_runner(folder=folder)
    assert third.resume() == 448  # and from there on it is exact again
    assert third.replay.size == other.replay.size


def test_environments_that_forget_are_cut_in_the_replay():
    pytest.importorskip("envpool")
    runner = make_runner(env_id="envpool:CartPole-v1", num_threads=1)
    runner.learn(128)
    assert runner.env_steps >= 128
    twin = make_runner(env_id="envpool:CartPole-v1", num_threads=1)
    cuts = []
    cut = twin.replay.cut
    twin.replay.cut = lambda: (cuts.append(twin.env_steps), cut())
    twin.load_state_dict(runner.state_dict())
    assert cuts == [runner.env_steps]
    assert twin.episodes.running_length.tolist() == [0] * 4
    twin.learn(64)


def test_reset_rows_count_neither_as_steps_nor_for_gradient_steps():
    pytest.importorskip("envpool")
    runner = make_runner(sac=replace(SMALL, update_ratio=1), env_id="envpool:CartPole-v1", num_threads=1)
    runner.learn(200)
    assert runner.rollout["env/valid"].sum() < runner.rollout["env/valid"].numel()
    assert runner.updates == runner.env_steps - 64
    assert runner.episodes.finished > 0


def test_a_stop_rule_and_the_best():
    runner = make_runner(replace(BASE, stop=StopConfig(threshold=-1e9)))
    assert runner.learn()["stopped_by"] == "threshold"
    assert runner.env_steps == 320
    assert runner.best["steps"] == runner.last["steps"] == 320


def test_numbers_that_are_not_finite_stop_the_run_and_say_where(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = make_runner(folder=folder)
    runner.learn(128)
    with torch.no_grad():
        runner.algorithm.flat_parameters()[0][3] = float("nan")
    with pytest.raises(NotFiniteError, match=r"a parameter is not finite|became nan"):
        runner.learn(64)
    assert (folder.failures / "128" / "failure.json").exists()
    assert runner.checkpoints.load("last")[1] == 128


class Poisoned(Wrapper):
    """Instance 2 earns infinity at the 20th step."""

    count = 0

    def step(self, action):
        step = super().step(action)
        self.count += 1
        if self.count != 20:
            return step
        reward = step.reward.clone()
        reward[2] = float("inf")
        return replace(step, reward=reward)


@pytest.mark.parametrize("learning_starts", [0, 1000])
def test_what_the_environment_said_is_named_before_what_became_of_it(learning_starts):
    env = Poisoned(make_env("toy/pendulum", num_envs=4, seed=0))
    sac = replace(SMALL, learning_starts=learning_starts, update_ratio=4)
    runner = OffPolicyRunner(env, SAC(SoftActorCritic(env.spec, NETWORKS), sac, num_envs=4), BASE)
    with pytest.raises(NotFiniteError, match=r"env/reward of environment 2 is inf at step 3 of the rollout that began"):
        runner.learn()


def test_a_replay_that_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: 10**9)
    with pytest.raises(ValueError, match=r"replay_size is 1,000,000,000,000 .* use algorithm.replay_size=\d+$"):
        make_runner(sac=replace(SMALL, replay_size=10**12))


OVERLAPPED = replace(SMALL, overlap=True, update_ratio=1.0)


def test_overlapped_learning_makes_the_same_number_of_steps_and_repeats_itself():
    one, other, plain = (
        make_runner(sac=OVERLAPPED),
        make_runner(sac=OVERLAPPED),
        make_runner(sac=replace(OVERLAPPED, overlap=False)),
    )
    for runner in (one, other, plain):
        runner.learn(256)
    assert one.updates == plain.updates == 256 - 64
    assert one.parameters_sha256() == other.parameters_sha256()
    assert one.parameters_sha256() != plain.parameters_sha256()  # the policy acted one round behind


def test_overlapped_updates_come_between_the_action_and_its_simulation():
    runner = make_runner(sac=replace(OVERLAPPED, learning_starts=0))
    seen = []
    update, step = runner.algorithm.update, runner.env.step
    runner.algorithm.update = lambda *args: (seen.append("learn"), update(*args))[1]
    runner.env.step = lambda action: (seen.append("simulate"), step(action))[1]
    runner.learn(64)
    rounds = 64 // 4
    assert seen == ["simulate", *["learn", "simulate"] * (rounds - 1), "learn"]


def test_left_to_itself_it_overlaps_where_a_gpu_learns_and_the_cpu_simulates():
    plain, chosen = (make_runner(sac=replace(OVERLAPPED, overlap=each)) for each in (False, "auto"))
    for runner in (plain, chosen):
        runner.learn(192)
    assert chosen.parameters_sha256() == plain.parameters_sha256()
    assert chosen.world.meanwhile is None
    chosen.algorithm.device = torch.device("cuda")
    assert overlaps(chosen.algorithm, chosen.env)
    chosen.env.is_on_device = True
    assert not overlaps(chosen.algorithm, Wrapper(chosen.env))
    assert overlaps(make_runner(sac=OVERLAPPED).algorithm, chosen.env)


def test_an_overlapped_run_resumes_exactly():
    whole, first, second = (make_runner(sac=OVERLAPPED) for _ in range(3))
    whole.learn(384)
    first.learn(192)
    second.load_state_dict(first.state_dict())
    second.learn(192)
    assert second.parameters_sha256() == whole.parameters_sha256()
