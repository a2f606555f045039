"""The offline runner, and off-policy runs that learn from a dataset too: exact resume, what is learnt and refused."""

import json
from dataclasses import replace

import pytest
import torch

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic, DeterministicActorCriticConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.td3 import TD3, TD3BC, TD3BCConfig, TD3Config
from gaitway.core.seeding import stream
from gaitway.data.dataset import Dataset
from gaitway.data.episodes import DatasetError, load_episodes
from gaitway.data.mixing import MixedReplay
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.registry import make_env
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.collect import RandomPolicy, collect_steps
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.finite import NotFiniteError
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

BASE = RunnerConfig(
    total_steps=60,
    evaluation=EvaluationConfig(interval=30, episodes=2, max_steps=20),
    checkpoints=CheckpointConfig(interval=10, keep_all=True),
)
NETWORKS = DeterministicActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), normalise_observations=True)
PLAYED = {"batch_size": 8, "replay_size": 300, "learning_starts": 20, "iteration_steps": 40, "update_ratio": 0.5}


def record(folder, env_id, steps=200, **options):
    with make_env(env_id, num_envs=2, seed=9, **options) as env, TrajectoryWriter(folder, env.spec) as writer:
        collect_steps(env, RandomPolicy(env.spec.action, stream(9, "test")), writer, steps)
    return folder


@pytest.fixture(scope="module")
def swings(tmp_path_factory):
    return record(tmp_path_factory.mktemp("data") / "swings", "toy/pendulum", max_episode_steps=23)


@pytest.fixture(scope="module")
def poles(tmp_path_factory):
    return record(tmp_path_factory.mktemp("data") / "poles", "toy/cartpole", max_episode_steps=50)


def more(env_id, seed):
    return lambda purpose, num_envs: make_env(env_id, num_envs=num_envs, seed=seed, purpose=purpose)


def make_offline(data, config=BASE, folder=None, env_id="toy/pendulum", make=None, **changes):
    env = make_env(env_id, num_envs=1, seed=config.seed)
    policy = DeterministicActorCritic(env.spec, NETWORKS, stream(config.seed, "parameters"))
    small = TD3BCConfig(**{"batch_size": 8, "iteration_steps": 10, "updates_per_program": 4} | changes)
    algorithm = TD3BC(policy, small, num_envs=1, seed=config.seed)
    logger = Logger(folder.path) if folder is not None else None
    source = Trajectories(data) if not hasattr(data, "chunks") else data
    return OfflineRunner(
        env, algorithm, config, data=source, folder=folder, make_env=make or more(env_id, config.seed), logger=logger
    )


def make_played(data, config=BASE, folder=None, num_envs=2, **options):
    env = make_env("toy/pendulum", num_envs=num_envs, seed=config.seed, max_episode_steps=23)
    policy = DeterministicActorCritic(env.spec, NETWORKS, stream(config.seed, "parameters"))
    algorithm = TD3(policy, TD3Config(**PLAYED), num_envs=num_envs, seed=config.seed)
    logger = Logger(folder.path) if folder is not None else None
    source = None if data is None else Trajectories(data)
    return OffPolicyRunner(env, algorithm, config, folder=folder, logger=logger, data=source, **options)


def metrics(folder):
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


class TestOffline:
    def test_a_step_is_an_update_and_the_environment_rests(self, swings):
        runner = make_offline(swings)
        runner.env.step = runner.env.reset = None  # anybody who plays in it fails
        before = runner.parameters_sha256()
        summary = runner.learn(25)
        assert summary["steps"] == runner.env_steps == runner.updates == runner.algorithm.updates == 25
        assert runner.parameters_sha256() != before
        assert summary["last"]["steps"] == 25

    def test_resume_is_exact_wherever_it_stopped(self, swings, tmp_path):
        whole = make_offline(swings, folder=RunFolder.create(tmp_path / "whole"))
        whole.learn()
        whole.close()
        folder = RunFolder.create(tmp_path / "parts")
        for stop in (13, 40, 60):
            part = make_offline(swings, folder=folder)
            if stop > 13:
                part.resume()
            part.learn(stop - part.env_steps)
            part.close()
        assert part.parameters_sha256() == whole.parameters_sha256()
        assert part.best == whole.best
        assert part.last == whole.last
        extra = {13, 20, 40}  # where the parts ended, or began within an iteration
        wanted, found = ([line for line in metrics(f) if line["step"] not in extra] for f in (whole.folder, folder))
        assert [line["step"] for line in found] == [line["step"] for line in wanted]
        for mine, other in zip(found, wanted, strict=True):
            assert mine == other

    def test_checkpoints_do_not_hold_the_dataset(self, tmp_path):
        sizes = []
        for name, steps in (("small", 100), ("large", 4000)):
            data = record(tmp_path / f"{name}_data", "toy/pendulum", steps)
            runner = make_offline(data, folder=RunFolder.create(tmp_path / name))
            runner.learn(10)
            runner.close()
            last = (runner.folder.checkpoints / "last").resolve()
            sizes.append(sum(path.stat().st_size for path in last.rglob("*")))
            assert not runner.folder.replay.exists()
        assert abs(sizes[0] - sizes[1]) < 200

    @pytest.mark.parametrize("missing", ["draws", "algorithm", "optimiser"])
    def test_a_checkpoint_that_lacks_something_is_not_exact(self, missing, swings):
        runner = make_offline(swings)
        runner.learn(20)
        state = runner.state_dict()
        runner.learn(10)
        twin = make_offline(swings)
        fresh = twin.state_dict()
        if missing == "optimiser":
            state["algorithm"] = fresh["algorithm"] | {"policy": state["algorithm"]["policy"]}
        else:
            state[missing] = fresh[missing]
        twin.load_state_dict(state)
        twin.learn(10)
        assert twin.parameters_sha256() != runner.parameters_sha256()

    def test_a_dataset_that_changed_is_refused(self, tmp_path):
        data = record(tmp_path / "data", "toy/pendulum")
        folder = RunFolder.create(tmp_path / "run")
        make_offline(data, folder=folder).learn(10)
        record(data, "toy/pendulum", steps=20)
        again = make_offline(data, folder=folder)
        with pytest.raises(DatasetError, match="has changed: its fingerprint is") as caught:
            again.resume()
        assert "\n" not in str(caught.value)
        assert again.env_steps == 0

    def test_other_spaces_are_refused_in_one_sentence(self, poles):
        with pytest.raises(
            DatasetError, match=r"recorded in toy/cartpole\) does not fit toy/pendulum: the obs"
        ) as caught:
            make_offline(poles)
        assert "\n" not in str(caught.value)

    def test_normalisers_know_the_dataset_and_rest(self, swings):
        runner = make_offline(swings)
        runner.learn(10)
        fields = Trajectories(swings).transitions()
        assert len(runner.policy.all_groups) == 2
        for group in runner.policy.all_groups:
            seen, norm = fields[f"obs/{group}"].double(), runner.policy.normalisers.of(group)
            torch.testing.assert_close(norm.mean, seen.mean(0), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(norm.var, seen.var(0, correction=0), rtol=1e-5, atol=1e-6)
        runner.learn(10)
        assert int(norm.count) == len(seen)

    def test_draws_come_from_the_whole_dataset(self, swings):
        runner = make_offline(swings)
        data = load_episodes(Trajectories(swings))
        assert runner.replay.size == data.num_steps == runner.data.num_steps
        rewards = runner.replay.gather(runner.replay.draw((4000,)))["reward"]
        assert set(rewards.tolist()) == set(data.variables["env/reward"].tolist())

    def test_what_is_logged(self, swings, tmp_path, caplog):
        with caplog.at_level("INFO", "gaitway"):
            runner = make_offline(swings, folder=RunFolder.create(tmp_path / "run"))
        assert "200 steps in" in caplog.text
        assert "a step of this run is an update" in caplog.text
        runner.learn(20)
        runner.close()
        lines = [line for line in metrics(runner.folder) if "train/updates" in line]
        assert [line["step"] for line in lines] == [line["train/updates"] for line in lines] == [10, 20]
        assert lines[1]["train/dataset_passes"] == pytest.approx(20 * 8 / 200)
        assert {"loss/actor", "loss/critic", "loss/imitation", "train/q_mean"} <= set(lines[0])

    def test_numbers_that_are_not_finite_stop_it(self, swings):
        runner = make_offline(swings, critic_learning_rate=1e30)
        with pytest.raises(NotFiniteError, match="up to update 10; lower the learning rates of algorithm"):
            runner.learn(20)

    def test_any_algorithm_with_a_replay_can_learn_so(self, swings, poles):
        env = make_env("toy/pendulum", num_envs=1)
        twin = TD3(DeterministicActorCritic(env.spec, NETWORKS), TD3Config(batch_size=8, n_step=3), num_envs=1)
        assert OfflineRunner(env, twin, BASE, data=Trajectories(swings)).learn(8)["steps"] == 8
        env = make_env("toy/cartpole", num_envs=1)
        dqn = DQN(ValuePolicy(env.spec, ValuePolicyConfig(hidden=(8,))), DQNConfig(batch_size=8), num_envs=1)
        assert OfflineRunner(env, dqn, BASE, data=load_episodes(Trajectories(poles))).learn(8)["steps"] == 8


def controller(obs):
    """Keeps the pole of CartPole up: pushes against where it leans and where it goes."""
    position, speed, angle, turn = obs["policy"].unbind(-1)
    return (3 * angle + turn + 0.1 * position + 0.2 * speed > 0).long()


class Controller:
    def __call__(self, obs):
        return controller(obs)

    def reset(self, mask=None):
        pass


def clone(episodes, updates=300):
    env = make_env("toy/cartpole", num_envs=1)
    policy = ActorCritic(env.spec, ActorCriticConfig(actor_hidden=(16,), critic_hidden=(4,)), stream(0, "parameters"))
    algorithm = BehaviourCloning(policy, CloningConfig(batch_size=64, iteration_steps=100), seed=0)
    config = RunnerConfig(total_steps=updates, evaluation=EvaluationConfig(episodes=8, stochastic=False))
    runner = OfflineRunner(env, algorithm, config, data=episodes, make_env=more("toy/cartpole", 0))
    runner.learn()
    return runner.last["return"]


def test_a_clone_balances_and_one_of_shuffled_actions_does_not(tmp_path):
    with make_env("toy/cartpole", num_envs=8, seed=1) as env, TrajectoryWriter(tmp_path, env.spec) as writer:
        found = collect_steps(env, Controller(), writer, 8 * 250)
    assert found.finished == 0  # it has not fallen
    episodes = load_episodes(Trajectories(tmp_path))
    assert clone(episodes) >= 450
    order = torch.randperm(episodes.num_steps, generator=torch.Generator().manual_seed(0))
    shuffled = {**episodes.variables, "action": episodes.variables["action"][order]}
    assert clone(replace(episodes, variables=shuffled)) < 200


class TestOffPolicyWithData:
    def test_prefilled_steps_are_learnt_from_at_once(self, swings):
        runner = make_played(swings, prefill=True)
        plain = make_played(None)
        assert runner.replay.size == 0
        for each in (runner, plain):
            each.learn(40)
        assert runner.replay.size == plain.replay.size + 200
        recorded = set(Trajectories(swings).transitions()["reward"].tolist())
        drawn = set(runner.replay.gather(runner.replay.draw((4000,)))["reward"].tolist())
        assert recorded <= drawn
        assert torch.equal(runner.rollout["action"][:10], plain.rollout["action"][:10])  # the first 20 are uniform
        assert runner.parameters_sha256() != plain.parameters_sha256()

    def test_a_share_of_every_batch_comes_from_the_dataset(self, swings):
        runner = make_played(swings, share=0.25)
        runner.learn(40)
        assert isinstance(runner.replay, MixedReplay)
        recorded = set(Trajectories(swings).transitions()["reward"].tolist())
        played = set(runner.rollout["env/reward"].flatten().tolist())
        drawn = runner.replay.gather(runner.replay.draw((8,)))["reward"].tolist()
        assert all(reward in recorded for reward in drawn[:2])
        assert all(reward in played for reward in drawn[2:])

    @pytest.mark.parametrize("how", [{"prefill": True}, {"share": 0.5}, {"prefill": True, "share": 0.5}])
    def test_resume_is_exact(self, how, swings, tmp_path):
        config = replace(BASE, total_steps=200, checkpoints=CheckpointConfig(interval=40))
        whole = make_played(swings, config, **how)
        whole.learn()
        folder = RunFolder.create(tmp_path / "run")
        for stop in (80, 200):  # the replay of 300 wraps between them where it began with 200
            part = make_played(swings, config, folder=folder, **how)
            if stop > 80:
                assert part.resume() == 80
            part.learn(stop - part.env_steps)
            part.close()
        assert part.parameters_sha256() == whole.parameters_sha256()
        assert torch.equal(part.replay.draw((32,)), whole.replay.draw((32,)))

    def test_a_checkpoint_without_the_draws_from_the_dataset_is_not_exact(self, swings):
        runner = make_played(swings, share=0.5)
        runner.learn(80)
        state = runner.state_dict()
        runner.learn(40)
        state["replay"]["bookkeeping"]["dataset"]["generator"] = stream(1, "other").get_state()
        twin = make_played(swings, share=0.5)
        twin.load_state_dict(state)
        twin.learn(40)
        assert twin.parameters_sha256() != runner.parameters_sha256()

    def test_another_dataset_or_share_is_refused(self, swings, tmp_path):
        runner = make_played(swings, share=0.5)
        runner.learn(40)
        other = record(tmp_path / "other", "toy/pendulum", steps=100)
        with pytest.raises(DatasetError, match="has changed"):
            make_played(other, share=0.5).load_state_dict(runner.state_dict())
        with pytest.raises(ValueError, match=r"share 0\.5, this one 0\.25"):
            make_played(swings, share=0.25).load_state_dict(runner.state_dict())

    def test_a_fresh_replay_begins_with_the_dataset_again(self, swings, tmp_path):
        folder = RunFolder.create(tmp_path / "run")
        first = make_played(swings, folder=folder, prefill=True)
        first.learn(40)
        first.close()
        again = make_played(swings, folder=folder, prefill=True)
        assert again.resume(fresh_replay=True) == 40
        assert again.replay.size == 200

    def test_what_cannot_be(self, swings, poles):
        with pytest.raises(ValueError, match=r"pass data=Trajectories\(...\) too"):
            make_played(None, share=0.5)
        with pytest.raises(DatasetError, match="does not fit toy/pendulum"):
            make_played(poles, prefill=True)
        env = make_env("toy/cartpole", num_envs=1)

        def learner(**changes):
            policy = ValuePolicy(env.spec, ValuePolicyConfig(hidden=(8,)))
            return DQN(policy, DQNConfig(batch_size=8, **changes), num_envs=1)

        with pytest.raises(ValueError, match=r"use algorithm\.replay_size=200 or more, or data\.share instead"):
            OffPolicyRunner(env, learner(replay_size=100), BASE, data=Trajectories(poles), prefill=True)
        with pytest.raises(ValueError, match=r"priorities and data\.share do not go together"):
            OffPolicyRunner(env, learner(prioritised=True), BASE, data=Dataset.open(poles), share=0.5)
        OffPolicyRunner(env, learner(prioritised=True), BASE, data=Dataset.open(poles), prefill=True).learn(8)
