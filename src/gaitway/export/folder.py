"""An export on disk: the policy as ONNX and as a `torch.export` program, its contract, and what runs it on a robot.

policy.onnx     policy.pt2     policy_contract.json     robot_runner.py

All of it is proven equal to the policy before it has its name; where that fails, nothing is left and an earlier export
stays as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from gaitway.core.files import atomic_write_json, replacing_folder
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Actor, VecEnv
from gaitway.export.acting_step import ActingStep
from gaitway.export.contract import CONTRACT, contract_of
from gaitway.export.programs import ExportError, load_torch, need_onnx, trace, write_onnx, write_torch
from gaitway.export.proof import (
    EPISODES,
    TOLERANCE,
    Exported,
    NamedInputs,
    Proof,
    Recording,
    TorchRunner,
    drive,
    moved_by_rounding,
    record,
    replay,
)

ONNX, TORCH, RUNNER = "policy.onnx", "policy.pt2", "robot_runner.py"
FILES = (ONNX, TORCH, CONTRACT, RUNNER)
Format = Literal["onnx", "torch", "both"]
FORMATS: tuple[Format, ...] = ("onnx", "torch", "both")
RUNNER_SOURCE = Path(__file__).with_name(RUNNER)


@dataclass(frozen=True)
class Subject:
    """What is exported, and where it is proven."""

    step: ActingStep
    act: Actor
    """The same as evaluations run it."""
    make_env: Callable[[int], AbstractContextManager[VecEnv]]
    """An evaluation environment of so many instances."""
    about: Mapping[str, Any]
    """Where the policy comes from, for the contract."""
    shown: str
    """The run in words."""


def export_policy(subject: Subject, out: str | Path, format: Format = "both", tolerance: float = TOLERANCE) -> Proof:
    """Write the policy into the folder `out`, its actions proven to within `tolerance`; an `ExportError` leaves nothing
    behind."""
    if not 0.0 < tolerance < 1.0:
        raise ExportError(f"the tolerance is {tolerance:g}; use a number above 0 and below 1, such as {TOLERANCE:g}")
    if format not in FORMATS:
        raise ExportError(f"the format is {format!r}; use one of {', '.join(FORMATS)}")
    if format != "torch":
        need_onnx()
    _check_place(Path(out))
    with replacing_folder(out, CONTRACT, "an export") as folder:
        step = subject.step.eval()
        with subject.make_env(EPISODES) as env:
            device, recording = env.device, record(env, subject.act, tuple(group.name for group in step.groups))
        names = _write(step.cpu(), subject, folder, format)
        step.to(device)  # the policy is compared where it was trained to act
        proof = _prove(step, subject, folder, names, recording)
        moved = 0.0 if proof.largest <= tolerance else _rounding(step.cpu(), recording)
        proof.check(subject.shown, tolerance, moved)
        contract = _contract(step, subject, folder, names) | {"proof": asdict(proof)}
        atomic_write_json(folder / CONTRACT, contract)
    return proof


def _check_place(out: Path) -> None:
    strangers = sorted(path.name for path in out.iterdir() if path.name not in FILES) if out.is_dir() else []
    if strangers and (out / CONTRACT).exists():
        raise ExportError(
            f"{out} holds {strangers[0]!r}, which is no part of an export; move it away, or choose another --out"
        )


def _write(step: ActingStep, subject: Subject, folder: Path, format: Format) -> list[str]:
    """The files but for the proof; their names."""
    program, names = trace(step), []
    if format != "onnx":
        write_torch(program, folder / TORCH)
        names.append(TORCH)
    if format != "torch":
        write_onnx(program, step, folder / ONNX)
        names.append(ONNX)
        (folder / RUNNER).write_bytes(RUNNER_SOURCE.read_bytes())
    atomic_write_json(folder / CONTRACT, _contract(step, subject, folder, names))
    return names


def _contract(step: ActingStep, subject: Subject, folder: Path, names: list[str]) -> dict[str, Any]:
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    return contract_of(step, subject.about) | {"files": digests}


def _prove(step: ActingStep, subject: Subject, folder: Path, names: list[str], recording: Recording) -> Proof:
    groups, found = tuple(group.name for group in step.groups), {}
    for name in names:
        exported = _runner(step, folder, name, len(recording.rows[0].starts), recording.spec)
        found[f"replayed through {name}"] = replay(recording, exported)
    with subject.make_env(1) as env:
        exported = _runner(step, folder, names[-1], 1, env.spec)
        found[f"driving an episode by {names[-1]}"], steps = drive(env, subject.act, exported, groups, EPISODES)
    told = recording.observations, recording.episodes, steps, recording.share_at_limits
    return Proof(*told, found, recording.near_ties)


def _rounding(step: ActingStep, recording: Recording) -> float:
    one, other = (TorchRunner(step, step, len(recording.rows[0].starts)) for _ in range(2))
    return moved_by_rounding(recording, one, other)


def _runner(step: ActingStep, folder: Path, name: str, batch: int, spec: EnvSpec) -> Exported:
    """A file as it is used later: ONNX by the very code that goes to the robot."""
    if name == TORCH:
        return TorchRunner(load_torch(folder / TORCH), step, batch)
    from gaitway.export.robot_runner import RobotRunner

    return NamedInputs(RobotRunner(folder, batch), spec)
