"""What `gaitway skills` prints: skill files of both kinds in words and tables, and how sweeps went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from gaitway.cli.console import console
from gaitway.envs.tasks.skills.goal_spaces import rank
from gaitway.skills.continuous_skills import ContinuousSkills
from gaitway.skills.frozen_policy import FrozenPolicy
from gaitway.skills.places import CONTINUOUS_SKILLS, GOAL_SKILLS
from gaitway.skills.skill_file import Skills
from gaitway.skills.sweep import Swept

COLUMNS = {
    "success": "success",
    "random": "floor: random",
    "zero": "floor: zero",
    "r": "reachability",
    "q": "q value",
    "running": "training",
}
"""Figures of a task, and what they are called in the table."""


def described(skills: Skills, place: Path) -> dict[str, Any]:
    """Everything that `show` tells of skills that pursue goals, plain."""
    facts, space = skills.facts, skills.space
    tasks = facts.tasks
    rows = []
    for task in skills.subsets:
        members = [int(f) for f in tasks.features_of(tasks.key_of(task)).split(",")]
        figures = {name: skills.figures.get(name, {}).get(task) for name in ("success", "r", "q", "running")}
        floors = {name: skills.floors.get(name, {}).get(task) for name in ("random", "zero")}
        rows.append(
            {"task": task, "rank": rank(task), "features": [space.names[f] for f in members], **figures, **floors}
        )
    return {
        "kind": GOAL_SKILLS,
        "file": str(place),
        "robot": facts.robot,
        "features": facts.features,
        "heading": facts.heading,
        "groups": list(facts.groups),
        "horizon": facts.horizon,
        "precision": facts.precision,
        "control_dt": facts.control_dt,
        **_made(skills, place),
        "goal_space": [
            {"feature": number, "name": name, "unit": unit, "low": float(low), "high": float(high)}
            | {"delta": number in space.delta, "twist": number in space.twist}
            for number, (name, unit, low, high) in enumerate(
                zip(space.names, space.units, space.low, space.high, strict=True)
            )
        ],
        "success_by_rank": {str(n): p for n, p in skills.by_rank().items()},
        "tasks": rows,
    }


def described_scale(skills: ContinuousSkills, place: Path) -> dict[str, Any]:
    """The same of skills on a continuous scale."""
    count, dimensions = skills.points.shape
    return {
        "kind": CONTINUOUS_SKILLS,
        "file": str(place),
        "robot": skills.robot,
        "skills": count,
        "dimensions": dimensions,
        "control_dt": skills.control_dt,
        "inputs": {name: len(components) for name, components in skills.inputs.items()},
        "actions": list(skills.actions),
        **_made(skills, place),
        "points": skills.points.tolist(),
        "accuracy": list(skills.accuracy),
    }


def _made(skills: FrozenPolicy, place: Path) -> dict[str, Any]:
    """The network, how it came about and the size of its file."""
    origin, architecture = skills.origin, skills.architecture
    known = {name: origin.get(name) for name in ("updates", "seed", "command", "commit")}
    return {
        "network": f"{architecture.trunk} {list(architecture.hidden)}",
        "steps": origin.get("env_steps"),
        **known,
        "bytes": sum(path.stat().st_size for path in place.iterdir() if path.is_file()),
    }


def print_skills(found: dict[str, Any]) -> None:
    seconds = found["horizon"] * found["control_dt"]
    heading = f", {found['heading']} heading" if found["heading"] else ""
    _say(f"skills of {found['robot']}, features {found['features']}{heading}: {found['file']}")
    _say(f"goals may take {found['horizon']} steps ({seconds:.3g} s) and are reached within {found['precision']:g}")
    _say_made(found)
    ranges = Table("feature", "name", "from", "to", "", box=None, pad_edge=False)
    for each in found["goal_space"]:
        kind = " ".join(name for name in ("delta", "twist") if each[name])
        low, high = (f"{each[end]:g} {each['unit']}".strip() for end in ("low", "high"))
        ranges.add_row(*map(escape, (str(each["feature"]), each["name"], low, high, kind)))
    console.print()
    console.print(ranges)
    table = Table("rank", "task", "features", *COLUMNS.values(), box=None, pad_edge=False)
    for row in found["tasks"]:
        figures = ["" if row[name] is None else f"{row[name]:.2f}" for name in COLUMNS]
        table.add_row(*map(escape, (str(row["rank"]), row["task"], " ".join(row["features"]), *figures)))
    console.print()
    console.print(table)
    ranks = "  ".join(f"{rank}: {p:.3f}" for rank, p in found["success_by_rank"].items())
    if ranks:
        _say(f"\nsuccess by rank  {ranks}")


def print_scale(found: dict[str, Any]) -> None:
    read = " and ".join(f"{size} numbers of {name}" for name, size in found["inputs"].items())
    _say(f"continuous skills of {found['robot']}: {found['file']}")
    _say(f"{found['skills']} trained skills (DIAYN-C) as points with {found['dimensions']} dimensions within (-1, 1)")
    _say(f"reads {read}, moves {', '.join(found['actions'])} every {found['control_dt']:g} s")
    _say_made(found)
    axes = range(found["dimensions"])
    table = Table("skill", "told apart in", *(f"[{axis}]" for axis in axes), box=None, pad_edge=False)
    for number, point in enumerate(found["points"]):
        share = f"{found['accuracy'][number]:.0%} of steps" if number < len(found["accuracy"]) else ""
        table.add_row(str(number), share, *(f"{value:.2f}" for value in point))
    console.print()
    console.print(table)


def _say_made(found: dict[str, Any]) -> None:
    trained = f"{found['steps']:,}" if isinstance(found["steps"], int) else "unknown"
    _say(
        f"trained for {trained} steps, seed {found['seed']}, network {found['network']}, {found['bytes'] / 1e6:.1f} MB"
    )
    _say(f"by {found['command'] or 'an unknown command'}, commit {found['commit'] or 'unknown'}")


def _say(text: str) -> None:
    console.print(escape(text), soft_wrap=True)


def print_sweeps(results: list[Swept]) -> None:
    table = Table("goal of", "reached in", "off at low end", "off at high end", "falls", box=None, pad_edge=False)
    for each in results:
        share = f"{each.reached / max(each.steps, 1):.0%} of steps"
        table.add_row(escape(each.name), share, f"{each.low:.2f}", f"{each.high:.2f}", str(each.falls))
    console.print(table)
