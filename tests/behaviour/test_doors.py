"""The gates of benchmarks/doors.py in miniature, each with a twin that fails: what a door adds is learnt from."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from gaitway import ActorCritic, ActorCriticConfig, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.recorder import Recorder
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.cloning import BehaviourCloning
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.imitation import TARGET, ActionDistance
from gaitway.algorithms.ppo import PPO
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.data.episodes import DatasetError
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.rewards.novelty import RandomNetworkDistillation
from gaitway.runners.collect import collect_steps
from gaitway.runners.evaluate import run_episodes
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.run_folder import RunFolder

VELOCITIES_HIDDEN = [{"name": "select_components", "keep": {"policy": ["position", "angle"]}}]


def learn(env: Any, steps: int, config: PPOConfig, agent: ActorCriticConfig | None = None, **parts: Any) -> ActorCritic:
    """A policy after `steps` of PPO; `terms` are made of it."""
    policy = ActorCritic(env.spec, agent, stream(0, "parameters"))
    terms = [make(policy) for make in parts.pop("terms", ())]
    algorithm = PPO(policy, config, num_envs=env.num_envs, terms=terms)
    OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=steps), **parts).learn()
    return policy


def earned(policy: ActorCritic, id: str, **options: Any) -> float:
    env = make_env(id, num_envs=10, purpose="evaluation", **options)
    return float(run_episodes(env, InferencePolicy(policy.eval()), 10)["return"].mean())


class TargetFollows(RandomNetworkDistillation):
    """Broken: the target is the predictor after every update, so that nothing is new."""

    def update(self, ws, now):
        metrics = super().update(ws, now)
        self.target.load_state_dict(self.predictor.state_dict())
        return metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "opens"), [(RandomNetworkDistillation, True), (TargetFollows, False), (None, False)]
)
def test_novelty_opens_a_lock_that_chance_does_not(source, opens):
    env = make_env("toy/lock", num_envs=32, length=13)  # 60,000 steps are some 40,000 tries of one in 3^13
    rewards = [] if source is None else [source(env.spec, weight=0.1)]
    config = PPOConfig(rollout_steps=64, epochs=4, minibatches=4, learning_rate=1e-3, schedule="constant")
    policy = learn(env, 60_000, config, rewards=rewards)
    assert earned(policy, "toy/lock", length=13) == float(opens)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "balances"), [(8, True), (1, False)])
def test_a_history_shows_hidden_velocities(length, balances):
    env = make_env("toy/cartpole", num_envs=32, wrappers=VELOCITIES_HIDDEN)
    block = {"name": "history", "reads": ["policy"], "writes": "past", "length": length, "size": 16}
    seen = Observations(actor=("policy", "past"), critic=("policy", "past"))
    config = PPOConfig(rollout_steps=64, learning_rate=1e-3, gamma=0.98, scale_reward=True)
    policy = learn(env, 60_000, config, ActorCriticConfig(observations=seen, blocks=(block,)))
    steps = earned(policy, "toy/cartpole", wrappers=VELOCITIES_HIDDEN)
    assert steps > 150 if balances else steps < 80  # without velocities some 40


class OtherInstances(ActionDistance):
    """Broken: what the frozen policy would do in the neighbouring instance."""

    def prepare(self, ws):
        return {TARGET: super().prepare(ws)[TARGET].roll(1, 1)}


def test_action_distance_brings_a_policy_near_a_frozen_one():
    env = make_env("toy/pendulum", num_envs=32)
    frozen = ActorCritic(env.spec, None, stream(7, "parameters")).requires_grad_(False)
    frozen.actor.network.last.weight.mul_(500.0)  # the first policy of all does next to nothing anywhere
    obs = env.reset(seed=3)
    wanted = frozen.act(obs, None, False)[0]
    obs = {name: value.clone() for name, value in obs.items()}

    def apart(*terms: type[ActionDistance]) -> float:
        config = PPOConfig(learning_rate=3e-3, schedule="constant")
        made = [lambda policy, term=term: term(frozen, policy) for term in terms]
        policy = learn(make_env("toy/pendulum", num_envs=32), 8_000, config, terms=made)
        with torch.no_grad():
            return float((policy.act(obs, None, False)[0] - wanted).square().mean())

    spread = float(wanted.var())  # the distance of one that always does what the frozen policy does on average
    assert apart(ActionDistance) < 0.25 * spread
    assert apart() > 0.5 * spread
    assert apart(OtherInstances) > 0.5 * spread


class LateRecorder(Recorder):
    """Broken: keeps every action with the observation after the one it answered."""

    def _record(self, rows, done):
        late = {name: rows[name].roll(1, 0) if name == "action" else rows[name] for name in rows}
        super()._record(Workspace.packed(late, extra_row=rows.extra_row), done)


@pytest.mark.slow
def test_what_was_recorded_can_be_learnt_from(tmp_path):
    env = make_env("toy/cartpole", num_envs=32)
    recorders = [Recorder(env.spec, str(tmp_path / "kept"), start=40_000)]
    recorders += [LateRecorder(env.spec, str(tmp_path / "late"), start=40_000)]
    config = PPOConfig(rollout_steps=64, learning_rate=1e-3, gamma=0.98, scale_reward=True)
    teacher = earned(learn(env, 60_000, config, cast=recorders), "toy/cartpole")
    assert teacher > 150

    def cloned(recorder: Recorder) -> float:
        recorder.writer.flush()
        one = make_env("toy/cartpole", num_envs=1)
        algorithm = BehaviourCloning(ActorCritic(one.spec, None, stream(0, "parameters")))
        OfflineRunner(one, algorithm, RunnerConfig(total_steps=1000), data=Trajectories(recorder.writer.folder)).learn()
        return earned(algorithm.policy, "toy/cartpole")

    kept, late = map(cloned, recorders)
    assert kept > 0.5 * teacher
    assert late < 0.2 * teacher


def test_a_recorder_keeps_late_episodes_alone(tmp_path):
    env = make_env("toy/cartpole", num_envs=4)
    recorder = Recorder(env.spec, str(tmp_path / "kept"), start=1000)
    learn(env, 2000, PPOConfig(), cast=[recorder])
    recorder.writer.flush()
    data = Trajectories(tmp_path / "kept")
    assert 0 < data.num_steps <= 2048 - 1000
    lengths = torch.cat([torch.tensor(part.lengths) for part in data.chunks()])
    assert int(lengths.sum()) == data.num_steps


HISTORY: dict[str, Any] = {"name": "history", "reads": ["policy"], "writes": "past", "length": 3}


def test_a_dataset_holds_no_past(tmp_path):
    env = make_env("toy/cartpole", num_envs=4)
    with TrajectoryWriter(tmp_path / "data", env.spec) as writer:
        collect_steps(env, InferencePolicy(ActorCritic(env.spec)), writer, 100)
    data, config = Trajectories(tmp_path / "data"), RunnerConfig(total_steps=10)
    seen = Observations(actor=("past",))
    policy = ActorCritic(env.spec, ActorCriticConfig(observations=seen, blocks=(HISTORY,)))
    values = ValuePolicy(env.spec, ValuePolicyConfig(observations=seen, blocks=(HISTORY,)))
    refused = r"the policy remembers 'past/memory', which .* does not hold; leave"
    with pytest.raises(ValueError, match="bc learns from single steps, which teach no memory"):
        OfflineRunner(env, BehaviourCloning(policy, num_envs=4), config, data=data)
    with pytest.raises(DatasetError, match=refused):
        OffPolicyRunner(env, DQN(values, DQNConfig(replay_size=1000), num_envs=4), config, data=data, share=0.5)


def test_off_policy_runs_log_their_rewards(tmp_path):
    env = make_env("toy/cartpole", num_envs=4)
    algorithm = DQN(ValuePolicy(env.spec), DQNConfig(replay_size=1000, learning_starts=100), num_envs=4)
    folder = RunFolder.create(tmp_path / "run")
    rewards = [RandomNetworkDistillation(env.spec, weight=0.5)]
    config, logger = RunnerConfig(total_steps=2000), Logger(folder.path)
    OffPolicyRunner(env, algorithm, config, folder=folder, rewards=rewards, logger=logger).learn()
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(lines) if "reward/rnd" in line)
    assert last["reward/task"] == 1.0  # of every step of cartpole
    assert last["reward/rnd"] > 0.0
    assert last["reward/total"] == pytest.approx(1.0 + 0.5 * last["reward/rnd"], rel=1e-5)
