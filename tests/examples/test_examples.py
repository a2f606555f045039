"""Every example runs, does what it says, fits a page and is listed; what does not learn is noticed."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from forked_commands import Commands

from gaitway import make_env
from gaitway.analysis.figures import finish
from gaitway.envs.tasks.skills.goal_spaces import POINT_BODY
from gaitway.runners.evaluate import EvaluationConfig, evaluate

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MAX_LINES = 90

GAINS = {
    "frames_a2c": 100.0,
    "frames_ddpg": 300.0,
    "frames_dqn": 60.0,
    "frames_ppo": 100.0,
    "frames_reinforce": 10.0,
    "frames_sac": 300.0,
    "frames_td3": 100.0,
    "own_agent": 10.0,
    "own_algorithm": 40.0,
    "own_environment": 10.0,
    "own_robot": 70.0,
    "reinforce": 10.0,
    "two_processes": 100.0,
}
"""By how much the last return that is printed must exceed the first; about a third of what they reach, or less."""
SLOW = {
    "comparison",
    "frames_a2c",
    "frames_ddpg",
    "frames_dqn",
    "frames_sac",
    "frames_td3",
    "own_algorithm",
    "own_robot",
    "population",
    "three_levels",
    "two_processes",
}
"""Those that need more than five seconds."""


STARTED_ANEW = {"population", "two_processes"}
"""Those whose own processes begin with their file."""


@pytest.fixture(scope="module")
def commands():
    with Commands() as commands:
        yield commands


def run(commands: Commands, script: Path, folder: Path, *arguments: str) -> str:
    """What the script prints with `--quick`, run from an empty folder, in which it leaves nothing unasked."""
    folder.mkdir()
    if script.stem in STARTED_ANEW:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(script), "--quick", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        code, said = done.returncode, done.stdout + done.stderr
    else:
        job = commands.start(folder, "--quick", *arguments, script=script, said=folder.parent / "said")
        code, said = job.wait(300), job.said
    assert code == 0, said
    assert "Warning" not in said
    assert sorted(os.listdir(folder)) == sorted(arguments)
    return said


def numbers(pattern: str, text: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, text)]


def assert_gain(name: str, printed: str) -> None:
    returns = numbers(r"return (-?[\d.]+)", printed)
    assert len(returns) >= 2, printed
    assert returns[-1] - returns[0] >= GAINS[name], printed


def check_frames_conversion(printed: str, folder: Path) -> None:
    # 250 frames are 249 pairs of neighbours; an episode of Pendulum has 200 steps, so one pair is a reset: 2 * 248
    assert "are 496 steps" in printed
    assert re.findall(r": (True|False)", printed) == ["True"] * 3


def check_own_agent(printed: str, folder: Path) -> None:
    assert re.search(r"^speed +Speeds +Policy$", printed, re.MULTILINE), "the table of who writes and who reads"


def check_own_environment(printed: str, folder: Path) -> None:
    assert "docking: no problem found" in printed


def check_own_robot(printed: str, folder: Path) -> None:
    assert "own/balance: no problem found" in printed
    assert numbers(r"fell ([\d.]+)", printed) == [1.0, 0.0]


def check_two_processes(printed: str, folder: Path) -> None:
    played, learnt = re.search(r"process (\d+) played, process (\d+) learnt", printed).groups()
    assert played != learnt


def check_population(printed: str, folder: Path) -> None:
    fitness = numbers(r"(\d+)", printed.splitlines()[0])
    assert fitness[-1] - fitness[0] >= 20, printed
    assert "the same in this process: True" in printed


def check_dataset_training(printed: str, folder: Path) -> None:
    assert "4000 steps in" in printed
    teacher, clone, control = numbers(r"return (\d+)", printed)
    assert teacher == 500
    assert clone >= 300
    assert control <= 100, "actions that have nothing to do with the observations teach nothing"


def check_comparison(printed: str, folder: Path) -> None:
    (a2c,), (ppo,) = (numbers(rf"{name}: interquartile mean (\d+)", printed) for name in ("a2c", "ppo"))
    assert ppo > a2c + 50
    p_values = numbers(r"test: p = ([\d.e-]+)", printed)
    assert len(p_values) == 2
    assert max(p_values) < 0.05
    assert numbers(r"different at (\d+) of 5 evaluations", printed)[0] >= 1
    assert "ppo is higher than a2c" in printed
    assert len(list((folder / "runs").glob("*/*/metrics.jsonl"))) == 10
    assert (folder / "runs" / "comparison.png").read_bytes().startswith(b"\x89PNG")


def check_three_levels(printed: str, folder: Path) -> None:
    assert "skills: 8,000 steps without a task" in printed
    (score,), evaluated = numbers(r"score ([\d.]+) of 19", printed), numbers(r"last .* score ([\d.]+)", printed)
    assert score == pytest.approx(evaluated[-1], abs=0.06)  # what is printed has one digit; the run's own has four
    groups = re.search(r"decided on most: ([\d,]+)$", printed, re.MULTILINE).group(1).split(",")
    assert set(groups) <= set("0123")
    assert groups == sorted(set(groups))
    assert (folder / "pictures" / "three_levels.png").read_bytes().startswith(b"\x89PNG")


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}
ARGUMENTS = {"comparison": ["runs"], "three_levels": ["pictures"]}


@pytest.mark.parametrize(
    "script",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else []) for path in EXAMPLES],
)
def test_example_does_what_it_says(script, tmp_path, commands):
    name = script.stem
    printed = run(commands, script, tmp_path / "here", *ARGUMENTS.get(name, []))
    assert name in GAINS or name in CHECKS, f"say here what {script.name} must print, in GAINS or as check_{name}"
    if name in GAINS:
        assert_gain(name, printed)
    if name in CHECKS:
        CHECKS[name](printed, tmp_path / "here")


def test_an_example_that_learns_nothing_fails(tmp_path, commands):
    broken = tmp_path / "broken.py"
    text = (ROOT / "examples" / "reinforce.py").read_text()
    assert text.count("lr=3e-3") == 1
    broken.write_text(text.replace("lr=3e-3", "lr=0.0"))
    printed = run(commands, broken, tmp_path / "here")
    with pytest.raises(AssertionError):
        assert_gain("reinforce", printed)


class Ducking:
    """Goes along x below the bars; decides every five steps on x alone, and behind 2 m on x and z."""

    interface = SimpleNamespace(space=POINT_BODY, subsets=("1", "0", "0,2"), num_subsets=3)

    def initial_state(self, count, device):
        return torch.zeros(count, 2)

    def act(self, obs, state, stochastic):
        phase, space = state.T
        space = torch.where(phase == 0, 1.0 + (obs["goal_space"][:, 0] >= 2.0), space)
        return self(obs), torch.stack(((phase + 1) % 5, space), -1)

    def __call__(self, obs):
        _, _, z, heading = obs["goal_space"].T
        speed = 0.3 + 0.1 * heading  # which no episode changes: they differ in how far they get
        return torch.stack((speed, 0 * z, torch.where(z > 0.3, -0.4, 0.0), 0 * z), -1)

    def reset(self, mask=None):
        """Its actions depend on what is seen alone."""


def test_three_levels_tells_score_and_goal_spaces_of_the_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("three_levels")
    run, seeds = SimpleNamespace(policy=Ducking()), example.EPISODES
    where, chosen, score = example.decisions(run)
    with make_env(example.COURSE, num_envs=seeds, purpose="evaluation") as env:
        expected = evaluate(env, lambda stochastic: run.policy, EvaluationConfig(episodes=seeds, stochastic=False))
    assert expected["length"] == 200
    assert 3 < score <= 19
    assert score == pytest.approx(expected["score"])
    assert len(where) == seeds * 200 // 5
    assert where.max() > 3
    assert ((where >= 2.0) == (chosen == 2)).all()
    assert ((where < 2.0) == (chosen == 1)).all()

    drawn = []
    monkeypatch.setattr(example, "finish", lambda figure, path: (drawn.append(figure), finish(figure, path=path)))
    example.draw(run, where, chosen, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    share = {bars.get_label(): {bar.get_x(): bar.get_height() for bar in bars} for bars in axes.containers}
    assert {text.get_text() for text in axes.get_legend().get_texts()} == set(share)
    visited = set(np.floor(where / example.BIN) * example.BIN)
    assert share["x"] == {x: float(x in visited and x < 2.0) for x in share["x"]}
    assert share["x, z"] == {x: float(x in visited and x >= 2.0) for x in share["x"]}
    assert not any(share["others"].values())


def test_the_own_robot_is_made_by_its_id_and_differs_by_instance(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    with make_env("own_robot:OwnRobotEnv", num_envs=3, seed=1) as env:
        obs, critic = env.reset(), env.spec.group("critic")
        assert {name: tuple(values.shape) for name, values in obs.items()} == {"policy": (3, 4), "critic": (3, 7)}
        assert (obs["critic"][:, :4] == obs["policy"]).all()
        assert env.spec.metrics == ("upright", "tracking", "effort", "speed", "fell", "physics_error")
        for instance in range(3):
            model = env.task.batch.get_model(instance)
            load, strength = (float(obs["critic"][instance, critic.columns(name)]) for name in ("load", "strength"))
            assert model.body("load").mass[0] == pytest.approx(load)
            assert model.actuator("wheels").gear[0] == pytest.approx(3.0 * strength)
            # 0.6 kg of mast and 0.7 kg of wheels; MuJoCo derives what hangs on a body
            assert model.body_subtreemass[0] == pytest.approx(1.3 + load)
        assert len(set(obs["critic"][:, critic.columns("load")].flatten().tolist())) == 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_fits_a_page_and_begins_with_its_command(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None
    assert re.search(rf"^    python examples/{path.name}\b", docstring, re.MULTILINE)
    assert "def main(quick: bool = False" in text


@pytest.mark.parametrize("page", ["examples/README.md", "docs/examples.md"])
def test_pages_list_every_example_and_no_other(page):
    listed = set(re.findall(r"^\| .*?`(\w+\.py)`", (ROOT / page).read_text(), re.MULTILINE))
    assert listed == {path.name for path in EXAMPLES}


def test_the_page_shows_the_code_of_the_example():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "examples.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    assert blocks[0] in (ROOT / "examples" / "reinforce.py").read_text()
