"""The cast of a run: order, who acts in evaluations, what is remembered, drawn, stored and handed to the replay."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import CastPolicy, InferencePolicy, acting_part, learnt_parameters
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.cloning import BehaviourCloning, CloningConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.agent import Agent
from gaitway.core.seeding import stream
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.workspace import Variable, Workspace
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.registry import make_env
from gaitway.rewards.source import TaskReward
from gaitway.runners.cast import Cast
from gaitway.runners.checkpoint import CheckpointConfig, parameters_sha256
from gaitway.runners.collect import RandomPolicy, collect_steps
from gaitway.runners.evaluate import EvaluationConfig, run_episodes
from gaitway.runners.finite import NotFiniteError
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig

BASE = RunnerConfig(
    total_steps=256,
    evaluation=EvaluationConfig(interval=96, episodes=2, max_steps=20),
    checkpoints=CheckpointConfig(interval=32, keep_all=True),
)
SMALL = SACConfig(batch_size=8, replay_size=120, learning_starts=16, iteration_steps=32, update_ratio=0.25)
TINY = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))


class Steady(Agent):
    """Whatever was chosen, does the same."""

    reads, writes = ("action",), ("action",)

    def __init__(self, torque=1.5, name=None):
        super().__init__(name)
        self.torque, self.calls = torque, 0

    def step(self, ws, t):
        self.calls += 1
        ws.put("action", t, torch.full_like(ws.at("action", t), self.torque))


class Watcher(Agent):
    """Looks on, and writes what nobody's action depends on."""

    reads, writes = ("action", "env/obs/pos"), ("watched",)

    def __init__(self, name=None):
        super().__init__(name)
        self.calls = 0

    def step(self, ws, t):
        self.calls += 1
        ws.put("watched", t, 2.0 * ws.at("action", t)[:, 0])


class Counter(Agent):
    """Remembers how old the episode is, and pushes with it: action + age / 100."""

    reads, writes, memories = ("action",), ("action",), {"age": 1}

    def __init__(self, declares=False):
        super().__init__()
        if declares:
            self.variables = lambda num_envs, rows: {"age": Variable(rows + 1, num_envs, (), torch.float32)}

    def step(self, ws, t):
        action = ws.at("action", t)
        if "age" not in ws:
            ws.put("age", t, torch.zeros(len(action)))
        age = ws.at("age", t)
        ws.put("action", t, action + age[:, None] / 100)
        ws.put("age", t + 1, age + 1)

    def reset(self, ws, t, mask):
        if "age" in ws:
            ws.put("age", t, ws.at("age", t) * ~mask)


class Noise(SeedableAgent):
    """Adds numbers of its own, and learns nothing of its one parameter."""

    reads, writes = ("action",), ("action", "drawn")

    def __init__(self, name=None, learns=False):
        super().__init__(name)
        self.gain = nn.Parameter(torch.tensor(0.1), requires_grad=learns)

    def step(self, ws, t):
        action = ws.at("action", t)
        drawn = torch.randn(len(action), 1, generator=self.generator())
        drawn = drawn + torch.from_numpy(self.numpy_generator().normal(size=(len(action), 1))).float()
        ws.put("drawn", t, drawn)
        ws.put("action", t, action + self.gain.detach() * drawn)


class Note(Agent):
    """Writes twice the action, and says how large that is."""

    reads, writes = ("action",), ("note",)

    def variables(self, num_envs, rows):
        return {"note": Variable(rows, num_envs, (1,), torch.float32)}

    def step(self, ws, t):
        ws.put("note", t, 2.0 * ws.at("action", t))


def on_policy(cast=(), config=BASE, folder=None, agent=TINY, env_id="toy/pendulum", **options):
    options = options or {"max_episode_steps": 5}
    env = make_env(env_id, num_envs=4, seed=config.seed, **options)
    policy = ActorCritic(env.spec, agent, stream(config.seed, "parameters"))
    algorithm = PPO(policy, PPOConfig(rollout_steps=8, minibatches=2, epochs=1), num_envs=4, seed=config.seed)
    return OnPolicyRunner(env, algorithm, config, **parts(cast, policy, config, folder, env_id, options))


def off_policy(cast=(), config=BASE, folder=None, make=SAC, sac=SMALL, **options):
    options = options or {"max_episode_steps": 5}
    env = make_env("toy/pendulum", num_envs=4, seed=config.seed, **options)
    networks = SoftActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))
    policy = SoftActorCritic(env.spec, networks, stream(config.seed, "parameters"))
    algorithm = make(policy, sac, num_envs=4, seed=config.seed)
    return OffPolicyRunner(env, algorithm, config, **parts(cast, policy, config, folder, "toy/pendulum", options))


def parts(cast, policy, config, folder, env_id, options):
    def more(purpose, num_envs):
        return make_env(env_id, num_envs=num_envs, seed=config.seed, purpose=purpose, **options)

    logger = Logger(folder.path) if folder is not None else None
    cast = [policy if agent == "policy" else agent for agent in cast]
    return {"cast": cast, "folder": folder, "make_env": more, "logger": logger}


BOTH = pytest.mark.parametrize("make", [on_policy, off_policy], ids=["on-policy", "off-policy"])


def metrics(folder):
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


# --- Order and wiring ------------------------------------------------------------------------------------------------


def test_the_policy_stands_where_the_list_names_it_and_first_otherwise():
    class Before(Agent):
        reads, writes = ("env/obs/pos",), ("before",)

        def step(self, ws, t):
            assert not ws.at("action", t).any()  # nobody has chosen one in this row of the first rollout
            ws.put("before", t, ws.at("env/obs/pos", t))

    behind = on_policy([Watcher(), Steady()])
    assert [type(agent).__name__ for agent in behind.cast.agents] == ["ActorCritic", "Watcher", "Steady"]
    around = on_policy([Before(), "policy", Steady()])
    assert [type(agent).__name__ for agent in around.cast.agents] == ["Before", "ActorCritic", "Steady"]
    assert list(around.cast.others) == ["before", "steady"]
    around.learn(32)
    assert_close(around.rollout["before"], around.rollout["env/obs/pos"][:8])
    behind.learn(32)
    assert_close(behind.rollout["action"], torch.full((8, 4, 1), 1.5))
    # the watcher stands before the one that changes the action, and saw what the policy had chosen
    assert (behind.rollout["watched"] != 3.0).all()
    later = on_policy([Steady(), Watcher()])
    later.learn(32)
    assert_close(later.rollout["watched"], torch.full((8, 4), 3.0))


def test_names_are_told_apart():
    cast = on_policy([Steady(), Steady(0.5, name="softly")]).cast
    assert list(cast.others) == ["steady", "softly"]
    with pytest.raises(ValueError, match="two agents of the cast are called 'steady'; give one another name"):
        on_policy([Steady(), Steady()])
    with pytest.raises(ValueError, match="two agents of the cast are called 'policy'"):
        on_policy([Steady(name="policy")])
    with pytest.raises(TypeError, match=r"the cast holds a Linear; derive it from gaitway\.Agent"):
        on_policy([nn.Linear(1, 1)])


@BOTH
def test_casts_that_are_not_wired_are_refused(make):
    class Deaf(Steady):
        reads = ()

    class Needy(Watcher):
        reads = ("acton",)

    with pytest.raises(ValueError, match=r"Deaf writes 'action', which \w+ has written already; .*let the later one"):
        make([Deaf()])
    with pytest.raises(ValueError, match=r"Needy reads 'acton', which nobody writes. Did you mean 'action'"):
        make([Needy()])
    with pytest.raises(ValueError, match=r"Watcher reads 'action' before \w+ writes it; place \w+ earlier"):
        make([Watcher(), "policy"])


def test_the_table_names_agents_sources_and_losses():
    class Loss:
        name, coef, reads = "watching", 0.0, ("watched", "new/value")

        def __call__(self, batch, now):
            return batch["watched"].mean(), {}

    env = make_env("toy/pendulum", num_envs=4)
    algorithm = PPO(ActorCritic(env.spec, TINY), PPOConfig(rollout_steps=8), num_envs=4, terms=[Loss()])
    runner = OnPolicyRunner(env, algorithm, cast=[Watcher()], rewards=[TaskReward(0.5)])
    rows = {row.variable: row for row in runner.wiring.rows()}
    assert rows["watched"].writers == ("Watcher",)
    assert rows["watched"].readers == ("loss watching",)
    assert rows["action"].readers == ("Watcher", "Advance")
    assert rows["env/reward"].readers == ("reward task",)
    assert rows["reward/task"].readers == ("rewards",)
    assert rows["reward/total"].writers == ("rewards",)
    assert "new/value" not in rows
    for name in ("Watcher", "loss watching", "reward task", "ActorCritic"):
        assert name in str(runner.wiring)
    runner.learn(32)


def test_groups_that_nobody_reads_are_named(caplog):
    blind = replace(TINY, observations=Observations(actor=("pos",), critic=("pos",)))
    runner = on_policy(agent=blind)
    assert "nobody reads the observation groups ['vel'] of toy/pendulum; agent.observations, a block" in caplog.text
    assert runner.world.groups == ("pos",)
    caplog.clear()

    class Reader(Watcher):
        reads = ("env/obs/vel",)

    assert set(on_policy([Reader()], agent=blind).world.groups) == {"pos", "vel"}
    assert "nobody reads" not in caplog.text
    on_policy()
    assert "nobody reads" not in caplog.text


# --- Who acts --------------------------------------------------------------------------------------------------------


def steady_return(torque, **options):
    with make_env("toy/pendulum", num_envs=2, seed=0, purpose="evaluation", **options) as env:

        class Actor:
            def __call__(self, obs):
                return torch.full((2, 1), torque)

            def reset(self, mask=None):
                pass

        return run_episodes(env, Actor(), 2, 20)["return"].mean().item()


@BOTH
def test_who_changes_the_action_acts_in_rollouts_and_evaluations(make):
    steady, watcher = Steady(), Watcher()
    runner = make([steady, watcher])
    runner.learn(32)
    assert_close(runner.rollout["action"], torch.full_like(runner.rollout["action"], 1.5))
    rows = len(runner.rollout["action"])
    assert watcher.calls == rows  # it only watches, so evaluations do without it
    assert steady.calls > rows
    assert runner.last["return"] == pytest.approx(steady_return(1.5, max_episode_steps=5))
    assert runner.last["stochastic_return"] == pytest.approx(steady_return(1.5, max_episode_steps=5))
    act = runner.inference_policy()
    assert isinstance(act, CastPolicy)
    assert act(runner.env.reset(seed=1)).tolist() == [[1.5]] * 4
    assert isinstance(make([Watcher()]).inference_policy(), InferencePolicy)
    assert isinstance(make().inference_policy(), InferencePolicy)


def test_the_acting_part_holds_whoever_the_action_depends_on():
    class Sees(Agent):
        reads, writes = ("env/obs/pos",), ("seen",)

    class Uses(Agent):
        reads, writes = ("action", "seen"), ("action",)

    policy = ActorCritic(make_env("toy/pendulum").spec, TINY)
    sees, uses, watcher = Sees(), Uses(), Watcher()
    assert acting_part([sees, policy, watcher, uses]) == [sees, policy, uses]
    assert acting_part([sees, policy, watcher]) == [policy]
    assert Cast(policy, [sees, watcher]).reads() == ("env/obs/pos", "env/obs/vel", "action")


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("memory", [MemoryConfig(), MemoryConfig("gru", 8)], ids=["mlp", "gru"])
def test_a_cast_as_a_function_is_the_policy_as_a_function(memory, stochastic):
    """With an agent that changes nothing, actions through episodes are those of the policy alone."""

    class Nothing(Agent):
        reads, writes = ("action",), ("action",)

        def step(self, ws, t):
            ws.put("action", t, ws.at("action", t) + 0.0)

    runner = on_policy([Nothing()], agent=replace(TINY, memory=memory))
    runner.learn(32)
    both = [
        make(part, stochastic, stream(3, "acting"))
        for make, part in ((CastPolicy, runner.cast.agents), (InferencePolicy, runner.policy))
    ]
    env = make_env("toy/pendulum", num_envs=4, seed=5)
    for _ in range(2):
        obs = env.reset()
        for act in both:
            act.reset()
        for t in range(12):
            one, other = (act(obs) for act in both)
            assert_close(one, other, atol=1e-6, rtol=1e-5)
            step = env.step(one)
            obs = step.obs
            ended = torch.arange(4) == t % 7
            for act in both:
                act.reset(ended)


# --- What is remembered ----------------------------------------------------------------------------------------------


def ages_by_hand(rows, first):
    """Ages before each row, from the ends of episodes."""
    ages, age = [], first.clone()
    for done in rows:
        ages.append(age.clone())
        age = torch.where(done, 0.0, age + 1)
    return torch.stack(ages), age


@BOTH
@pytest.mark.parametrize("declares", [True, False], ids=["declared", "made at the first step"])
def test_memories_are_reset_carried_and_stored(make, declares, tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = make([Counter(declares)], folder=folder)
    age = torch.zeros(4)
    for _ in range(3):
        runner.learn(32)
        expected, age = ages_by_hand(runner.rollout["env/done"], age)
        assert_close(runner.rollout["age"][: runner.rollout.T], expected)
        assert bool(runner.rollout["env/done"].any())
    assert age.max() > 0  # something is under way between iterations
    runner.close()

    twin = make([Counter(declares)], folder=RunFolder(tmp_path / "run"))
    assert twin.resume("96") == 96
    twin.learn(32)
    expected, _ = ages_by_hand(twin.rollout["env/done"], age)
    assert_close(twin.rollout["age"][: twin.rollout.T], expected)
    assert twin.resume("0") == 0


def test_memories_act_in_evaluations():
    runner = on_policy([Counter()], max_episode_steps=6)
    act, alone = runner.inference_policy(), InferencePolicy(runner.policy)
    obs = runner.env.reset(seed=1)
    for age in range(4):
        assert_close(act(obs) - alone(obs), torch.full((4, 1), age / 100))
    act.reset(torch.tensor([True, False, True, False]))
    assert_close((act(obs) - alone(obs))[:, 0], torch.tensor([0.0, 0.04, 0.0, 0.04]))
    assert_close((act(obs) - alone(obs))[:, 0], torch.tensor([0.01, 0.05, 0.01, 0.05]))
    act.reset()
    assert_close(act(obs), alone(obs))


# --- Random streams and state ----------------------------------------------------------------------------------------


@BOTH
def test_a_resumed_run_draws_the_same_numbers(make, tmp_path):
    class Second(Noise):
        writes = ("action",)

        def step(self, ws, t):
            ws.put(
                "action", t, ws.at("action", t) + torch.randn(len(ws.at("action", t)), 1, generator=self.generator())
            )

    def runner_in(path):
        return make([Noise(), Second()], folder=RunFolder(path))

    for name in ("whole", "parts"):
        RunFolder.create(tmp_path / name)
    whole = runner_in(tmp_path / "whole")
    whole.learn()
    whole.close()
    first = runner_in(tmp_path / "parts")
    first.learn(160)  # ends with an evaluation that the whole run does not make
    first.learn(32)  # and goes on, as a run that is killed later
    first.close()
    second = runner_in(tmp_path / "parts")
    assert second.resume("160") == 160
    second.learn(96)
    second.close()
    assert torch.equal(second.rollout["drawn"], whole.rollout["drawn"])
    assert torch.equal(second.rollout["action"], whole.rollout["action"])
    assert second.parameters_sha256() == whole.parameters_sha256()
    last = [[line for line in metrics(RunFolder(tmp_path / name)) if line["step"] > 192] for name in ("whole", "parts")]
    assert last[0] == last[1]


def test_agents_draw_by_the_seed_of_the_run_and_their_names():
    one, twin, other = (on_policy([Noise()], replace(BASE, seed=seed)) for seed in (0, 0, 1))
    named = on_policy([Noise("named")])
    for runner in (one, twin, other, named):
        runner.learn(32)
    assert torch.equal(one.rollout["drawn"], twin.rollout["drawn"])
    assert not torch.equal(one.rollout["drawn"], other.rollout["drawn"])
    assert not torch.equal(one.rollout["drawn"], named.rollout["drawn"])


def test_evaluations_leave_random_streams_where_they_are():
    runner, twin = on_policy([Noise()]), on_policy([Noise()], replace(BASE, evaluation=EvaluationConfig(interval=32)))
    twin.upkeep.judge.make_env = None
    for each in (runner, twin):
        each.learn(32)
        each.learn(32)
    assert runner.last
    assert not twin.last
    assert torch.equal(runner.rollout["drawn"], twin.rollout["drawn"])
    # an evaluation that is the first to draw leaves no trace either
    fresh = on_policy([Noise()])
    with fresh.cast.resting():
        fresh.cast.others["noise"].generator()
        fresh.cast.others["noise"].numpy_generator()
    assert fresh.cast.others["noise"].stream_states() == {}
    assert fresh.cast.others["noise"].training


def test_fingerprints_and_checkpoints_hold_the_cast(tmp_path):
    plain, still, learning = on_policy(), on_policy([Noise()]), on_policy([Noise(learns=True)])
    assert plain.parameters_sha256() == still.parameters_sha256() != learning.parameters_sha256()
    named = learnt_parameters({"policy": learning.policy, "cast.noise": learning.cast.others["noise"]})
    assert "cast.noise.gain" in named
    assert learning.parameters_sha256() == parameters_sha256(named)
    assert "cast" not in plain.state_dict()

    folder = RunFolder.create(tmp_path / "run")
    runner = on_policy([Noise()], folder=folder)
    with torch.no_grad():
        runner.cast.others["noise"].gain.fill_(0.75)
    runner.learn(32)
    runner.close()
    state = runner.state_dict()["cast"]["noise"]
    assert state["state"]["gain"] == 0.75
    assert set(state["streams"][0]) == {"cpu", "numpy"}
    twin = on_policy([Noise()], folder=RunFolder(tmp_path / "run"))
    twin.resume()
    assert twin.cast.others["noise"].gain == 0.75
    assert torch.equal(twin.cast.others["noise"].generator().get_state(), state["streams"][0]["cpu"])
    with torch.no_grad():
        learning.cast.others["noise"].gain.fill_(float("nan"))
    with pytest.raises((NotFiniteError, ValueError), match="nan"):
        learning.learn(32)


# --- Through the replay ----------------------------------------------------------------------------------------------


class Reader(SAC):
    reads = ("note",)


@pytest.mark.parametrize("n_step", [1, 3])
def test_what_a_cast_agent_writes_travels_through_the_replay(n_step):
    runner = off_policy([Note()], make=Reader, sac=replace(SMALL, n_step=n_step))
    runner.learn(64)
    assert runner.replay.variables["note"] == ((1,), torch.float32)
    index = runner.replay.slots(runner.replay.first_row, runner.replay.stop_row)
    batch = runner.algorithm.transitions(index)
    assert len(index) == 4 * (16 - n_step + 1)
    assert_close(batch["note"], 2.0 * batch["action"])
    assert "note" in str(runner.wiring)
    assert [row.readers for row in runner.wiring.rows() if row.variable == "note"] == [("Reader",)]


def test_what_is_read_from_the_replay_needs_a_shape_and_a_writer():
    class Shapeless(Agent):
        reads, writes = ("action",), ("note",)

    with pytest.raises(ValueError, match=r"Reader reads 'note' from the replay; let the agent that writes it declare"):
        off_policy([Shapeless()], make=Reader)
    with pytest.raises(ValueError, match=r"Reader reads 'note', which nobody writes"):
        off_policy(make=Reader)


def test_groups_that_an_algorithm_reads_are_in_the_replay():
    class Curious(SAC):
        reads = ("env/obs/vel",)

    env = make_env("toy/pendulum", num_envs=4, seed=0)
    blind = Observations(actor=("pos",), critic=("pos",))
    networks = SoftActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), observations=blind)
    algorithm = Curious(SoftActorCritic(env.spec, networks), SMALL, num_envs=4)
    runner = OffPolicyRunner(env, algorithm, BASE)
    runner.learn(32)
    index = runner.replay.slots(0, 8)
    assert_close(algorithm.transitions(index)["env/obs/vel"], runner.rollout["env/obs/vel"][:8].flatten(0, 1))


# --- Rows that are complete, and learning from a dataset -------------------------------------------------------------


@BOTH
def test_complete_rows_are_shown_once_and_in_order(make):
    seen = []

    class Listener(Watcher):
        def collected(self, ws, start, stop):
            assert isinstance(ws, Workspace)
            seen.append(ws.slice(start, stop)["env/reward"].clone())

    runner = make([Listener()])
    expected = []
    for _ in range(3):
        runner.learn(32)
        expected.append(runner.rollout["env/reward"].clone())
    assert_close(torch.cat(seen), torch.cat(expected))
    assert len(seen) == (3 if make is on_policy else 24)


def test_a_cast_acts_in_the_evaluations_of_offline_runs(tmp_path):
    with make_env("toy/pendulum", 2, 9, max_episode_steps=5) as env, TrajectoryWriter(tmp_path, env.spec) as writer:
        collect_steps(env, RandomPolicy(env.spec.action, stream(9, "test")), writer, 40)
    steady, watcher = Steady(), Watcher()
    env = make_env("toy/pendulum", num_envs=1, max_episode_steps=5)
    algorithm = BehaviourCloning(
        ActorCritic(env.spec, TINY), CloningConfig(batch_size=8, iteration_steps=5), num_envs=1
    )
    given = parts([steady, watcher], algorithm.policy, BASE, None, "toy/pendulum", {"max_episode_steps": 5})
    config = replace(BASE, total_steps=10)
    runner = OfflineRunner(env, algorithm, config, data=Trajectories(tmp_path), **given)
    shown = watcher.calls
    assert shown > 0  # it has seen the dataset
    runner.learn()
    assert watcher.calls == shown
    assert runner.last["return"] == pytest.approx(steady_return(1.5, max_episode_steps=5))
    state = runner.state_dict()
    assert set(state["cast"]) == {"steady", "watcher"}
    runner.load_state_dict(state)
