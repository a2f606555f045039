"""`gaitway skills show FILE`, `view FILE` and `write RUN`: what a skill file holds, how its skills look, and a file of
what a run has learnt."""

from __future__ import annotations

import argparse
import math
from typing import Any

FILE = "the folder of a skill file or of a run, or the name of one that comes with the library, such as walker"
SIZE = (480, 360)


def add_parser(commands: Any, count: Any, size: Any) -> None:
    """Add `skills` to the subparsers of the command line; `count` and `size` turn text into numbers."""
    parser = commands.add_parser(
        "skills",
        help="what a skill file holds, how its skills look, and a file of a run",
        description="Skill files: gaitway skills show walker, gaitway skills view runs/pretrained --group 3+4, "
        "gaitway skills write runs/pretrained --checkpoint 10000000",
        epilog="docs/skills.md explains tasks, success and the file.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser(
        "show", help="what the file holds: a table of all tasks with their success, beside play without skill"
    )
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
    write = actions.add_parser(
        "write",
        help="the skills of a checkpoint as a file: where none was written, or of an earlier step",
    )
    write.add_argument("run", metavar="DIR", help="the folder of a run")
    write.add_argument("--checkpoint", default="last", help="last (default), best or a number of steps")
    write.add_argument(
        "--out", metavar="FOLDER", default=None, help="default: in DIR, skills or, of DIAYN, continuous_skills"
    )
    write.set_defaults(command="write_skills")


def show_skills(options: argparse.Namespace) -> int:
    import json

    from gaitway.cli.skill_tables import described, described_scale, print_scale, print_skills
    from gaitway.core.files import finite, stored_kind
    from gaitway.skills.continuous_skills import ContinuousSkills
    from gaitway.skills.places import CONTINUOUS_SKILLS, KINDS, find_skill_file
    from gaitway.skills.skill_file import Skills

    place = find_skill_file(options.file, KINDS)
    if stored_kind(place) == CONTINUOUS_SKILLS:
        found, show = described_scale(ContinuousSkills.load(place), place), print_scale
    else:
        found, show = described(Skills.load(options.file), place), print_skills
    if options.json:
        print(json.dumps(finite(found)))
    else:
        show(found)
    return 0


def write_skills(options: argparse.Namespace) -> int:
    """Figures are those that the checkpoint knows: reachability and the critics are not asked, for want of a replay."""
    from pathlib import Path

    from gaitway.agents.diayn_policy import DIAYNPolicy
    from gaitway.agents.skill_policy import SkillPolicy
    from gaitway.cli.build import load_policy
    from gaitway.cli.console import console
    from gaitway.cli.open_run import open_run
    from gaitway.core.config import ConfigError
    from gaitway.runners.checkpoint import Checkpoints
    from gaitway.skills.continuous_skills import ContinuousSkills
    from gaitway.skills.frozen_policy import origin_of
    from gaitway.skills.places import CONTINUOUS_SKILLS, GOAL_SKILLS
    from gaitway.skills.skill_file import Skills

    folder, config = open_run(options.run, "cpu")
    found = load_policy(folder, config, None, options.checkpoint)
    policy, state = found.policy, Checkpoints(folder.checkpoints, folder.run_id).load(found.which)[0]
    told = state.get("callbacks", {})
    origin = origin_of(folder.path, found.steps, int(state["algorithm"]["updates"]), config.seed)
    if isinstance(policy, DIAYNPolicy):
        kind, known = CONTINUOUS_SKILLS, {"accuracy": list(told.get("diayn_skills", {}).get("accuracy", ()))}
        skills: Skills | ContinuousSkills = ContinuousSkills.of_policy(policy, origin=origin, **known)
    elif isinstance(policy, SkillPolicy):
        kind, known = GOAL_SKILLS, {name: told.get("skill_file", {}).get(name, {}) for name in ("figures", "floors")}
        skills = Skills.of_policy(policy, origin=origin, **known)
    else:
        raise ConfigError(
            f"{folder.path} learns by {config.algorithm.name}, and skill files are of multitask_sac and diayn; write a "
            f"policy for a robot by `gaitway export {folder.shown}`"
        )
    place = Path(options.out) if options.out else folder.path / kind
    skills.save(place)
    console.print(f"{place}: {kind.replace('_', ' ')} at step {found.steps:,}", soft_wrap=True)
    return 0


def view_skills(options: argparse.Namespace) -> int:
    from gaitway.cli.console import console
    from gaitway.cli.play import check_drawing, check_writable, ending_on_sigterm
    from gaitway.cli.skill_tables import print_sweeps
    from gaitway.core.config import ConfigError
    from gaitway.core.files import stored_kind
    from gaitway.core.seeding import check_seed
    from gaitway.envs.pictures.scene import Camera
    from gaitway.runners.encoders import check_kind, check_size, video_problem
    from gaitway.runners.film import record_episode
    from gaitway.skills.places import CONTINUOUS_SKILLS
    from gaitway.skills.skill_file import Skills, find_skills
    from gaitway.skills.sweep import Sweep, dimensions, file_stem, make_skill_env

    check_seed(options.seed)
    if stored_kind(find_skills(options.file)) == CONTINUOUS_SKILLS:
        raise ConfigError(
            f"{options.file} holds skills on a continuous scale, which have no goals to show; watch those of the "
            "training by `gaitway play RUN`"
        )
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
        check_drawing(camera, size, f"`gaitway skills show {options.file}` says in numbers what they can")
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
    print_sweeps(act.results)
    console.print(f"{path}: {skills.facts.robot}, {shown['frames']} frames, {shown['steps']} steps", soft_wrap=True)
    return 0
