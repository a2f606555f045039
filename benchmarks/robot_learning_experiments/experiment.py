"""What an experiment is: arms that are run for seeds, and claims about what came of them.

    experiment(
        "T-REC",
        "a memory remembers the cue",
        arms={"gru": train_gru, "mlp": train_mlp},                   # run for every seed; the first is the honest one
        twins={"state of another environment": train_permuted},      # run for seed 0, in the place of the honest arm
        claims=lambda arms: [least("return", arms["gru"]["return"], -0.1), most("mlp", arms["mlp"]["return"], -0.95)],
    )

The claims must hold for the arms of each seed. A twin has one mistake: with its figures in the place of the honest
arm's, at least one claim must not hold, or the experiment proves nothing. Limits stand in the claims; they were frozen
on seeds of 100 and above.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gaitway
from robot_learning_experiments.rows import TESTS

Figures = dict[str, float]
"""What one arm found for one seed: plain numbers by name."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Job:
    """One arm with one seed, and where it may keep files."""

    seed: int
    folder: Path
    """Of this arm and seed alone."""
    shared: Path
    """Of the whole experiment: what several arms or seeds use, such as a teacher."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the arm has to say beside its figures; kept with them."""

    def train(self, experiment: str | None = None, *, shared: str = "", **settings: Any) -> gaitway.LoadedRun:
        """One run with one thread; its `last` checkpoint. Run names other than the arm's are given by `name=`.

        With `shared` it is the run of that name that all arms share, made once, with the seed among the settings.
        """
        place = self.shared / shared if shared else self.folder / settings.pop("name", "run")
        if not (place / "summary.json").exists():
            defaults = {"seed": self.seed, "torch_threads": 1, "env.num_threads": 1, "log_level": "warning"}
            gaitway.train(experiment, quiet=True, **(defaults | settings | {"run_dir": str(place)}))
        return gaitway.load(place, "last", trust=("robot_learning_experiments",))


@dataclass(frozen=True)
class Claim:
    """A number, and the limit that it keeps."""

    what: str
    found: float
    relation: str
    limit: float

    @property
    def holds(self) -> bool:
        """False for NaN, whatever the limit."""
        return bool(self.found >= self.limit if self.relation == ">=" else self.found <= self.limit)

    def __str__(self) -> str:
        return f"{self.what} {self.found:.4g} {self.relation} {self.limit:.4g}{'' if self.holds else ' MISSED'}"


def least(what: str, found: float, limit: float) -> Claim:
    """At least `limit`."""
    return Claim(what, float(found), ">=", limit)


def most(what: str, found: float, limit: float) -> Claim:
    """At most `limit`."""
    return Claim(what, float(found), "<=", limit)


def within(what: str, found: float, low: float, high: float) -> list[Claim]:
    """Between two limits."""
    return [least(what, found, low), most(what, found, high)]


Arm = Callable[[Job], Figures]
Claims = Callable[[Mapping[str, Figures]], Sequence[Claim]]


@dataclass(frozen=True)
class Experiment:
    """Arms, twins and claims under one id."""

    id: str
    title: str
    arms: Mapping[str, Arm]
    claims: Claims
    twins: Mapping[str, Arm] = field(default_factory=dict)
    breaks: Mapping[str, str] = field(default_factory=dict)
    """Which arm a twin takes the place of, where that is not the first one."""
    seeds_needed: int | None = None
    """How many of the seeds must pass; None for all."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """What is reported; an exact experiment needs one seed alone."""

    def __post_init__(self) -> None:
        if not self.arms:
            raise ValueError(f"{self.id} has no arm; the first one is the honest one")
        both = sorted(set(self.arms) & set(self.twins))
        if both:
            raise ValueError(f"{self.id}: {both} are arms and twins at once; give twins names of their own")
        unknown = sorted(set(self.breaks) - set(self.twins)) + sorted(set(self.breaks.values()) - set(self.arms))
        if unknown:
            raise ValueError(f"{self.id}: breaks names {unknown}, which are no twin or no arm of it")

    def place_of(self, twin: str) -> str:
        return self.breaks.get(twin, next(iter(self.arms)))


EXPERIMENTS: dict[str, Experiment] = {}
"""All of them, by id."""


def experiment(id: str, title: str, **parts: Any) -> Experiment:
    """Register an experiment; see `Experiment` for its parts."""
    if id in EXPERIMENTS:
        raise ValueError(f"{id} is registered twice; give the second one another id")
    EXPERIMENTS[id] = Experiment(id, title, **parts)
    return EXPERIMENTS[id]


def logged(run: gaitway.LoadedRun, name: str) -> list[float]:
    """A number of the log, line by line."""
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return [float(line[name]) for line in lines if name in line]


def last_of(run: gaitway.LoadedRun, *names: str) -> Figures:
    """Numbers of the log, means over the last ten lines that have them; NaN where none has."""
    found = {name: logged(run, name)[-10:] for name in names}
    return {name: sum(values) / len(values) if values else float("nan") for name, values in found.items()}


def found_in(file: str, read: Callable[[Any, int], Figures]) -> Arm:
    """An arm that another benchmark has run: `read(content, seed)` gives its figures, of the raw `file` among the
    results, which says with which command and commit they were found."""

    def run(job: Job) -> Figures:
        return read(json.loads((ROOT / "benchmarks" / "results" / file).read_text()), job.seed)

    return run


def tested(id: str, title: str, *files: str) -> Experiment:
    """An experiment that tests decide: those of its row in `rows`, mutations included, and all others of `files`,
    whose paths are those below `tests/`. What came of each is kept beside the figures."""
    named = [test for test in TESTS.get(id, ()) if test.partition("::")[0] not in files]

    def run(job: Job) -> Figures:
        job.notes["tests"] = outcomes = run_tests([*named, *files], job.folder / "tests.xml")
        found = Counter(outcome["outcome"] for outcome in outcomes.values())
        return {name: found[name] for name in ("passed", "failed", "skipped")}

    return experiment(
        id,
        title,
        arms={"tests": run},
        claims=lambda arms: [
            least("tests passed", arms["tests"]["passed"], len(named) + len(files)),
            most("tests failed", arms["tests"]["failed"], 0),
            most("tests skipped", arms["tests"]["skipped"], 0),
        ],
        seeds=(0,),
    )


def run_tests(tests: Sequence[str], report: Path) -> dict[str, dict[str, Any]]:
    """Run tests, those marked `long` too; by node id what came of each, and the seconds it took."""
    command = [sys.executable, "-m", "pytest", "-n0", "-m", "long or not long", f"--junitxml={report}"]
    command += ["-o", "junit_family=xunit1", *(f"tests/{test}" for test in tests)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # neither all passed nor some failed
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file, name = case.attrib["file"], case.attrib["name"]
        classes = case.attrib["classname"].removeprefix(file.removesuffix(".py").replace("/", ".")).split(".")[1:]
        ended = {"failure": "failed", "error": "failed", "skipped": "skipped"}
        outcome = next((ended[child.tag] for child in case if child.tag in ended), "passed")
        key = "::".join([file.removeprefix("tests/"), *classes, name])
        outcomes[key] = {"outcome": outcome, "seconds": round(float(case.attrib["time"]), 3)}
    return outcomes
