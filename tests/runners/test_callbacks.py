"""Callbacks: when they are called and with what, what they may do, and that a resumed run goes on alike."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.cli.build import build_runner
from gaitway.cli.train_config import EnvConfig, TrainConfig
from gaitway.core.config import ConfigError
from gaitway.core.seeding import stream
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import Pendulum
from gaitway.envs.wrappers import Wrapper
from gaitway.runners.callbacks import CALLBACKS, Callbacks, EnvSchedule, Moment
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.logger import Logger
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig, StopConfig

BASE = RunnerConfig(
    total_steps=256,
    evaluation=EvaluationConfig(interval=96, episodes=2, max_steps=20),
    checkpoints=CheckpointConfig(interval=32, keep_all=True),
)
SMALL = SACConfig(batch_size=8, replay_size=200, learning_starts=16, iteration_steps=32, update_ratio=0.25)


class Windy(Pendulum):
    """A pendulum that is pushed."""

    def __init__(self):
        super().__init__(max_episode_steps=7)
        self.push, self.pushes = 0.0, []

    def set_push(self, push):
        self.push = push
        self.pushes.append(push)

    def advance(self, state, action):
        state = np.stack((state[:, 0], np.clip(state[:, 1] + self.push, -8, 8)), axis=1)
        return super().advance(state, action)


class Listener:
    """Keeps what it is told."""

    name = "listener"

    def __init__(self):
        self.told = []

    def begin(self, moment):
        self.told.append(("begin", moment))

    def after_iteration(self, moment):
        self.told.append(("after_iteration", moment))

    def after_evaluation(self, moment):
        self.told.append(("after_evaluation", moment))

    def end(self, moment):
        self.told.append(("end", moment))


def windy(callbacks=(), folder=None, config=BASE, off_policy=False):
    env = ToyEnv(Windy(), 4, config.seed, id="windy")
    if off_policy:
        networks = SoftActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))
        algorithm = SAC(SoftActorCritic(env.spec, networks, stream(0, "parameters")), SMALL, num_envs=4)
        make = OffPolicyRunner
    else:
        networks = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))
        small = PPOConfig(rollout_steps=8, minibatches=2, epochs=1)
        algorithm = PPO(ActorCritic(env.spec, networks, stream(0, "parameters")), small, num_envs=4)
        make = OnPolicyRunner

    def more(purpose, num_envs):
        return ToyEnv(Windy(), num_envs, config.seed, purpose=purpose)

    logger = Logger(folder.path) if folder is not None else None
    return make(env, algorithm, config, callbacks=callbacks, folder=folder, make_env=more, logger=logger)


def metrics(folder):
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


@pytest.mark.parametrize("off_policy", [False, True], ids=["on-policy", "off-policy"])
def test_callbacks_are_called_when_they_should_be(off_policy, tmp_path):
    listener, folder = Listener(), RunFolder.create(tmp_path / "run")
    runner = windy([listener], folder, off_policy=off_policy)
    runner.learn()
    runner.close()
    events = [(name, moment.now.env_steps) for name, moment in listener.told]
    expected = [("begin", 0)]
    for steps in range(32, 257, 32):
        expected.append(("after_iteration", steps))
        if steps in (96, 192, 256):
            expected.append(("after_evaluation", steps))
    assert events == [*expected, ("end", 256)]
    for name, moment in listener.told:
        assert isinstance(moment, Moment)
        assert moment.now == Now(moment.now.env_steps // 32, moment.now.env_steps, moment.now.env_steps / 256)
        assert moment.env is runner.env
        assert bool(moment.numbers) == name.startswith("after")

    lines = metrics(folder)
    logged = {line["step"]: line for line in lines if not any(name.startswith("eval/") for name in line)}
    judged = {line["step"]: line for line in lines if any(name.startswith("eval/") for name in line)}
    for name, moment in listener.told:
        if name == "after_iteration":
            assert {"step": moment.now.env_steps, **moment.numbers} == logged[moment.now.env_steps]
        if name == "after_evaluation":
            found = {f"eval/{key}": value for key, value in moment.numbers.items()}
            assert {"step": moment.now.env_steps, **found} == judged[moment.now.env_steps]
            assert moment.evaluation_env.spec == ToyEnv(Windy()).spec


def test_every_part_of_a_run_begins_and_ends():
    listener = Listener()
    runner = windy([listener])
    runner.learn(32)
    runner.learn(32)
    named = [(name, moment.now.env_steps) for name, moment in listener.told if name in ("begin", "end")]
    assert named == [("begin", 0), ("end", 32), ("begin", 32), ("end", 64)]
    stopped = Listener()
    windy([stopped], config=replace(BASE, stop=StopConfig(threshold=-1e9))).learn()
    assert [name for name, _ in stopped.told][-2:] == ["after_evaluation", "end"]
    assert stopped.told[-1][1].now.env_steps == 96


def test_no_environment_of_evaluations_where_there_are_none():
    listener, runner = Listener(), windy()
    runner.upkeep.judge.make_env = None
    runner.upkeep.callbacks = Callbacks([listener])
    runner.learn(64)
    assert [name for name, _ in listener.told] == ["begin", "after_iteration", "after_iteration", "end"]
    assert all(moment.evaluation_env is None for _, moment in listener.told)


def test_methods_are_optional_and_names_are_not_shared():
    class Quiet:
        pass

    class Named:
        name = "quiet"

    runner = windy([Quiet()])
    runner.learn(32)
    assert list(runner.upkeep.callbacks.named) == ["quiet"]
    assert runner.state_dict()["callbacks"] == {}
    assert "callbacks" not in windy().state_dict()
    with pytest.raises(ValueError, match="two callbacks are called 'quiet'; leave one out, or write"):
        windy([Quiet(), Named()])
    with pytest.raises(ValueError, match="two callbacks are called 'env_schedule/set_push'"):
        windy([EnvSchedule("set_push", 1.0), EnvSchedule("set_push", 2.0)])
    assert len(Callbacks([EnvSchedule("set_push", 1.0), EnvSchedule("set_pull", 2.0)])) == 2


def test_callbacks_act_in_their_order():
    order = []

    class Each:
        def __init__(self, name):
            self.name = name

        def begin(self, moment):
            order.append(self.name)

    windy([Each("one"), Each("two"), Each("three")]).learn(32)
    assert order == ["one", "two", "three"]


def test_what_a_callback_logs_is_in_the_metrics(tmp_path):
    class Talker:
        name = "talker"

        def after_iteration(self, moment):
            moment.log({"own/steps": 2.0 * moment.now.env_steps})

        def after_evaluation(self, moment):
            moment.log({"own/judged": moment.numbers["return"]})

    folder = RunFolder.create(tmp_path / "run")
    runner = windy([Talker()], folder)
    runner.learn(96)
    runner.close()
    found = [line for line in metrics(folder) if "own/steps" in line]
    assert found == [{"step": steps, "own/steps": 2.0 * steps} for steps in (32, 64, 96)]
    assert {"step": 96, "own/judged": runner.last["return"]} in metrics(folder)


class Curriculum:
    """Pushes harder whenever the critic errs less than before: state of its own, told by the numbers."""

    name = "curriculum"

    def __init__(self):
        self.level, self.best = 0, float("inf")

    def begin(self, moment):
        moment.env.call("set_push", 0.2 * self.level)

    def after_iteration(self, moment):
        error = moment.numbers.get("loss/value", moment.numbers.get("loss/critic", 0.0))
        if error < self.best:
            self.level, self.best = self.level + 1, error
        moment.env.call("set_push", 0.2 * self.level)
        moment.log({"curriculum/level": float(self.level)})

    def state_dict(self):
        return {"level": self.level, "best": self.best}

    def load_state_dict(self, state):
        self.level, self.best = state["level"], state["best"]


RISING = Schedule(0.0, 2.0, over=1.0, unit="fraction")
MAKE = {
    "curriculum": lambda: [Curriculum()],
    "schedule": lambda: [EnvSchedule("set_push", RISING)],
    "schedule of evaluations too": lambda: [EnvSchedule("set_push", RISING, evaluation=True)],
}


@pytest.mark.parametrize("off_policy", [False, True], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("name", MAKE)
def test_resume_is_exact(name, off_policy, tmp_path):
    for part in ("whole", "parts"):
        RunFolder.create(tmp_path / part)
    whole = windy(MAKE[name](), RunFolder(tmp_path / "whole"), off_policy=off_policy)
    whole.learn()
    whole.close()
    first = windy(MAKE[name](), RunFolder(tmp_path / "parts"), off_policy=off_policy)
    first.learn(128)
    first.learn(32)
    first.close()
    second = windy(MAKE[name](), RunFolder(tmp_path / "parts"), off_policy=off_policy)
    assert second.resume("128") == 128
    if name == "curriculum":
        assert second.upkeep.callbacks.named["curriculum"].level > 0
    second.learn()
    second.close()
    assert second.env.toy.push == whole.env.toy.push > 0
    assert second.parameters_sha256() == whole.parameters_sha256()

    def lines(part):  # but the evaluation with which the first part ended
        found = metrics(RunFolder(tmp_path / part))
        return [line for line in found if not (line["step"] == 128 and "eval/return" in line)]

    assert lines("parts") == lines("whole")
    untouched = windy(off_policy=off_policy)
    untouched.learn()
    assert untouched.parameters_sha256() != whole.parameters_sha256()


def test_a_schedule_sets_the_task_and_is_logged(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = windy([EnvSchedule("set_push", RISING)], folder)
    runner.learn()
    runner.close()
    expected = [2.0 * steps / 256 for steps in range(0, 257, 32)]
    assert runner.env.toy.pushes == pytest.approx(expected)
    shown = {line["step"]: line["schedule/set_push"] for line in metrics(folder) if "schedule/set_push" in line}
    assert shown == {steps: pytest.approx(2.0 * steps / 256) for steps in range(32, 257, 32)}
    assert runner.upkeep.judge.env is None  # closed; evaluations were not pushed


@pytest.mark.parametrize("follows", [False, True])
def test_evaluations_follow_from_the_first_one_on(follows):
    runner = windy([EnvSchedule("set_push", RISING, evaluation=follows)])
    pushes = []
    measure = runner.upkeep.judge.measure

    def spied(steps):
        pushes.append(runner.upkeep.judge.open().toy.push)
        return measure(steps)

    runner.upkeep.judge.measure = spied
    runner.learn()
    assert pushes == ([pytest.approx(2.0 * steps / 256) for steps in (96, 192, 256)] if follows else [0.0] * 3)


def test_a_method_that_is_not_there_is_named():
    with pytest.raises(
        ValueError, match=r"set_pus cannot call 'set_pus': neither windy nor its task has a method 'set_pus'"
    ):
        windy([EnvSchedule("set_pus", 1.0)]).learn(32)


MODULE = '''
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import Pendulum


class Pushed(ToyEnv):
    def __init__(self, **common):
        super().__init__(Pendulum(max_episode_steps=7), **common, id="pushed")
        self.push = 0.0

    def set_push(self, push):
        self.push = push


class Counting:
    """Made by its options; its name is that of its class."""

    def __init__(self, step: int = 1):
        self.step, self.count = step, 0

    def after_iteration(self, moment):
        self.count += self.step
'''


def test_schedules_name_what_their_number_belongs_to():
    class Weighted(ToyEnv):
        def set_reward_weight(self, name, weight):
            self.weight = (name, weight)

    logged, env = [], Weighted(Pendulum(), 2)
    schedules = [EnvSchedule("set_reward_weight", value, of=of) for of, value in (("a", 2.0), ("b", 3.0))]
    Callbacks(schedules).call("after_iteration", Moment(Now(0, 0, 0.0), env, {}, logged.append))
    assert logged == [{"schedule/set_reward_weight/a": 2.0}, {"schedule/set_reward_weight/b": 3.0}]
    assert env.weight == ("b", 3.0)


def test_levels_of_terrain_are_logged():
    class Levelled(ToyEnv):
        def levels(self):
            return {"gap_min": 2.0}

    logged = []
    moment = Moment(Now(0, 0, 0.0), Levelled(Pendulum(), 2), {}, logged.append)
    Callbacks([CALLBACKS["terrain_levels"]()]).call("after_iteration", moment)
    assert logged == [{"levels/gap_min": 2.0}]
    flat = replace(moment, env=ToyEnv(Pendulum(), 2))
    with pytest.raises(ValueError, match="terrain_levels needs a task with levels"):
        Callbacks([CALLBACKS["terrain_levels"]()]).call("after_iteration", flat)


def test_callbacks_and_environments_of_the_user_by_configuration(tmp_path, monkeypatch):
    (tmp_path / "own_pushed.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    schedule = {"start": 0, "end": 50, "over": 1, "unit": "fraction"}
    config = TrainConfig(
        total_steps=256,
        env=EnvConfig("own_pushed:Pushed", 4),
        algorithm=PPOConfig(rollout_steps=8, minibatches=2, epochs=1),
        evaluation=EvaluationConfig(episodes=2),
        callbacks=(
            {"name": "env_schedule", "method": "set_push", "value": schedule},
            {"name": "own_pushed:Counting", "step": 3},
        ),
    )
    runner = build_runner(config, None)
    runner.learn(128)
    assert runner.env.push == 25.0
    assert runner.upkeep.callbacks.named["counting"].count == 12
    runner.learn()
    assert runner.env.push == 50.0
    assert CALLBACKS["env_schedule"] is EnvSchedule
    twice = replace(config, callbacks=(config.callbacks[0], config.callbacks[0]))
    with pytest.raises(ValueError, match="two callbacks are called 'env_schedule/set_push'"):
        build_runner(twice, None)
    typo = replace(config, callbacks=({"name": "own_pushed:Counting", "stp": 3},))
    with pytest.raises(ConfigError, match=r"callbacks\[0\]: .* has no option 'stp' \(did you mean 'step'\?\)"):
        build_runner(typo, None)


def test_wrappers_pass_the_call_on():
    env = Wrapper(ToyEnv(Windy(), 2))
    env.call("set_push", 3.0)
    assert env.env.toy.push == 3.0
    assert env.call("reset").keys() == {"pos", "vel"}
