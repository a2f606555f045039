"""Reward sources: their weighted sum, entry by entry; what is logged; when each is asked; what is kept of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.agents.policy import learnt_parameters
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.agents.value_policy import ValuePolicy, ValuePolicyConfig
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.dqn import DQN, DQNConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.registry import make_env
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import Pendulum
from gaitway.rewards.source import Rewards, TaskReward, merged, when_of
from gaitway.runners.checkpoint import CheckpointConfig, parameters_sha256
from gaitway.runners.collect import RandomPolicy, collect_steps
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

BASE = RunnerConfig(
    total_steps=512,
    evaluation=EvaluationConfig(interval=0, episodes=2, max_steps=20),
    checkpoints=CheckpointConfig(interval=64),
)
SMALL = SACConfig(batch_size=16, replay_size=120, learning_starts=16, iteration_steps=32, update_ratio=0.5, gamma=0.9)
NETWORKS = SoftActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))


class Source:
    """Without anything to learn; leaf classes write `annotate`."""

    name, reads, when = "own", ("env/obs/pos",), "collected"

    def __init__(self, weight=1.0):
        self.weight = weight

    def update(self, ws, now):
        return {}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        assert state == {}


class Upright(Source):
    """The cosine of the angle that a step led to, times a number that may change."""

    name, when = "upright", "drawn"
    scale = 1.0

    def annotate(self, ws):
        ws["reward/upright"] = self.scale * ws.following("env/obs/pos")[..., 0]


class Numbers(Source):
    """100 times the number of the call, plus the torque: tells when and of what it was asked."""

    name, reads = "numbers", ("action",)

    def __init__(self, weight=1.0, when="collected"):
        super().__init__(weight)
        self.calls, self.rows, self.when = 0, 0, when

    def annotate(self, ws):
        self.calls += 1
        self.rows += ws.T * ws.B
        ws["reward/numbers"] = 100.0 * self.calls + ws["action"][..., 0]

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


class Learner(nn.Module):
    """A source with a parameter, which `update` moves."""

    name, reads, weight, when = "learner", ("env/obs/pos",), 0.5, "drawn"

    def __init__(self, learns=True):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.0), requires_grad=learns)

    def annotate(self, ws):
        ws["reward/learner"] = self.gain * ws["env/obs/pos"][: ws.T, :, 0]

    def update(self, ws, now):
        with torch.no_grad():
            self.gain += 0.25
        return {"learner/gain": self.gain.detach().clone()}


def on_policy(sources=(), config=BASE, env_id="toy/pendulum", folder=None, **options):
    env = make_env(env_id, num_envs=4, seed=config.seed, **options)
    agent = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))
    policy = ActorCritic(env.spec, agent, stream(config.seed, "parameters"))
    algorithm = PPO(policy, PPOConfig(rollout_steps=8, minibatches=2, epochs=1), num_envs=4, seed=config.seed)

    def more(purpose, num_envs):
        return make_env(env_id, num_envs=num_envs, seed=config.seed, purpose=purpose, **options)

    logger = Logger(folder.path) if folder is not None else None
    return OnPolicyRunner(env, algorithm, config, folder=folder, make_env=more, rewards=sources, logger=logger)


class Falling(Pendulum):
    """A pendulum whose episodes end after 7 steps, or as soon as it turns fast: by both kinds of ends."""

    def __init__(self):
        super().__init__(max_episode_steps=7)

    def advance(self, state, action):
        state, reward, _ = super().advance(state, action)
        return state, reward, np.abs(state[:, 1]) > 2.5


def off_policy(sources=(), sac=SMALL, config=BASE, folder=None, **options):
    env = ToyEnv(Falling(), 4, config.seed)
    policy = SoftActorCritic(env.spec, NETWORKS, stream(config.seed, "parameters"))
    algorithm = SAC(policy, sac, num_envs=4, seed=config.seed)
    logger = Logger(folder.path) if folder is not None else None
    return OffPolicyRunner(env, algorithm, config, folder=folder, rewards=sources, logger=logger, **options)


def lines(folder):
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


# --- The sum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (0.5, (0.5, 0.5, 0.5)),
        (0.0, (0.0, 0.0, 0.0)),
        (-2, (-2.0, -2.0, -2.0)),
        (Schedule(1.0, 0.0, over=4), (1.0, 0.75, 0.5)),  # by iterations
        (Schedule(0.0, 1.0, over=64, unit="steps"), (0.0, 0.5, 1.0)),  # 32 steps each
        (Schedule(0.0, 1.0, over=0.25, unit="fraction"), (0.0, 0.25, 0.5)),  # 32 of 512 steps are 1/16
    ],
)
@pytest.mark.parametrize("task", [None, 3.0, 0.0])
def test_total_is_the_weighted_sum_in_every_entry(weight, expected, task):
    sources = [Upright(weight)] if task is None else [Upright(weight), TaskReward(task)]
    runner = on_policy(sources, max_episode_steps=5)
    for now in expected:
        runner.learn(32)
        ws = runner.rollout
        done = ws["env/done"]
        assert bool(done.any())
        for t in range(8):
            for b in range(4):
                reached = ws["env/final_obs/pos" if done[t, b] else "env/obs/pos"][t if done[t, b] else t + 1, b, 0]
                by_hand = (1.0 if task is None else task) * ws["env/reward"][t, b].item() + now * reached.item()
                assert ws["reward/total"][t, b].item() == pytest.approx(by_hand, abs=1e-5)
                assert ws["reward/upright"][t, b] == reached
                assert ws["reward/task"][t, b] == ws["env/reward"][t, b]


def test_the_algorithm_learns_from_the_total():
    class Constant(Source):
        name = "constant"

        def annotate(self, ws):
            ws["reward/constant"] = torch.full((ws.T, ws.B), 7.0)

    runner = on_policy([Constant(2.0), TaskReward(0.0)])
    runner.algorithm.policy.critic.network.requires_grad_(False)
    runner._begin()
    runner._collect()
    runner._annotate(Now())
    runner.algorithm.prepare(runner.rollout)
    assert_close(runner.algorithm._rewards[0], torch.full((8, 4), 14.0))


def test_without_sources_nothing_is_written_and_nothing_changes():
    plain, named = on_policy(), on_policy([TaskReward()])
    silent = on_policy([Upright(0.0)])
    for runner in (plain, named, silent):
        runner.learn(96)
    assert not [name for name in plain.rollout if name.startswith("reward/")]
    assert not [name for name in named.rollout if name.startswith("reward/")]
    assert plain.rewards.is_plain
    assert named.rewards.is_plain
    assert not silent.rewards.is_plain
    # the fingerprint of a run without sources is that of its policy alone, and a source without weight changes no bit
    assert plain.parameters_sha256() == parameters_sha256(learnt_parameters({"policy": plain.policy}))
    assert plain.parameters_sha256() == named.parameters_sha256() == silent.parameters_sha256()
    assert plain.state_dict()["sources"] == {}
    heavier = on_policy([TaskReward(2.0)])
    assert not heavier.rewards.is_plain
    assert heavier.rewards.writes == ("reward/task", "reward/total")


def test_fingerprints_hold_what_is_learnt_and_nothing_else():
    runner, still = on_policy([Learner(), Upright()]), on_policy([Learner(learns=False)])
    assert list(runner._further()) == ["rewards.learner"]
    assert still._further() == {}
    assert still.parameters_sha256() == on_policy().parameters_sha256() != runner.parameters_sha256()
    before = runner.parameters_sha256()
    with torch.no_grad():
        runner.rewards.sources[1].gain += 1.0
    assert runner.parameters_sha256() != before
    expected = learnt_parameters({"policy": runner.policy, "rewards.learner": runner.rewards.sources[1]})
    assert "rewards.learner.gain" in expected
    assert runner.parameters_sha256() == parameters_sha256(expected)


def test_a_source_that_learns_nonsense_is_found():
    class Broken(Learner):
        def update(self, ws, now):
            with torch.no_grad():
                self.gain.fill_(float("nan"))
            return {}

    with pytest.raises(Exception, match=r"look at rewards\.learner"):
        on_policy([Broken()]).learn(32)


# --- What is shown ---------------------------------------------------------------------------------------------------


def test_logs_and_evaluations_show_the_raw_reward(tmp_path):
    class Huge(Source):
        name, reads = "huge", ("env/obs/policy",)

        def annotate(self, ws):
            ws["reward/huge"] = torch.full((ws.T, ws.B), 1000.0)

    folder = RunFolder.create(tmp_path / "run")
    config = replace(BASE, evaluation=EvaluationConfig(interval=64, episodes=2, max_steps=50))
    runner = on_policy([Huge(2.0), TaskReward(0.5)], config, "toy/cartpole", folder)
    runner.learn(256)
    runner.close()
    # cartpole earns 1 at every step, so a return is a length
    assert runner.last["return"] == runner.last["length"]
    assert runner.best["return"] <= 50
    shown = lines(folder)
    finished = [line for line in shown if "train/return" in line]
    assert finished
    assert all(line["train/return"] == line["train/length"] for line in finished)
    sums = [line for line in shown if "reward/total" in line]
    assert len(sums) == 8
    for line in sums:
        assert (line["reward/task"], line["reward/huge"]) == (1.0, 1000.0)
        assert line["reward/total"] == pytest.approx(2000.5)


def test_off_policy_logs_show_what_the_rows_of_the_iteration_are_worth(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = off_policy([Upright(2.0), Numbers(0.25)], folder=folder)
    runner.learn(64)
    ws = runner.rollout
    last = [line for line in lines(folder) if "reward/total" in line][-1]
    assert last["reward/task"] == pytest.approx(ws["env/reward"].mean().item())
    assert last["reward/upright"] == pytest.approx(ws.following("env/obs/pos")[..., 0].mean().item(), abs=1e-6)
    assert last["reward/numbers"] == pytest.approx(ws["reward/numbers"].mean().item())
    expected = last["reward/task"] + 2.0 * last["reward/upright"] + 0.25 * last["reward/numbers"]
    assert last["reward/total"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("make", [on_policy, off_policy], ids=["on-policy", "off-policy"])
def test_rewards_stay_at_one_place_in_memory(make):
    runner = make([Upright(), Numbers(), Learner()])
    places = []
    for _ in range(3):
        runner.learn(32)
        places.append({name: runner.rollout[name].data_ptr() for name in runner.rewards.writes})
    assert set(places[0]) == {"reward/task", "reward/upright", "reward/numbers", "reward/learner", "reward/total"}
    assert places[0] == places[1] == places[2]


class Talkative(Source):
    def __init__(self, metric, name="talkative"):
        super().__init__()
        self.name, self.metric = name, metric

    def annotate(self, ws):
        ws[f"reward/{self.name}"] = torch.zeros(ws.T, ws.B)

    def update(self, ws, now):
        return {self.metric: torch.tensor(1.0)}


def test_a_name_that_is_logged_twice_is_refused():
    with pytest.raises(ValueError, match=r"a reward source and the algorithm both log 'loss/value'; let the source"):
        on_policy([Talkative("loss/value")]).learn(32)
    with pytest.raises(ValueError, match=r"both log 'loss/critic'"):
        off_policy([Talkative("loss/critic")], replace(SMALL, learning_starts=0)).learn(32)
    with pytest.raises(ValueError, match=r"two reward sources log 'mine'; let 'second' use another name"):
        on_policy([Talkative("mine", "first"), Talkative("mine", "second")]).learn(32)
    one, other = {"a": torch.tensor(1.0)}, {"b": torch.tensor(2.0)}
    assert merged(one, other) == one | other


# --- Off-policy: when each source is asked ---------------------------------------------------------------------------


class History:
    """All rows that a runner has played, as they were when they came."""

    def __init__(self, runner):
        self.rows, self.runner = [], runner

    def learn(self, iterations):
        for _ in range(iterations):
            self.runner.learn(32)
            ws = self.runner.rollout
            rows = {name: ws[name][: ws.T].clone() for name in ws}
            rows |= {"reached": ws.following("env/obs/pos").clone(), "env/done": ws["env/done"]}
            self.rows.append(rows)

    def __getitem__(self, name):
        return torch.cat([rows[name] for rows in self.rows])


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("weight", [0.5, Schedule(1.0, 0.0, over=8)])
def test_totals_of_drawn_transitions_by_hand(n_step, weight):
    sources = [TaskReward(2.0), Numbers(0.01), Upright(weight)]
    runner = off_policy(sources, replace(SMALL, n_step=n_step))
    history = History(runner)
    history.learn(6)  # 192 steps in a replay of 120: it has wrapped
    replay, algorithm = runner.replay, runner.algorithm
    done, terminated = history["env/done"], history["env/terminated"]
    assert bool(terminated.any())
    assert bool(history["env/truncated"].any())
    assert bool((history["reward/numbers"] > 100 * 6).any())

    for scale in (1.0, -3.0):  # a drawn source is asked anew, a collected one is not
        sources[2].scale = scale
        index = replay.slots(replay.first_row, replay.stop_row)
        found = algorithm.transitions(index)["reward"]
        assert_close(found, algorithm._total_reward(runner.rewards, index))
        now = runner.rewards.weights[2].item()
        assert now == (0.5 if weight == 0.5 else pytest.approx(1 - 5 / 8))  # the sixth iteration
        compared, ended = 0, 0
        for number, total in enumerate(found.tolist()):
            start, env = replay.first_row + number // 4, number % 4
            expected, known = 0.0, True
            for k in range(n_step):
                row = start + k
                parts = 2.0 * history["env/reward"][row, env] + 0.01 * history["reward/numbers"][row, env]
                expected += 0.9**k * (parts + now * scale * history["reached"][row, env, 0]).item()
                known &= not terminated[row, env]  # what a termination reached is not in the replay
                if done[row, env]:
                    ended += k < n_step - 1
                    break
            if known:
                assert total == pytest.approx(expected, abs=1e-4)
                compared += 1
        assert compared > 60
        assert (ended > 10) == (n_step > 1)


@pytest.mark.parametrize("n_step", [1, 3])
def test_terminations_end_the_sum_too(n_step):
    """The same loop with sources that do not ask what was reached: every transition counts."""
    runner = off_policy([Numbers(0.5), TaskReward(-1.0)], replace(SMALL, n_step=n_step))
    history = History(runner)
    history.learn(6)
    replay = runner.replay
    found = runner.algorithm._total_reward(runner.rewards, replay.slots(replay.first_row, replay.stop_row))
    assert len(found) == 4 * (120 // 4)
    for number, total in enumerate(found.tolist()):
        start, env = replay.first_row + number // 4, number % 4
        expected = 0.0
        for k in range(n_step):
            value = 0.5 * history["reward/numbers"][start + k, env] - history["env/reward"][start + k, env]
            expected += 0.9**k * value.item()
            if history["env/done"][start + k, env]:
                break
        assert total == pytest.approx(expected, abs=2e-3)  # numbers around 5000


def test_the_sum_over_n_steps_is_that_of_the_replay():
    """With the task's reward alone the sum is the one that the replay has computed itself."""
    runner = off_policy([TaskReward(2.0)], replace(SMALL, n_step=3))
    runner.learn(192)
    index = runner.replay.slots(runner.replay.first_row, runner.replay.stop_row)
    raw = runner.replay.gather(index)["reward"]
    assert_close(runner.algorithm.transitions(index)["reward"], 2.0 * raw, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_how_often_each_source_is_asked(n_step):
    once, always = Numbers(when="collected"), Numbers(when="drawn")
    runner = off_policy([once], replace(SMALL, n_step=n_step))
    runner.learn(96)
    assert once.calls == 96 // 4  # one row of 4 instances per round
    assert once.rows == 96
    assert runner.replay.variables["reward/numbers"] == ((), torch.float32)
    rows = runner.replay.rows(0, 24)
    call = (rows["reward/numbers"] - rows["action"][..., 0]) / 100
    assert_close(call, torch.arange(1.0, 25)[:, None].expand(24, 4))

    runner = off_policy([always], replace(SMALL, n_step=n_step))
    runner.learn(96)
    assert "reward/numbers" not in runner.replay.variables
    assert runner.updates == (96 - 16) // 2
    # every update asks of all steps of its batch, and every iteration once more of its rows, for the log
    assert always.calls == runner.updates + 3
    assert always.rows == runner.updates * 16 * n_step + 96


def test_prioritised_draws_are_rewarded_like_others():
    class Pole(Source):
        name, reads, when = "pole", ("env/obs/policy",), "drawn"

        def annotate(self, ws):
            ws["reward/pole"] = ws["env/obs/policy"][: ws.T, :, 2]

    env = make_env("toy/cartpole", num_envs=4, seed=0)
    policy = ValuePolicy(env.spec, ValuePolicyConfig(hidden=(8,)), stream(0, "parameters"))
    config = DQNConfig(prioritised=True, batch_size=8, replay_size=200, learning_starts=16, iteration_steps=32)
    seen = []
    algorithm = DQN(policy, config, num_envs=4)
    runner = OffPolicyRunner(env, algorithm, BASE, rewards=[Pole(3.0)])
    total = algorithm._total_reward
    algorithm._total_reward = lambda rewards, index, length=None: (
        seen.append((index.clone(), total(rewards, index))) or seen[-1][1]
    )
    runner.learn(64)
    assert seen
    for index, reward in seen:
        rows = runner.replay.window(index)
        assert_close(reward, rows["env/reward"][0] + 3.0 * rows["env/obs/policy"][0, :, 2])


def test_a_source_that_does_not_say_when_annotates_once():
    class Silent:
        name = "silent"

    assert when_of(Silent()) == "collected"
    assert when_of(TaskReward()) == "drawn"


def test_metrics_that_a_drawn_source_reads_travel_through_the_replay():
    class Distance(Source):
        name, reads, when = "speed", ("env/metric/speed",), "drawn"

        def annotate(self, ws):
            ws["reward/speed"] = ws["env/metric/speed"]

    class Measured(Falling):
        metrics = ("speed",)

        def measure(self, state):
            return {"speed": np.abs(state[:, 1])}

    env = ToyEnv(Measured(), 4, 0)
    algorithm = SAC(SoftActorCritic(env.spec, NETWORKS), SMALL, num_envs=4)
    runner = OffPolicyRunner(env, algorithm, BASE, rewards=[Distance(10.0)])
    runner.learn(32)
    ws = runner.rollout
    index = runner.replay.slots(0, 8)
    expected = ws["env/reward"] + 10.0 * ws["env/metric/speed"]
    assert_close(algorithm.transitions(index)["reward"], expected.flatten())


# --- State and refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [on_policy, off_policy], ids=["on-policy", "off-policy"])
def test_sources_are_in_checkpoints(make, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = make([Numbers(), Learner()], folder=folder)
    runner.learn(96)
    runner.close()
    twin = make([Numbers(), Learner()], folder=RunFolder(tmp_path / "run"))
    assert twin.rewards.sources[1].calls == 0
    assert twin.resume() == 96
    assert twin.rewards.sources[1].calls == runner.rewards.sources[1].calls > 0
    assert twin.rewards.sources[2].gain == runner.rewards.sources[2].gain == 1.75
    assert twin.parameters_sha256() == runner.parameters_sha256()
    state = runner.state_dict()["sources"]
    assert set(state) == {"task", "numbers", "learner"}
    with torch.no_grad():
        runner.rewards.sources[2].gain += 1.0
    assert state["learner"]["gain"] == 1.75  # a copy


def test_names_and_weights_are_checked():
    with pytest.raises(ValueError, match="two reward sources are called 'upright'; give each a name of its own"):
        Rewards([Upright(), Upright()])
    with pytest.raises(ValueError, match="two reward sources are called 'task'"):
        Rewards([TaskReward(), TaskReward(2.0)])
    total = Upright()
    total.name = "total"
    with pytest.raises(ValueError, match="a reward source cannot be called 'total'"):
        Rewards([total])
    with pytest.raises(ValueError, match="end is inf; use a finite number"):
        Schedule(0.0, float("inf"), over=3)
    for weight in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"the weight of the reward source 'upright' is .*; use a finite number"):
            Rewards([Upright(weight)])


def test_what_nobody_writes_cannot_be_read():
    class Odd(Upright):
        reads = ("env/obs/position",)

    for make in (on_policy, off_policy):
        with pytest.raises(ValueError, match=r"reward upright reads 'env/obs/position', which nobody writes"):
            make([Odd()])


def recorded(folder):
    with make_env("toy/pendulum", 2, 9, max_episode_steps=7) as env, TrajectoryWriter(folder, env.spec) as writer:
        collect_steps(env, RandomPolicy(env.spec.action, stream(9, "test")), writer, 56)
    return Trajectories(folder)


def test_recorded_steps_in_the_replay_are_rewarded_by_drawn_sources(tmp_path):
    data = recorded(tmp_path / "data")
    runner = off_policy([Upright(2.0)], data=data, prefill=True)
    runner.learn(32)
    assert runner.replay.size > 32
    with pytest.raises(ValueError, match=r"the dataset has no \['reward/numbers'\]"):
        off_policy([Numbers()], data=data, prefill=True).learn(32)
    with pytest.raises(ValueError, match=r"reward sources and data\.share do not go together"):
        off_policy([Upright()], data=data, share=0.5)


def test_annotating_is_without_gradient():
    runner = on_policy([Learner()])
    runner.learn(32)
    assert not runner.rollout["reward/total"].requires_grad
    ws = Workspace.packed({"env/reward": torch.ones(2, 3), "env/obs/pos": torch.ones(3, 3, 2)})
    rewards = Rewards([Learner()])
    rewards.begin(Now())
    rewards.annotate(ws)
    assert not ws["reward/total"].requires_grad
    assert_close(ws["reward/total"], torch.full((2, 3), 1.5))
