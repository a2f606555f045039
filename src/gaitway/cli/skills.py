"""`gaitway skills show FILE` and `gaitway skills view FILE`: what a skill file holds, and how its skills look."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.skills.skill_file import Skills
    from gaitway.skills.sweep import Swept

FILE = "the folder of a skill file or of a run, or the name of one that comes with the library, such as walker"
SIZE = (480, 360)
COLUMNS = {
    "success": "success",
    "random": "floor: random",
    "zero": "floor: zero",
    "r": "reachability",
    "q": "q value",
    "running": "training",
}
"""Figures of a task, and what they are called in the table."""


def add_parser(commands: Any, count: Any, size: Any) -> None:
    """Add `skills` to the subparsers of the command line; `count` and `size` turn text into numbers."""
    parser = commands.add_parser(
        "skills",
        help="what a skill file holds, and how its skills look",
        description="Skill files: gaitway skills show walker, gaitway skills view runs/pretrained --group 3+4",
        epilog="docs/skills.md explains tasks, success and the file.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="a table of all tasks with their success, beside play without skill")
    show.add_argument("file", metavar="FILE", help=FILE)
    show.add_argument("--json", action="store_true")
    show.set_defaults(command="show_skills")
    view = actions.add_parser(
        "view", help="a film in which the goal of each feature goes from one end of its range to the other"
    )
    view.add_argument("file", metavar="FILE", help=FILE)
    view.add_argument("--out", metavar="FILM", default=None, help="mp4 or gif; default: ROBOT_skills.mp4 here")
    view.add_argument(
        "--group", action="append", default=None, metavar="GROUP", help="only this group, e.g. 3+4; may be repeated"
    )
    view.add_argument("--length", type=count, default=200, help="steps for each feature (default: 200)")
    view.add_argument("--size", type=size, default=SIZE, metavar="WxH", help="pixels (default: 480x360)")
    view.add_argument("--seed", type=int, default=0, help="which start to show")
    view.set_defaults(command="view_skills")


def show_skills(options: argparse.Namespace) -> int:
    import json

    from gaitway.core.files import finite
    from gaitway.skills.skill_file import Skills, find_skills

    skills = Skills.load(options.file)
    found = described(skills, find_skills(options.file))
    if options.json:
        print(json.dumps(finite(found)))
        return 0
    _print(found)
    return 0


def view_skills(options: argparse.Namespace) -> int:
    from gaitway.cli.inspect_run import console
    from gaitway.cli.play import check_drawing, check_writable, ending_on_sigterm
    from gaitway.core.config import ConfigError
    from gaitway.core.seeding import check_seed
    from gaitway.envs.pictures.scene import Camera
    from gaitway.runners.encoders import check_kind, check_size, video_problem
    from gaitway.runners.film import record_episode
    from gaitway.skills.skill_file import Skills
    from gaitway.skills.sweep import Sweep, dimensions, file_stem, make_skill_env

    check_seed(options.seed)
    skills = Skills.load(options.file)
    swept = dimensions(skills, options.group)
    problem = video_problem()
    path = check_kind(options.out or f"{file_stem(skills)}{'.gif' if problem else '.mp4'}")
    if problem is not None and path.suffix.lower() == ".mp4":
        raise ConfigError(f"{problem}, or choose a name that ends in .gif")
    # goals stay until the next one is placed, and only a fall ends an episode
    still = {"full_episodes": True, "hard_reset_interval": 0}
    with (
        ending_on_sigterm(),
        make_skill_env(skills, num_envs=1, seed=options.seed, **still) as env,
        Camera(env) as camera,
    ):
        size = check_size(options.size, path.suffix.lower())
        check_drawing(camera, size)
        check_writable(path)
        act = Sweep(env, skills, swept, options.length)
        shown = record_episode(
            env,
            act,
            path,
            length=act.total,
            size=size,
            annotations=False,
            seed=options.seed,
            caption=act.caption,
            through_ends=True,
            draw=camera,
            patience_s=math.inf,
        )
    if shown is None:
        console.print("no film was written; the line above says why")
        return 1
    _print_sweeps(act.results)
    console.print(f"{path}: {skills.facts.robot}, {shown['frames']} frames, {shown['steps']} steps", soft_wrap=True)
    return 0


def described(skills: Skills, place: Path) -> dict[str, Any]:
    """Everything that `show` tells, plain."""
    from gaitway.envs.tasks.skills.goal_spaces import rank

    facts, space, origin = skills.facts, skills.space, skills.origin
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
        "file": str(place),
        "robot": facts.robot,
        "features": facts.features,
        "heading": facts.heading,
        "groups": list(facts.groups),
        "horizon": facts.horizon,
        "precision": facts.precision,
        "control_dt": facts.control_dt,
        "network": f"{skills.architecture.trunk} {list(skills.architecture.hidden)}",
        "steps": origin.get("env_steps"),
        "updates": origin.get("updates"),
        "seed": origin.get("seed"),
        "command": origin.get("command"),
        "commit": origin.get("commit"),
        "bytes": sum(path.stat().st_size for path in place.iterdir() if path.is_file()),
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


def _print(found: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gaitway.cli.inspect_run import console

    def say(text: str) -> None:
        console.print(escape(text), soft_wrap=True)

    seconds = found["horizon"] * found["control_dt"]
    say(f"skills of {found['robot']}, features {found['features']}, {found['heading']} heading: {found['file']}")
    say(f"goals may take {found['horizon']} steps ({seconds:.3g} s) and are reached within {found['precision']:g}")
    trained = f"{found['steps']:,}" if isinstance(found["steps"], int) else "unknown"
    say(f"trained for {trained} steps, seed {found['seed']}, network {found['network']}, {found['bytes'] / 1e6:.1f} MB")
    say(f"by {found['command'] or 'an unknown command'}, commit {found['commit'] or 'unknown'}")
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
        say(f"\nsuccess by rank  {ranks}")


def _print_sweeps(results: list[Swept]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gaitway.cli.inspect_run import console

    table = Table("goal of", "reached in", "off at low end", "off at high end", "falls", box=None, pad_edge=False)
    for each in results:
        share = f"{each.reached / max(each.steps, 1):.0%} of steps"
        table.add_row(escape(each.name), share, f"{each.low:.2f}", f"{each.high:.2f}", str(each.falls))
    console.print(table)
