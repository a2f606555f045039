"""A run made in Python is a run: whole folders, one line to train, one to load, and nothing dropped in silence."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gaitway
from gaitway import (
    CEM,
    DQN,
    PPO,
    SAC,
    ActorCritic,
    ActorCriticConfig,
    CEMConfig,
    DQNConfig,
    EvolutionRunner,
    OffPolicyRunner,
    OnPolicyRunner,
    PPOConfig,
    RunFolder,
    RunnerConfig,
    SACConfig,
    SoftActorCritic,
    ValuePolicy,
    make_env,
)
from gaitway.agents.blocks import Block
from gaitway.cli.main import main
from gaitway.core.agent import Agent
from gaitway.core.config import ConfigError
from gaitway.core.files import StateFileError
from gaitway.envs.wrappers import Wrapper
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.run_folder import RunFolderError

ROOT = Path(__file__).parents[2]
SMALL = RunnerConfig(total_steps=256, evaluation=EvaluationConfig(episodes=2, stochastic=False))
PPO_SMALL = PPOConfig(rollout_steps=16, minibatches=2, epochs=1)


def make_twin(purpose: str, number: int):
    return make_env("toy/pendulum", number, purpose=purpose)


def ppo(folder: Any = None, *, terms=(), env=None, config: RunnerConfig = SMALL, policy=None, **parts: Any):
    env = env or make_env("toy/pendulum", num_envs=8, seed=1)
    policy = policy or ActorCritic(env.spec, generator=torch.Generator().manual_seed(0))
    algorithm = PPO(policy, PPO_SMALL, num_envs=8, terms=terms)
    return OnPolicyRunner(env, algorithm, config, folder=folder, **parts)


@pytest.fixture(autouse=True)
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "mine"
    ppo(path, make_env=make_twin).learn()
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


# --- whole folders --------------------------------------------------------------------------------------------------


def test_a_folder_of_a_runner_is_whole(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.yaml", "contract.json", "code.json", "fingerprint.json", "checkpoints", "metrics.jsonl"} <= names
    assert json.loads((trained / "code.json").read_text())["versions"]
    assert RunFolder.open(trained).origin().is_person


COMMANDS = (
    ["eval", "RUN", "--episodes", "2"],
    ["info", "RUN"],
    ["play", "RUN", "--no-video"],
    ["plot", "RUN"],
    ["collect", "RUN", "--steps", "20", "--out", "data"],
    ["resume", "RUN", "more=128"],
    ["compare", "RUN", "OTHER"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_takes_it(at: Path, trained: Path, command: list[str]) -> None:
    for name in ("RUN", "OTHER"):
        shutil.copytree(trained, at / name, symlinks=True)
    assert main(list(command)) == 0


def test_run_folder_create_does_as_well(at: Path) -> None:
    runner = ppo(RunFolder.create("runs/mine"))
    runner.learn()
    assert main(["info", "runs/mine"]) == 0
    assert main(["resume", "runs/mine", "more=128"]) == 0


def sac(folder: str):
    env = make_env("toy/pendulum", num_envs=2)
    config = SACConfig(replay_size=200, batch_size=16, learning_starts=64, iteration_steps=64)
    policy = SoftActorCritic(env.spec)
    return OffPolicyRunner(env, SAC(policy, config, num_envs=2), RunnerConfig(total_steps=128), folder=folder)


def dqn(folder: str):
    env = make_env("toy/cartpole", num_envs=2, max_episode_steps=50)
    config = DQNConfig(replay_size=200, batch_size=16, learning_starts=64, iteration_steps=64)
    return OffPolicyRunner(
        env, DQN(ValuePolicy(env.spec), config, num_envs=2), RunnerConfig(total_steps=128), folder=folder
    )


def cem(folder: str):
    def make(purpose: str, number: int):
        return make_env("toy/cartpole", number, purpose=purpose, max_episode_steps=20)

    env = make("train", 1)
    algorithm = CEM(
        ActorCritic(env.spec, ActorCriticConfig(normalise_observations=False)),
        CEMConfig(population=4, episodes=1),
        num_envs=1,
    )
    return EvolutionRunner(env, algorithm, RunnerConfig(total_steps=50), folder=folder, make_env=make)


@pytest.mark.parametrize("make", [sac, dqn, cem])
def test_the_same_of_other_runners(make: Callable[[str], Any]) -> None:
    make("runs/mine").learn()
    assert main(["eval", "runs/mine", "--episodes", "1"]) == 0
    assert main(["resume", "runs/mine", "more=64"]) == 0
    assert gaitway.load("runs/mine", "last").steps > 50


def test_options_wrappers_and_the_evaluation_environment_are_written() -> None:
    wrappers = [{"name": "time", "into": "age"}]
    env = make_env("toy/pendulum", num_envs=8, max_episode_steps=30, wrappers=wrappers)

    def twin(purpose: str, number: int):
        return make_env("toy/pendulum", number, purpose=purpose, max_episode_steps=10, wrappers=wrappers)

    ppo("runs/mine", env=env, make_env=twin).learn()
    config = RunFolder.open("runs/mine").read_config()
    assert config["env"]["options"] == {"max_episode_steps": 30}
    assert config["env"]["wrappers"] == wrappers
    assert config["evaluation"]["env"] == {"options": {"max_episode_steps": 10}}
    assert config["objects"] == []
    assert gaitway.load("runs/mine").evaluate(2)["length"] == 10


def test_a_command_goes_on_as_the_program_would(at: Path) -> None:
    config = RunnerConfig(total_steps=256, seed=3)
    ppo("a", config=config).learn()
    shutil.copytree("a", "b", symlinks=True)
    other = ppo(RunFolder.open("a"), config=config)
    other.resume()
    other.learn(128)
    assert main(["resume", "b", "more=128"]) == 0
    assert gaitway.load("b", "last").steps == 384
    states = [gaitway.load(path, "last").policy.state_dict() for path in ("a", "b")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_run_that_is_there_is_left_alone(at: Path, trained: Path) -> None:
    before = content(trained)
    with pytest.raises(RunFolderError, match="holds a run already"):
        ppo(trained)
    assert content(trained) == before


def test_a_run_that_a_program_trains_is_held(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = ppo("runs/mine")
    with runner.folder.training(), runner.folder.training():  # twice here is fine
        script = f"import sys; from gaitway.cli.main import main; sys.exit(main(['resume', {str(at / 'runs/mine')!r}]))"
        runner.learn()
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.returncode != 0
    assert "is being trained by another process" in found.stderr


# --- objects without a name -----------------------------------------------------------------------------------------


class Effort:
    name, reads, coef = "effort", (), 0.01

    def __call__(self, batch, now):
        return batch["new/mean"].square().mean(), {}


class Bonus:
    name, reads, weight, when = "bonus", ("env/obs/pos",), 0.1, "collected"

    def annotate(self, ws):
        ws["reward/bonus"] = ws["env/obs/pos"][: ws.T, :, 0]

    def update(self, ws, now):
        return {}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """Nothing is learnt."""


class Double(Agent):
    reads, writes = ("action",), ("action",)

    def step(self, ws, t):
        ws.put("action", t, 2.0 * ws.at("action", t))


class Counter(Agent):
    reads, writes, plays = ("env/obs/pos",), ("count",), False

    def step(self, ws, t):
        ws.put("count", t, ws.at("env/obs/pos", t)[:, 0])


class Watch:
    def after_iteration(self, moment):
        """Looks on."""


class Waves(Block):
    def __init__(self):
        super().__init__(("pos",), "waves", size=2)

    def forward(self, x):
        return x.sin()


class OwnPolicy(ActorCritic):
    pass


class Hidden(Wrapper):
    pass


def spec():
    return make_env("toy/pendulum").spec


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


OBJECTS: dict[str, tuple[Callable[[], dict[str, Any]], str, bool]] = {
    "term": (lambda: {"terms": [Effort()]}, f"term {__name__}:Effort", True),
    "reward": (lambda: {"rewards": [Bonus()]}, f"reward {__name__}:Bonus", True),
    "cast": (lambda: {"cast": [Double()]}, f"cast {__name__}:Double", False),
    "watcher": (lambda: {"cast": [Counter()]}, f"watcher {__name__}:Counter", True),
    "callback": (lambda: {"callbacks": [Watch()]}, f"callback {__name__}:Watch", True),
    "block": (lambda: {"policy": ActorCritic(spec(), blocks=[Waves()])}, f"block {__name__}:Waves", False),
    "network": (lambda: {"policy": ActorCritic(spec(), actor=network())}, "network torch.nn.modules.container:", False),
    "policy": (lambda: {"policy": OwnPolicy(spec())}, f"policy {__name__}:OwnPolicy", False),
    "env": (lambda: {"env": Hidden(make_env("toy/pendulum", 8))}, f"env {__name__}:Hidden", False),
}
"""Parts of a runner, how they are recorded, and whether the run can be evaluated without them."""


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_has_no_name_is_recorded_and_resume_refuses(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, recorded, can_be_evaluated = OBJECTS[kind]
    ppo("runs/mine", **make()).learn()
    (found,) = RunFolder.open("runs/mine").read_config()["objects"]
    assert found.startswith(recorded)
    before = content(Path("runs/mine"))
    assert main(["resume", "runs/mine", "more=128"]) != 0
    said = capsys.readouterr().err
    assert len([line for line in said.splitlines() if line.startswith("gaitway: ")]) == 1
    assert "Traceback" not in said
    assert f"the {recorded}" in said
    assert "runner.resume()" in said
    assert content(Path("runs/mine")) == before
    assert (main(["eval", "runs/mine", "--episodes", "1"]) == 0) is can_be_evaluated
    said = capsys.readouterr().err
    assert can_be_evaluated or f"the {recorded}" in said
    assert main(["info", "runs/mine"]) == 0
    assert recorded in capsys.readouterr().out
    assert content(Path("runs/mine")) == before


@pytest.mark.parametrize("kind", [kind for kind in OBJECTS if kind not in ("network", "block", "policy")])
def test_a_program_goes_on_with_the_same_objects_alone(kind: str) -> None:
    make, recorded, _ = OBJECTS[kind]
    ppo("runs/mine", **make()).learn()
    with pytest.raises(ValueError, match=re.escape(recorded)):
        ppo(RunFolder.open("runs/mine")).resume()
    runner = ppo(RunFolder.open("runs/mine"), **make())
    assert runner.resume() == 256
    runner.learn(128)


def test_an_environment_without_a_name_still_gives_its_policy() -> None:
    runner = ppo("runs/mine", env=Hidden(make_env("toy/pendulum", 8)))
    runner.learn()
    run = gaitway.load("runs/mine")
    obs = make_env("toy/pendulum", 3).reset()
    assert torch.equal(run.act(obs), runner.inference_policy()(obs))
    with pytest.raises(ConfigError, match="its environment cannot be made"):
        run.evaluate(1)


def test_the_command_line_cannot_claim_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "env.id=toy/pendulum", "objects=['term x:Y']", "run_dir=runs/x"]) != 0
    assert "the term x:Y" in capsys.readouterr().err
    assert not Path("runs").exists()


# --- gaitway.train --------------------------------------------------------------------------------------------------

QUICK = {
    "env": {"id": "toy/pendulum", "num_envs": 8},
    "algorithm": {"rollout_steps": 16, "minibatches": 2, "epochs": 1},
    "total_steps": 256,
    "evaluation": {"episodes": 2, "stochastic": False},
}


def test_train_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run = gaitway.train(run_dir="runs/x", **QUICK, **{"algorithm.gamma": 0.97})
    assert "100.0%" in capsys.readouterr().out  # progress is shown
    assert (run.path, run.steps, run.config.algorithm.gamma) == (Path("runs/x"), 256, 0.97)
    assert "gamma: 0.97  # gaitway.train" in (run.path / "config.yaml").read_text()
    summary = json.loads((run.path / "summary.json").read_text())
    assert run.evaluate()["return"] == pytest.approx(summary["best"]["return"], rel=1e-12)


def test_a_program_and_the_command_line_make_the_same_run(at: Path) -> None:
    gaitway.train("ppo_pendulum", total_steps=np.int64(2048), run_dir="a", quiet=True, evaluation={"episodes": 1})
    words = ["experiment=ppo_pendulum", "total_steps=2048", "run_dir=b", "evaluation.episodes=1"]
    assert main(["train", "--quiet", *words]) == 0
    configs = [RunFolder.open(path).read_config() | {"run_dir": ""} for path in ("a", "b")]
    assert configs[0] == configs[1]
    states = [gaitway.load(path).policy.state_dict() for path in ("a", "b")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_file_and_another_algorithm() -> None:
    Path("mine.yaml").write_text("env: {id: toy/pendulum, num_envs: 2}\ntotal_steps: 128\n")
    small = {"replay_size": 200, "batch_size": 16, "learning_starts": 64, "iteration_steps": 64}
    run = gaitway.train("mine.yaml", algorithm={"name": "sac", **small}, quiet=True, evaluation={"episodes": 1})
    assert run.config.algorithm.name == "sac"
    assert run.path.parent == Path("runs")
    again = gaitway.train("mine.yaml", algorithm="a2c", quiet=True, total_steps=40, evaluation={"episodes": 1})
    assert again.config.algorithm.name == "a2c"


BAD_SETTINGS: list[tuple[Any, dict[str, Any], str]] = [
    ("ppo_wakler_run", {}, "ppo_walker_run"),
    ("missing.yaml", {}, "missing.yaml"),
    (3, {}, "experiment is 3"),
    (None, {"totl_steps": 3}, "total_steps"),
    (None, {"total_steps": "many"}, "total_steps"),
    (None, {"total_steps": -1}, "total_steps"),
    (None, {"algorithm": "pop"}, "ppo"),
    (None, {"algorithm": {"gama": 0.9}}, "gamma"),
    (None, {"algorithm.clip": math.nan}, "clip"),
    (None, {"env": {"id": "walkr/run"}}, "walker/run"),
    (None, {"callbacks": [Watch()]}, "callbacks"),
    (None, {"rewards": [{"name": Bonus}]}, "rewards"),
    (None, {"env": make_env}, "env"),
    (None, {"device": "gpu"}, "device"),
    (None, {"quiet": "yes"}, "quiet"),
    (None, {"seed": 1.5}, "seed"),
]


@pytest.mark.parametrize(("experiment", "settings", "words"), BAD_SETTINGS)
def test_mistakes_in_settings_leave_nothing_behind(at: Path, experiment: Any, settings: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(words)) as caught:
        gaitway.train(experiment, run_dir="runs/x", **settings)
    assert str(at) not in str(caught.value)
    assert "/tmp" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert list(at.iterdir()) == []


def test_a_folder_that_is_taken(at: Path, trained: Path) -> None:
    before = content(trained)
    with pytest.raises(RunFolderError, match="holds a run already"):
        gaitway.train(run_dir=str(trained), **QUICK, quiet=True)
    assert content(trained) == before


# --- gaitway.load ---------------------------------------------------------------------------------------------------


def test_load_predict_act_evaluate_policy(trained: Path) -> None:
    run = gaitway.load(trained)
    obs = make_env("toy/pendulum", 4, purpose="evaluation").reset()
    many = run.act(obs)
    for row in range(4):
        one = {name: value[row] for name, value in obs.items()}
        limits = run.spec.action
        assert run.predict(one) == pytest.approx(many[row].clamp(limits.low[0], limits.high[0]).numpy(), abs=1e-6)
        lists = {name: value.tolist() for name, value in one.items()}
        assert run.predict(lists) == pytest.approx(run.predict(one), abs=1e-6)
    assert isinstance(run.policy, ActorCritic)
    assert "toy/pendulum" in repr(run)
    assert set(run.evaluate(2)) >= {"return", "length", "episodes", "steps"}
    noisy = [run.predict(one, stochastic=True) for _ in range(2)]
    assert noisy[0] != noisy[1]


def test_a_fresh_process_predicts_the_runs_own_evaluation(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    script = f"""
import gaitway
run = gaitway.load({str(trained)!r})
total = 0.0
for seed in range(2):
    env = gaitway.make_env("toy/pendulum", 1, seed=[seed], purpose="evaluation")
    obs = env.reset(seed=[seed])
    run.reset()
    import torch
    for _ in range(200):
        action = run.predict({{name: value[0] for name, value in obs.items()}})
        step = env.step(torch.as_tensor(action)[None])
        obs, total = step.obs, total + float(step.reward[0])
print(repr(total / 2), repr(run.evaluate()["return"]))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    by_hand, evaluated = map(float, found.stdout.split())
    assert evaluated == pytest.approx(summary["best"]["return"], rel=1e-12)
    assert by_hand == pytest.approx(evaluated, rel=1e-5)


BAD_OBSERVATIONS: list[tuple[Any, str]] = [
    ({"pos": [math.nan, 0.0], "vel": [0.0]}, "nan in 'cos'"),
    ({"pos": [1.0, math.inf], "vel": [0.0]}, "inf in 'sin'"),
    ({"pos": [1.0, 0.0], "vel": [-math.inf]}, "-inf"),
    ({"pos": np.full(2, np.nan), "vel": [0.0]}, "nan"),
    ({"pos": torch.full((2,), torch.nan), "vel": [0.0]}, "nan"),
    ({"pos": "upright", "vel": [0.0]}, "'upright'"),
    ({"pos": ["a", "b"], "vel": [0.0]}, "list of numbers"),
    ({"pos": np.array(["a", "b"]), "vel": [0.0]}, "list of numbers"),
    ({"pos": b"ab", "vel": [0.0]}, "'pos'"),
    ({"pos": None, "vel": [0.0]}, "None"),
    ({"pos": object(), "vel": [0.0]}, "object"),
    ({"pos": [[1.0], [2.0, 3.0]], "vel": [0.0]}, "'pos'"),
    ({"pos": [1j, 0.0], "vel": [0.0]}, "complex"),
    ({"pos": [1.0, 0.0, 0.0], "vel": [0.0]}, "[3]"),
    ({"pos": [[1.0, 0.0]], "vel": [0.0]}, "batch axis"),
    ({"pos": [1.0, 0.0]}, "vel"),
    ({}, "pos"),
    ("upright", "groups"),
    ([1.0, 0.0, 0.0], "groups"),
    (math.nan, "groups"),
    (None, "groups"),
]


@pytest.mark.parametrize(("observation", "words"), BAD_OBSERVATIONS)
def test_what_is_no_observation_is_refused(trained: Path, observation: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)) as caught:
        gaitway.load(trained).predict(observation)
    assert words in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


BAD_BATCHES: list[tuple[Any, str]] = [
    ({"pos": torch.full((3, 2), torch.nan), "vel": torch.zeros(3, 1)}, "nan in 'cos'"),
    ({"pos": "text", "vel": torch.zeros(3, 1)}, "'text'"),
    ({"pos": torch.zeros(2), "vel": torch.zeros(1)}, "predict()"),
    ({"pos": torch.zeros(3, 2)}, "vel"),
    (torch.zeros(3, 3), "mapping of groups"),
    ("text", "mapping of groups"),
]


@pytest.mark.parametrize(("observations", "words"), BAD_BATCHES)
def test_the_same_of_many(trained: Path, observations: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError), match=re.escape(words)):
        gaitway.load(trained).act(observations)


def test_raw_observations_of_gymnasium(at: Path) -> None:
    import gymnasium

    small = {"rollout_steps": 16, "minibatches": 2, "epochs": 1}
    env = {"id": "gymnasium:CartPole-v1", "num_envs": 2}
    run = gaitway.train(env=env, algorithm=small, total_steps=64, evaluation={"episodes": 1}, quiet=True)
    single = gymnasium.make("CartPole-v1")
    observation, _ = single.reset(seed=0)
    assert run.predict(observation, env=single) in (0, 1)
    assert run.predict(observation) == run.predict(observation, env=single)
    for bad in (np.full(4, np.nan, np.float32), "text"):
        with pytest.raises(ValueError, match="observation"):
            run.predict(bad, env=single)


BAD_RUNS: list[tuple[Any, dict[str, Any], str]] = [
    ("nowhere", {}, "no folder nowhere"),
    (".", {}, "not a run folder"),
    (3, {}, "name its folder"),
    (None, {}, "name its folder"),
    ("TRAINED", {"checkpoint": "worst"}, "worst"),
    ("TRAINED", {"checkpoint": 7}, "7"),
    ("TRAINED", {"checkpoint": "../x"}, "../x"),
    ("TRAINED", {"device": "gpu"}, "gpu"),
    ("TRAINED", {"trust": ["not a module"]}, "not a module"),
]


@pytest.mark.parametrize(("run", "options", "words"), BAD_RUNS)
def test_what_cannot_be_loaded(trained: Path, run: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError, StateFileError)) as caught:
        gaitway.load(trained if run == "TRAINED" else run, **options)
    assert words in str(caught.value)


def test_a_run_from_elsewhere_imports_nothing(at: Path, trained: Path) -> None:
    shutil.copytree(trained, at / "run", symlinks=True)
    Path("evil.py").write_text("open('ran', 'w').close()\n")
    text = (at / "run" / "config.yaml").read_text()
    (at / "run" / "config.yaml").write_text(text.replace("cast: []", "").rstrip() + "\ncast: [{name: 'evil:Part'}]\n")
    with pytest.raises(ValueError, match="evil"):
        gaitway.load("run")
    assert not Path("ran").exists()


@pytest.mark.parametrize("episodes", [0, -1, 1.5, "many", True])
def test_numbers_of_episodes(trained: Path, episodes: Any) -> None:
    with pytest.raises(ValueError, match="episodes is"):
        gaitway.load(trained).evaluate(episodes)


# --- learn ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [-1, "many", "128", 1.5, math.nan, math.inf, -math.inf, 1e300, True, [64], {}, b"1"])
def test_numbers_of_steps(steps: Any) -> None:
    runner = ppo("runs/mine")
    with pytest.raises(ValueError, match="whole number of environment steps") as caught:
        runner.learn(steps)
    assert repr(steps) in str(caught.value)
    assert runner.env_steps == 0
    assert not Path("runs/mine/config.yaml").exists()


@pytest.mark.parametrize(("steps", "reached"), [(0, 0), (128, 128), (128.0, 128), (np.int64(128), 128), (None, 256)])
def test_steps_that_are_numbers(steps: Any, reached: int) -> None:
    runner = ppo()
    runner.learn(steps)
    assert runner.env_steps == reached


# --- README ---------------------------------------------------------------------------------------------------------


def test_readmes_examples_show_progress_and_leave_runs(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "README.md").read_text().split("## As a library")[1]
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert len(blocks) == 2
    for block in blocks:
        assert block.count("1_000_000") == 1
        exec(compile(block.replace("1_000_000", "4096"), "README.md", "exec"), {})
        assert "100.0%" in capsys.readouterr().out
    for folder in ("runs/walker", "runs/mine"):
        for command in COMMANDS[:5]:
            assert (
                main(
                    [folder if word == "RUN" else word for word in command if word != "data"]
                    + ["data" + folder[5:]] * ("data" in command)
                )
                == 0
            )


def test_importing_stays_light() -> None:
    script = "import sys, gaitway; print(sorted({'torch', 'hydra', 'mujoco', 'pandas', 'rich'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
