"""Mistakes in an environment of one's own: a sentence names the method, its file and line, and what is expected."""

import re
import sys
import textwrap

import broken_tasks
import gymnasium
import pytest
import torch

from gaitway.cli.main import main
from gaitway.core.config import ConfigError, resolve_class
from gaitway.core.user_code import UserCodeError, told
from gaitway.envs.check import check_env, first_problem
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.registry import make_env
from gaitway.envs.tasks.skills.options import SkillConfig

MODULE = "broken_tasks"

TASKS = {
    "NoDraw": ("NoDraw", "has no draw(); write one that returns the start of one episode"),
    "NoOutcome": ("NoOutcome", "has no outcome(); write one that fills reward"),
    "NoObserve": ("NoObserve", "has no observe()"),
    "NoGroups": ("NoGroups", "does not set groups"),
    "NoModel": ("NoModel", "sets neither robot nor model"),
    "GroupsIsOne": ("GroupsIsOne", "write groups = (ObservationGroup(...),)"),
    "MetricsIsText": ("MetricsIsText", "write a tuple of names, ('speed',)"),
    "MetricTwice": ("MetricTwice", "metrics names 'speed' twice"),
    "FlagNoMetric": ("FlagNoMetric", "flags names 'fell_over', which is not among metrics"),
    "NegativeLimit": ("NegativeLimit", "max_episode_steps is -1; use an integer >= 0"),
    "LimitIsText": ("LimitIsText", "max_episode_steps is '20'; use an integer >= 0"),
    "ZeroFrameSkip": ("ZeroFrameSkip", "frame_skip is 0; use an integer >= 1"),
    "UnknownField": ("UnknownField", "MjData does not have (did you mean 'xpos'?)"),
    "LayoutIsList": ("LayoutIsList", "write a mapping from names to shapes"),
    "LayoutShapeIsNumber": ("LayoutShapeIsNumber", "write a tuple, () for one number"),
    "AttachForgetsSuper": ("AttachForgetsSuper.attach", "begin with super().attach(batch)"),
    "ModelRaises": ("ModelRaises.model", "raised ValueError: ParseXML: Error opening file 'nowhere.xml'"),
    "DrawReturnsNothing": ("DrawReturnsNothing.draw", "returned nothing (None); draw returns the start"),
    "DrawReturnsTuple": ("DrawReturnsTuple.draw", "returned a tuple; draw returns"),
    "DrawForgetsGoal": ("DrawForgetsGoal.draw", "returned qpos, qvel and not 'goal'"),
    "DrawForgetsQpos": ("DrawForgetsQpos.draw", "and not 'qpos'"),
    "DrawGivesMore": ("DrawGivesMore.draw", "returned 'load', which layout_shapes does not name"),
    "DrawWrongShape": ("DrawWrongShape.draw", "returned 'qpos' of shape [3], and it is [1]"),
    "DrawNaN": ("DrawNaN.draw", "returned 'qvel' with numbers that are not finite"),
    "DrawText": ("DrawText.draw", "returned 'far' as 'goal'"),
    "DrawRaises": ("DrawRaises.draw", "raised AttributeError: 'DrawRaises' object has no attribute 'gait'"),
    "DrawKeyError": ("DrawKeyError.draw", "raised KeyError: 'gait'; draw returns"),
    "DrawExits": ("DrawExits.draw", "called exit(3)"),
    "OutcomeReturns": ("OutcomeReturns.outcome", "returned an array of shape [2]; outcome fills reward"),
    "OutcomeKeyError": ("OutcomeKeyError.outcome", "'sped' is not among the metrics that the task declares: speed"),
    "OutcomeNewMetric": ("OutcomeNewMetric.outcome", "'height' is not among the metrics"),
    "OutcomeShape": ("OutcomeShape.outcome", "could not broadcast"),
    "OutcomeDividesByZero": ("OutcomeDividesByZero.outcome", "raised ZeroDivisionError"),
    "OutcomeDeep": ("OutcomeDeep.outcome", "in OutcomeDeep.bonus at"),
    "OutcomeArguments": ("OutcomeArguments.outcome", "write def outcome(self, action, reward, terminated, metrics)"),
    "ObserveReturns": ("ObserveReturns.observe", "returned a dict; observe fills out[group]"),
    "ObserveUnknownGroup": ("ObserveUnknownGroup.observe", "'plicy' is not among the groups"),
    "ObserveShape": ("ObserveShape.observe", "could not broadcast"),
    "StartRaises": ("StartRaises.start", "raised RuntimeError: no start today"),
}
"""What is wrong, by the class that does it: whom the sentence names, and what it says."""


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_told_which_method_did_what(name):
    who, said = TASKS[name]
    with pytest.raises(UserCodeError) as raised:
        first_problem(MujocoBatchEnv(getattr(broken_tasks, name)(), 2))
    sentence = str(raised.value)
    assert re.match(rf"{re.escape(who)} \(\S*broken_tasks\.py:\d+", sentence), sentence
    assert said in sentence
    assert "\n" not in sentence


def test_the_line_is_that_of_the_mistake():
    with pytest.raises(UserCodeError, match=r"raised KeyError") as raised:
        first_problem(MujocoBatchEnv(broken_tasks.OutcomeKeyError(), 2))
    line = int(re.search(r"broken_tasks\.py:(\d+)", str(raised.value))[1])
    with open(broken_tasks.__file__) as file:
        assert 'metrics["sped"]' in file.read().splitlines()[line - 1]
    assert isinstance(raised.value.__cause__, KeyError)  # the whole story, for run.log


@pytest.mark.parametrize("name", ["Cart", "AssignsWholeArrays"])
def test_a_sound_task_is_found_sound(name):
    task = getattr(broken_tasks, name)
    assert str(check_env(lambda num_envs, seed: MujocoBatchEnv(task(), num_envs, seed))) == "own/cart: no problem found"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RewardNeverWritten", r"reward of RewardNeverWritten.outcome \(.*broken_tasks.py:\d+\) is never written"),
        ("MetricNeverWritten", r"metric 'speed' of MetricNeverWritten.outcome .* is never written"),
        ("ComponentNeverWritten", r"'v' of observation 'policy' of ComponentNeverWritten.observe .* is never written"),
        ("ObservationNeverWritten", r"observation 'policy' of ObservationNeverWritten.observe .* is never written"),
    ],
)
def test_check_finds_what_is_never_written(name, said):
    task = getattr(broken_tasks, name)
    report = check_env(lambda num_envs, seed: MujocoBatchEnv(task(), num_envs, seed))
    assert len(report.problems) == 1
    assert re.match(said, report.problems[0])


def test_check_tells_a_broken_method_like_training_does(capsys):
    assert main(["check", f"{MODULE}:BrokenCartEnv"]) == 1
    assert "OutcomeKeyError.outcome" in capsys.readouterr().out.replace("\n", " ")


OWN = {
    "ExitingEnv": "ExitingEnv.__init__ (",
    "FewArguments": "got an unexpected keyword argument 'num_threads'; its constructor takes num_envs, seed",
    "WrongNumber": "has num_envs 3, and 64 were asked for",
    "not_an_env": "made a dict; it should make a gaitway.VecEnv",
    "NUMBER": "is 3; name a class or a function that returns a VecEnv",
    "Cart": "is no VecEnv; name a class or function that returns MujocoBatchEnv(task, num_envs, ...)",
    "Rail": "is no VecEnv; register it with gymnasium and use gymnasium:ID",
    "NoSpec": "does not set self.spec; set it to a EnvSpec",
    "StepReturnsTuple": "returned a tuple; it returns a gaitway.envs.vec_env.Step",
    "RewardHasColumn": "the reward has shape [1, 1]; it must be [1]",
    "ResetReturnsTensor": "the observation of reset is a Tensor; it must be a dict of groups",
    "StepRaises": "StepRaises.step (",
    "BrokenCartEnv": "OutcomeKeyError.outcome (",
    "Absent": "has no 'Absent'",
}


@pytest.mark.parametrize("name", OWN)
def test_train_says_it_in_one_sentence_and_leaves_nothing(name, tmp_path, capsys):
    assert main(["train", f"env.id={MODULE}:{name}", f"run_dir={tmp_path / 'run'}"]) == 1
    said = capsys.readouterr().err
    assert OWN[name] in said
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


GYM = {
    "OldStep": ("OldStep.step", "step returns (observation, reward, terminated, truncated, info)"),
    "OldReset": ("OldReset.reset", "reset takes seed= and options= and returns (observation, info)"),
    "ResetWithoutInfo": ("ResetWithoutInfo.reset", "returns (observation, info)"),
    "NoSpaces": ("NoSpaces", "sets observation_space to None"),
    "GymStepRaises": ("GymStepRaises.step", "raised AttributeError"),
    "RewardIsText": ("RewardIsText.step", "returned 5 values (ndarray, str, bool, bool, dict)"),
    "StepReturnsNothing": ("StepReturnsNothing.step", "cannot unpack"),
    "WrongObservation": ("WrongObservation.step", "the observation of observation_space"),
    "GymExits": ("GymExits.step", "called exit(1)"),
    "GymConstructorRaises": ("GymConstructorRaises.__init__", "No such file or directory: 'no_such_file.xml'"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GYM)
@pytest.mark.parametrize("way", ["registered", "factory"])
def test_a_gymnasium_environment_is_told_the_same(name, way):
    who, said = GYM[name]
    source = f"Broken{name}-v0" if way == "registered" else getattr(broken_tasks, name)
    with pytest.raises(UserCodeError) as raised:
        first_problem(GymnasiumEnv(source, 2))
    assert re.match(rf"{re.escape(who)} \(\S*broken_tasks\.py:\d+", str(raised.value)), str(raised.value)
    assert said in str(raised.value) or way == "factory"


@pytest.mark.parametrize("name", ["Rail", "AnsiRail"])
def test_environments_without_pictures_train_without_films(name, tmp_path, capsys):
    arguments = [f"env.id=gymnasium:Broken{name}-v0", "env.num_envs=2", "total_steps=128", "evaluation.episodes=2"]
    arguments += ["video.interval=64", f"run_dir={tmp_path / 'run'}", "env.options={metrics: [is_success]}"]
    assert main(["train", "--quiet", *arguments]) == 0
    assert "made without pictures" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "run"), "--json"]) == 0
    assert '"is_success": 1.0' in capsys.readouterr().out  # true in one of five steps: per episode, not a mean of 0.2
    assert main(["play", str(tmp_path / "run"), "--no-video"]) == 0
    assert not (tmp_path / "run" / "videos").exists()


MODULES = {
    "syntax": ("def f(:\n    pass\n", r"mine\.py:1 is not Python \(invalid syntax\); correct it"),
    "indentation": ("def f():\npass\n", r"mine\.py:2 is not Python \(expected an indented block"),
    "null": ("a = '\0'\n", r"'mine' cannot be imported"),
    "exit": ("import sys\nsys.exit(2)\n", r"mine\.py:2\) called exit\(2\); put what is a program under `if __name__"),
    "exit without a code": ("raise SystemExit\n", r"mine\.py:1\) called exit\(\)"),
    "name": ("x = undefined\n", r"mine\.py:1\) raised NameError: name 'undefined' is not defined"),
    "file": ("open('no_such_file.xml')\n", r"mine\.py:1\) raised FileNotFoundError"),
    "dependency": (
        "import not_installed_anywhere\n",
        r"needs the module 'not_installed_anywhere', which is not",
    ),
    "deep": ("def f():\n    return {}['gait']\nf()\n", r"mine\.py:2\) raised KeyError: 'gait'"),
    "loop": ("def f():\n    f()\nf()\n", r"raised RecursionError"),
}


@pytest.mark.parametrize("case", MODULES)
def test_a_module_that_cannot_be_imported(case, tmp_path, monkeypatch, capsys):
    text, said = MODULES[case]
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    with pytest.raises(ConfigError, match=said):
        resolve_class("mine:Env", "env.id")
    assert main(["train", "env.id=mine:Env", f"run_dir={tmp_path / 'run'}"]) == 1
    said_at_the_terminal = capsys.readouterr().err
    assert said_at_the_terminal.startswith("gaitway: env.id: 'mine' ")
    assert "Traceback" not in said_at_the_terminal
    assert not (tmp_path / "run").exists()


PARTS = """
class Reward:
    name, reads, when, weight = "mine", (), "collected", 1.0
    def __init__(self, **options):
        self.mean = {}["mean"]

class LateReward:
    name, reads, when, weight = "mine", (), "collected", 1.0
    def annotate(self, ws):
        ws["reward/mine"] = self.missing
    def update(self, ws, now):
        return {}
    def state_dict(self):
        return {}
    def load_state_dict(self, state):
        pass
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [("Reward", r"Reward.__init__ \(.*mine_parts\.py:5\) raised KeyError: 'mean'"),
     ("LateReward", r"LateReward.annotate \(.*mine_parts\.py:10\) raised AttributeError")],
)  # fmt: skip
def test_parts_are_told_like_environments(name, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine_parts.py").write_text(textwrap.dedent(PARTS))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine_parts", raising=False)
    arguments = ["env.id=toy/pendulum", "env.num_envs=2", "total_steps=128", f"run_dir={tmp_path / 'run'}"]
    assert main(["train", "--quiet", *arguments, f"rewards=[{{name: 'mine_parts:{name}'}}]"]) == 1
    found = capsys.readouterr().err.splitlines()
    assert re.search(said, found[-1])
    assert not any("Traceback" in line for line in found)
    log = tmp_path / "run" / "run.log"
    if log.exists():  # it began: the whole story stays there
        assert "Traceback" in log.read_text()


def test_errors_of_our_own_pass_unchanged():
    env = make_env("toy/pendulum")
    with pytest.raises(ValueError, match="the action has shape"):
        env.step(torch.zeros(3, 3))
    with pytest.raises(TypeError, match="has no option 'nonsense'") as raised:
        make_env("walker/run", nonsense=1)
    error = raised.value
    assert told(error.with_traceback(error.__traceback__.tb_next)) is None  # below this test no user's function ran


def test_the_constructor_that_dataclass_generates_is_nobodys_code():
    # its file is "<string>" like that of `python -c`; __post_init__ has a file and a line
    with pytest.raises(ValueError) as ours:
        SkillConfig(reward="potentia")
    error = ours.value
    assert told(error.with_traceback(error.__traceback__.tb_next)) is None
    with pytest.raises(ConfigError, match=r"^env.options: reward is 'potentia' \(did you mean 'potential'\?\)"):
        make_env("point/skills", reward="potentia")


def test_a_film_is_asked_of_environments_that_offer_it():
    assert "rgb_array" in gymnasium.make("CartPole-v1").metadata["render_modes"]
    with GymnasiumEnv("CartPole-v1", 1, purpose="evaluation") as env:
        assert env.spec.options["render_mode"] == "rgb_array"
    with GymnasiumEnv("BrokenAnsiRail-v0", 1, purpose="evaluation") as env:
        assert "render_mode" not in env.spec.options
