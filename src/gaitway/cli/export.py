"""`gaitway export` and `gaitway check-contract`: a trained policy as files for a robot, and whether two of them fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

MANY = 0.9
"""Share of actions at their limits that is worth a line."""

if TYPE_CHECKING:  # the parser does without torch
    from gaitway.cli.build import LoadedPolicy
    from gaitway.cli.train_config import TrainConfig
    from gaitway.export.folder import Format
    from gaitway.export.proof import Proof
    from gaitway.runners.run_folder import RunFolder


def add_parser(commands: Any) -> None:
    """`gaitway export RUN [--format onnx|torch|both] [--out FOLDER]` and `gaitway check-contract A B`."""
    export = commands.add_parser(
        "export",
        help="write a trained policy as ONNX and torch.export files, proven equal",
        description="Write a trained policy as files for a robot: gaitway export runs/first. Recorded observations are "
        "replayed through them, and they are kept only if their actions are the policy's.",
        epilog="docs/export.md explains the files and the contract.",
    )
    export.add_argument(
        "run", metavar="DIR", help="a run, a skill file, or the name of one that comes with the library"
    )
    export.add_argument(
        "--format", choices=["onnx", "torch", "both"], default="both", help="policy.onnx, policy.pt2 or both (default)"
    )
    export.add_argument(
        "--out", metavar="FOLDER", default=None, help="default: DIR/export, of a skill file NAME_export here"
    )
    export.add_argument("--checkpoint", default="best", help="best (default), last or a number of steps")
    export.add_argument(
        "--env", metavar="ENV_ID", default=None, help="prove it in this environment instead of the run's own"
    )
    export.add_argument(
        "--tolerance",
        type=float,
        default=1e-5,
        help="how much actions may differ (default 1e-5), where rounding does more",
    )
    export.add_argument("--json", action="store_true")

    check = commands.add_parser(
        "check-contract",
        help="name the first slice, order or unit in which two contracts differ",
        description="Compare what two policies or environments promise: gaitway check-contract runs/a/export runs/b. "
        "Exit code 1 and one sentence where they differ.",
    )
    for name in ("one", "other"):
        check.add_argument(name, metavar=name[0].upper(), help="an export folder, a run folder or a contract file")
    check.set_defaults(command="check_contract")


def export(options: argparse.Namespace) -> int:
    """Export, prove, and say the largest difference."""
    import json

    from gaitway.cli.arguments import device_alone, device_of
    from gaitway.cli.console import console
    from gaitway.cli.open_run import in_environment, open_run

    if _is_skill_file(options.run):
        out = options.out or _beside_skills(options.run)
        proof, shown = export_skills(options.run, out, options.format, options.tolerance)
    else:
        device, others = (device_alone(options.settings), []) if options.env is None else device_of(options.settings)
        folder, config = open_run(options.run, device)
        out = options.out or str(folder.path / "export")
        place = None if options.env is None else in_environment(config, options.env, others)
        proof, loaded = export_run(folder, config, out, options.format, options.checkpoint, place, options.tolerance)
        shown = f"{config.env.id}, {loaded.which} checkpoint (step {loaded.steps:,})"
    if options.json:
        print(json.dumps({"out": out, "largest_difference": proof.largest, **vars(proof)}))
        return 0
    console.print(f"{shown}: {out}", soft_wrap=True)
    console.print(
        f"  {proof.observations:,} observations of {proof.episodes} episodes, {proof.driven_steps} steps driven"
    )
    for name, difference in proof.differences.items():
        console.print(f"  {name:36s} {difference:.3g}", soft_wrap=True)
    console.print(f"  largest difference of actions        {proof.largest:.3g}")
    if proof.near_ties:
        console.print(f"  {proof.near_ties} steps follow from a choice between near equals and were not compared")
    if proof.share_at_limits > MANY:
        console.print(
            f"  {proof.share_at_limits:.0%} of the actions are at their limits, where differences do not show"
        )
    return 0


def export_run(
    folder: RunFolder,
    config: TrainConfig,
    out: str | Path,
    format: Format,
    checkpoint: str,
    place: TrainConfig | None = None,
    tolerance: float = 1e-5,
) -> tuple[Proof, LoadedPolicy]:
    """Export a checkpoint of an open run, proven in the environment of `place`, or in its own; the proof, and what was
    loaded. The gait that actions correct is that environment's: its authority may have moved in training."""
    from dataclasses import replace

    from gaitway.cli.build import build_env, load_policy
    from gaitway.export.acting_step import acting_step
    from gaitway.export.contract import FACTS
    from gaitway.export.folder import Subject, export_policy

    stage = place or config
    with build_env(stage, "evaluation", 1) as env:
        loaded = load_policy(folder, config, env.spec, checkpoint)
        shown = {name: env.spec.facts[name] for name in FACTS if name in env.spec.facts}
    step = acting_step(loaded.policy, loaded.cast.agents, loaded.policy.spec)
    step.spec = replace(step.spec, facts={**step.spec.facts, **shown})
    about = {
        "run": folder.path.name,
        "run_id": folder.run_id,
        "algorithm": config.algorithm.name,
        "env": config.env.id,
        "checkpoint": loaded.which,
        "steps": loaded.steps,
    }
    subject = Subject(
        step,
        loaded.inference(),
        lambda instances: build_env(stage, "evaluation", instances),
        about,
        str(folder.path),
    )
    return export_policy(subject, out, format, tolerance), loaded


def _is_skill_file(path: str) -> bool:
    """Whether `path` is a skill file itself, or the name of one that comes with the library, and no run."""
    from gaitway.core.files import stored_kind
    from gaitway.skills.places import KINDS, is_shipped

    return is_shipped(path) or (stored_kind(path) in KINDS and not (Path(path) / "config.yaml").exists())


def _beside_skills(path: str) -> str:
    """Where the export of a skill file goes: nothing is written into the file or into the library."""
    return f"{Path(path).resolve().name}_export"


def export_skills(path: str, out: str | Path, format: Format, tolerance: float = 1e-5) -> tuple[Proof, str]:
    """Export a skill file, proven in the skill environment of its robot; the proof, and the file in words."""
    from gaitway.core.files import stored_kind
    from gaitway.export.folder import Subject, export_policy
    from gaitway.export.programs import ExportError
    from gaitway.export.skill_step import SkillActor, SkillStep
    from gaitway.skills.places import CONTINUOUS_SKILLS
    from gaitway.skills.skill_file import Skills
    from gaitway.skills.sweep import make_skill_env

    if stored_kind(path) == CONTINUOUS_SKILLS:
        raise ExportError(
            f"{path} holds skills on a continuous scale, which no environment asks for by itself; export the run that "
            "learnt them, or the agent above them"
        )
    skills = Skills.load(path)
    robot, origin = skills.facts.robot, skills.origin
    with make_skill_env(skills, num_envs=1) as env:
        spec = env.spec
    about: dict[str, Any] = {"skills": Path(path).name, "skills_sha256": skills.sha256, "robot": robot}
    about |= {"task_map": skills.task_map, "env": spec.id, "steps": origin.get("env_steps")}
    subject = Subject(
        SkillStep(skills, spec),
        SkillActor(skills),
        lambda instances: make_skill_env(skills, num_envs=instances, purpose="evaluation"),
        about,
        str(path),
    )
    return export_policy(subject, out, format, tolerance), f"skills of {robot}"


def check_contract(options: argparse.Namespace) -> int:
    """Say where two contracts differ first, or that they agree."""
    from gaitway.cli.console import console
    from gaitway.export.contract import first_difference, read_interface
    from gaitway.export.programs import ExportError

    one, other = (read_interface(path) for path in (options.one, options.other))
    found = first_difference(one, other)
    if found is not None:
        raise ExportError(f"the contracts differ, first in this: {found}")
    numbers = sum(sum(part.size for part in group.components) for group in one.inputs)
    console.print(
        f"{one.shown} and {other.shown} agree: {numbers} numbers in, {len(one.action.names)} actions out, "
        f"a step of {one.control_dt:g} s",
        soft_wrap=True,
    )
    return 0
