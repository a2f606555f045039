"""What `gaitway motion` tells of clips."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaitway.envs.motions.check import Finding
    from gaitway.envs.motions.clip import Clip


def described(clip: Clip, path: str) -> dict[str, Any]:
    """Everything that `info` tells, plain."""
    import numpy as np

    distance = float(np.linalg.norm(clip.displacement[:2]))
    return {
        "file": str(path),
        "name": clip.name,
        "frames": len(clip),
        "fps": clip.fps,
        "dt": clip.dt,
        "seconds": clip.duration,
        "loop": clip.loop,
        "weight": clip.weight,
        "speed": distance / clip.duration,
        "joints": list(clip.joints),
        "bodies": list(clip.bodies),
        "balls": list(clip.balls),
        "source": clip.source,
        "meta": dict(clip.meta),
        "sha256": clip.fingerprint,
    }


def line_of(clip: Clip, out: str) -> str:
    kind = "a loop" if clip.loop else "open"
    length = f"{len(clip)} frames at {clip.fps:g} per second ({clip.duration:.3g} s, {kind})"
    return f"{out}: {length}, {len(clip.joints)} joints"


def print_table(found: list[dict[str, Any]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gaitway.cli.console import console

    table = Table(
        "clip", "frames", "fps", "s", "loop", "weight", "m/s", "joints", "bodies", "source", box=None, pad_edge=False
    )
    for each in found:
        joints = f"{len(each['joints'])}" + (f" + {len(each['balls'])} balls" if each["balls"] else "")
        length = (str(each["frames"]), f"{each['fps']:g}", f"{each['seconds']:.3g}", "yes" if each["loop"] else "no")
        numbers = (f"{each['weight']:g}", f"{each['speed']:.2f}", joints, str(len(each["bodies"])))
        table.add_row(*map(escape, (each["name"], *length, *numbers, each["source"])))
    console.print(table)
    if len(found) == 1:
        for key in ("joints", "balls", "bodies"):
            if found[0][key]:
                console.print(escape(f"{key}: {', '.join(found[0][key])}"), soft_wrap=True)
        for key, value in found[0]["meta"].items():
            console.print(escape(f"{key}: {value}"), soft_wrap=True)


def print_findings(found: list[Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from gaitway.cli.console import console

    table = Table("", "", "", box=None, pad_edge=False, show_header=False)
    for each in found:
        table.add_row(*map(escape, (each.question, each.verdict, each.answer)))
    console.print(table)
