"""Every Python block of README.md and docs/*.md runs, and every `gaitway` command line in them is understood.

Blocks run page by page, in a folder of their own, after what `documentation_setup.py` says is given; training stops
after an iteration. Command lines go through the parser, and those of `train` are composed into a configuration.
"""

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import pytest
from documentation_setup import ELSEWHERE, SETUP, SHORTER

import gaitway
from gaitway.cli.compose_run import compose_run
from gaitway.cli.from_run import Base
from gaitway.cli.main import parse, parser
from gaitway.cli.presets import list_experiments
from gaitway.cli.train_config import TrainConfig, choices
from gaitway.core.config import to_config
from gaitway.core.trust import Origin
from gaitway.envs.tasks.skills.goal_spaces import GOAL_SPACES
from gaitway.runners.runner import Runner

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
STEPS = 64
"""Environment steps of a training: an iteration, whatever the page says."""


class Block(NamedTuple):
    language: str
    text: str
    line: int


def blocks(text: str) -> list[Block]:
    return [Block(m[1], m[2], text[: m.start()].count("\n") + 2) for m in FENCE.finditer(text)]


def python_blocks(page: str) -> list[Block]:
    return [block for block in blocks((ROOT / page).read_text(encoding="utf-8")) if block.language == "python"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that ends after an iteration, evaluations of two short episodes."""
    learn, train = Runner.learn, gaitway.train

    def learn_a_little(self: Runner, steps: int | None = None, trial: Any = None) -> dict[str, Any]:
        return learn(self, min(STEPS, self.config.total_steps if steps is None else steps), trial)

    def train_a_little(experiment: Any = None, **settings: Any) -> Any:
        return train(experiment, quiet=True, **{"evaluation": {"episodes": 2, "max_steps": 8}, **settings})

    monkeypatch.setattr("gaitway.cli.training.plot_run", lambda folder: [])
    monkeypatch.setattr("gaitway.envs.tasks.skills.goal_spaces.GOAL_SPACES", dict(GOAL_SPACES))
    monkeypatch.setattr(Runner, "learn", learn_a_little)
    monkeypatch.setattr(gaitway, "train", train_a_little)


def is_run(page: str) -> bool:
    """Whether a page has blocks that are run for it; those of the first page of the site are those of the README."""
    found, first = python_blocks(page), [block.text for block in python_blocks("README.md")]
    is_repeated = page != "README.md" and all(block.text in first for block in found)
    return bool(found) and not is_repeated and page not in ELSEWHERE


@pytest.mark.parametrize("page", [page for page in PAGES if is_run(page)])
def test_python_blocks_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.syspath_prepend(str(tmp_path))
    mpl.use("Agg")
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(tmp_path / "page.py")}
    for number, block in enumerate(python_blocks(page)):
        given = SETUP.get(page, {}).get(number, "")
        exec(compile(given, f"set-up of {page}, block {number}", "exec"), names)
        text = block.text
        for word, other in SHORTER.get(page, {}).items():
            text = text.replace(word, other)
        exec(compile("\n" * (block.line - 1) + text, str(ROOT / page), "exec"), names)
    for value in names.values():
        if isinstance(value, Runner):
            value.close()


@pytest.mark.parametrize("page", list(ELSEWHERE))
def test_other_blocks_are_python(page: str) -> None:
    for block in python_blocks(page):
        compile(block.text, f"{page}, line {block.line}", "exec")


# command lines

PLACEHOLDERS = {"N": "3", "WHAT": "envs", "0..9": "0..9", "M": "return", "NAME": "welch"}
"""What stands for a value -> a value."""
NOT_COMPOSED = ("config=", "experiment=NAME", "algorithm.name=mine:", "key=", "init_from.run=", "agent.skills=")
"""Arguments that name files and modules of the reader."""
ANYTHING = ("device=cuda", "run_dir=", "seed=", "total_steps=")
"""Arguments that every page has, and that need not be tried again and again."""


def command_lines(page: str) -> Iterator[str]:
    """Every line that begins with `gaitway`: of blocks without their comments, and between backticks."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in blocks(text):
        if block.language != "python":
            for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
                found = re.match(r"(?:\$ |\w+=\S+ |srun |\s)*(gaitway .*)", line)
                if found:
                    yield re.split(r"\s{3,}|\s+#|\s[|&]", found[1] + " ")[0].strip()
    for quoted in re.findall(r"`([^`]+)`", FENCE.sub("", text)):
        if quoted.startswith("gaitway "):
            yield " ".join(quoted.split())


@functools.cache
def defaults() -> Base:
    return Base(to_config(TrainConfig()), choices(), Origin())


@functools.cache
def composed(arguments: tuple[str, ...]) -> None:
    """Refuse arguments of `train` that make no configuration; a preset alone must exist, its own tests compose it."""
    if len(arguments) == 1 and arguments[0].startswith("experiment="):
        assert arguments[0].removeprefix("experiment=") in list_experiments(), arguments
    elif arguments:
        compose_run(arguments, base=defaults())


def understood(line: str) -> None:
    """Refuse a line that the parser, or the configuration of `train`, would refuse."""
    words = shlex.split(re.sub(r"\$\w+", "1", line.replace("\\|", "|")))[1:]
    words = [word.strip("[]") if not re.search(r"=\[|:\s", word) else word for word in words]
    words = [PLACEHOLDERS.get(word, word).removesuffix("...") for word in words]
    words = [word.partition("|")[0] if re.fullmatch(r"[\w:-]+(\|[\w:-]+)+", word) else word for word in words]
    words = [re.sub(r"=N$", "=3", word) for word in words if word]
    if words == ["COMMAND", "--help"]:
        return
    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert words[0] in commands, f"there is no command {words[0]}"
    if words[0] == "bench":
        assert len(words) == 1 or words[1] == "welch" or (ROOT / "benchmarks" / f"{words[1]}.py").is_file(), words
    elif len(words) > 1 and words[1] != "...":
        options = parse(words)
        if words[0] == "train" and not any(word.startswith(NOT_COMPOSED) for word in words):
            given = [word for word in options.overrides if not word.startswith(ANYTHING)]
            if options.multirun:
                given = [re.sub(r",.*", "", word) for word in given]
            composed(tuple(given))


@pytest.mark.parametrize("page", [page for page in PAGES if any(command_lines(page))])
def test_command_lines_are_understood(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    problems = []
    for line in command_lines(page):
        try:
            understood(line)
        except (Exception, SystemExit) as error:
            said = capsys.readouterr().err.strip()
            if "the following arguments are required" not in said:  # a command that is only spoken of
                problems.append(f"{line}: {said.splitlines()[-1:] or error}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "line",
    [
        "gaitway tarin experiment=ppo_walker_run",
        "gaitway train experiment=ppo_walker_rnu",
        "gaitway train algorithm.gama=0.9",
        "gaitway eval runs/a --episode_count 3",
        "gaitway bench no_such_benchmark",
    ],
)
def test_wrong_lines_are_noticed(line: str) -> None:
    with pytest.raises((Exception, SystemExit)):
        understood(line)
