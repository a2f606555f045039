"""The page as a file that needs nothing else: its data, its films, its scripts and Plotly are in it.

What it may do is written at its top (Content-Security-Policy): run the two scripts whose digests stand there, show what
it holds, ask nobody.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from gaitway.analysis.report.board import Board
from gaitway.analysis.report.media import embedded
from gaitway.core.files import atomic_write_text
from gaitway.version import __version__

PLACE = Path(__file__).parent / "page"
SCRIPTS = ("dom.js", "view.js", "sections.js", "figures.js", "films.js", "main.js")
STYLES = ("page.css", "plotly.css")
POINTS_IN_FILE = 600_000
"""Points of all metrics and seeds together."""
PLOTLY_STYLE = 'id="plotly.js-style-global" class="no-inline-styles"'
"""Tells Plotly that its styles are there, so that it need not write any, which the policy forbids."""


def write_report(board: Board, out: Path, embed_mb: float, command: str) -> tuple[Path, int]:
    """Write the page of a board into a file; the file, and how many media it links because they did not fit."""
    state = board.state()
    state["media"] = embedded(board.media, board.runs, int(embed_mb * 1e6), out)
    state["made"] = f"Made by gaitway {__version__} on {datetime.now():%Y-%m-%d at %H:%M}: {command}"
    points = POINTS_IN_FILE // max(1, len(state["metrics"]))
    curves = {metric: board.curves(metric, points) for metric in state["metrics"]}
    files = [
        f'<script type="text/plain" id="medium-{place}" data-type="{medium.pop("type")}">{medium.pop("data")}</script>'
        for place, medium in enumerate(state["media"])
        if "data" in medium
    ]
    data = f'<script type="application/json" id="data">{as_data({"state": state, "curves": curves})}</script>'
    script, plotly, style = page_script(), plotly_script(), page_style()
    policy = (
        f"default-src 'none'; script-src {_digest(script)} {_digest(plotly)}; style-src {_digest(style)}; "
        "img-src blob: file: 'self'; media-src blob: file: 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "title": html.escape(board.title),
        "style": f"<style {PLOTLY_STYLE}>{style}</style>{plotly_marks()}",
        "data": "\n".join([*files, data]),
        "script": f"<script>{script}</script>\n<script>{plotly}</script>",
    }
    atomic_write_text(out, filled(parts))
    return out, sum("link" in medium for medium in state["media"])


def live_page(title: str, addresses: dict[str, str]) -> str:
    """The page that asks a server for everything; `addresses` of its script, its style and Plotly."""
    script = f'<script src="{addresses["script"]}" defer></script>\n<script src="{addresses["plotly"]}" defer></script>'
    style = f'<link rel="stylesheet" {PLOTLY_STYLE} href="{addresses["style"]}">{plotly_marks()}'
    return filled({"policy": "", "title": html.escape(title), "style": style, "data": "", "script": script})


def filled(parts: dict[str, str]) -> str:
    """The frame of the page with its parts, each put in once: what a part says is not looked at again."""
    pieces = _frame().split("{{")
    made: list[str] = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        made += [parts[name], rest]
    return "".join(made)


def as_data(value: Any) -> str:
    """JSON that can stand in a page: no sign in it ends the element or begins another one."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


@cache
def page_script() -> str:
    parts = _joined(SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();'


@cache
def page_style() -> str:
    return _joined(STYLES)


@cache
def plotly_script() -> str:
    """Plotly as its package brings it."""
    import plotly

    path = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def plotly_marks() -> str:
    """Empty elements whose presence tells Plotly's maps that their styles are there."""
    marks = dict.fromkeys(re.findall(r'document\.getElementById\("([0-9a-f]{64})"\)', plotly_script()))
    return "".join(f'<template id="{mark}"></template>' for mark in marks)


@cache
def _frame() -> str:
    return (PLACE / "page.html").read_text(encoding="utf-8")


def _joined(names: Sequence[str]) -> str:
    return "".join((PLACE / name).read_text(encoding="utf-8") for name in names)


def _digest(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
