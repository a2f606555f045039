"""Where skill files are: folders, run folders that hold one under the name of its kind, and those of the library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaitway.core.config import did_you_mean, read_config
from gaitway.core.files import STRUCTURE_FILE, TENSOR_FILE, stored_kind
from gaitway.skills.frozen_policy import SkillFileError

GOAL_SKILLS, CONTINUOUS_SKILLS = KINDS = ("skills", "continuous_skills")
"""Kinds of skill files: of skills that pursue goals, and of those on a continuous scale (DIAYN-C)."""
SHIPPED = Path(__file__).parent / "files"
"""Skill files that come with the library, a folder each."""


def shipped_skills() -> list[str]:
    """Names of the skill files that come with the library."""
    return sorted(found.name for found in SHIPPED.iterdir() if found.is_dir()) if SHIPPED.is_dir() else []


def is_shipped(path: str | Path) -> bool:
    """Whether `path` is a plain name of a skill file of ours, and no folder that holds another one."""
    return str(path) in shipped_skills() and not _holds_skills(Path(path))


def find_skill_file(path: str | Path, kinds: Sequence[str]) -> Path:
    """Where the skill file, of one of these kinds, is that a path, a run folder or a plain name stands for."""
    text, folder = str(path), Path(path)
    if is_shipped(path):
        return SHIPPED / text
    if folder.is_file() and folder.name in (STRUCTURE_FILE, TENSOR_FILE):
        folder = folder.parent
    if folder.is_dir():
        inside = [folder / kind for kind in kinds if (folder / kind).is_dir()]
        if not inside and (folder / "config.yaml").is_file():
            raise SkillFileError(_without_file(text, folder, kinds))
        if not inside and not any((folder / part).exists() for part in (STRUCTURE_FILE, TENSOR_FILE)):
            raise SkillFileError(f"{text} holds no skills; {_where_they_are(kinds)}")
        return inside[0] if inside else folder
    if folder.exists():
        raise SkillFileError(
            f"{text} is no skill file, which is a folder with {STRUCTURE_FILE} and {TENSOR_FILE}; name that folder"
        )
    hint = did_you_mean(text, _shipped_of(kinds))
    raise SkillFileError(f"there are no skills {text!r}{hint}; {_where_they_are(kinds)}")


def skill_kind(path: str | Path) -> str | None:
    """Of which kind the skill file at `path` says it is; None where there is none."""
    try:
        return stored_kind(find_skill_file(path, (CONTINUOUS_SKILLS, GOAL_SKILLS)))
    except SkillFileError:
        return None


def _holds_skills(folder: Path) -> bool:
    return (folder / STRUCTURE_FILE).is_file() or any((folder / kind).is_dir() for kind in KINDS)


def _shipped_of(kinds: Sequence[str]) -> list[str]:
    return [name for name in shipped_skills() if stored_kind(SHIPPED / name) in kinds]


def _where_they_are(kinds: Sequence[str]) -> str:
    known = _shipped_of(kinds)
    if known:
        ours = f", or one that comes with the library: {', '.join(known)}"
    else:
        ours = "; `gaitway train experiment=walker_diaync_pretrain` makes one" if CONTINUOUS_SKILLS in kinds else ""
    return f"name the folder of a run or of a skill file{ours}"


def _without_file(text: str, run: Path, kinds: Sequence[str]) -> str:
    """What to do with a run that does not hold a skill file of these kinds."""
    data = read_config(run / "config.yaml")
    algorithm, agent = (_section(data, name) for name in ("algorithm", "agent"))
    if algorithm.get("name") != "diayn":
        if GOAL_SKILLS not in kinds:
            return (
                f"the run {text} holds no skills on a continuous scale; train with algorithm=diayn agent.n_embed=7 "
                "callbacks=[diayn_skills]"
            )
        return (
            f"the run {text} holds no skills; `gaitway skills write {text}` writes what multitask_sac has learnt, and "
            "callbacks=[{name: skill_file}] with each checkpoint"
        )
    if agent.get("n_embed") is None:
        return (
            f"the run {text} holds no skill file, because skills of diayn go by number; watch them with "
            f"`gaitway play {text}`, or train with agent.n_embed=7 callbacks=[diayn_skills] to get a file"
        )
    if (run / CONTINUOUS_SKILLS).is_dir():
        return (
            f"the skills of the run {text} are points on a continuous scale and know no goals; watch them with "
            f"`gaitway play {text}`, or load them with ContinuousSkills.load"
        )
    return (
        f"the run {text} holds no skill file; `gaitway skills write {text}` writes it, and callbacks=[diayn_skills] "
        "with each checkpoint"
    )


def _section(data: Any, name: str) -> dict[str, Any]:
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}
