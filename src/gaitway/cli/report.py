"""`gaitway report` and `gaitway dash`: runs as one page, in a file or live. Nothing that trains is imported."""

from __future__ import annotations

import argparse
import glob
import os
import shlex
from pathlib import Path
from typing import Any

from gaitway.cli.console import console

PORT = 8787
EMBED_MB = 50.0


def add_parsers(commands: Any) -> None:
    """Add `report` and `dash` to the subparsers of the command line."""
    report = commands.add_parser(
        "report",
        help="one page that says whether it worked",
        description="Write runs as one page: gaitway report runs/sweeps/rates -o rates.html",
        epilog="The page needs nothing but a browser. docs/report.md explains what it shows.",
    )
    report.add_argument("runs", nargs="+", metavar="RUN", help="run folders, folders of runs, sweeps, quoted globs")
    report.add_argument("-o", "--out", default="report.html", metavar="FILE", help="default: report.html")
    report.add_argument("--metric", default=None, metavar="NAME", help="what to judge by; default: the evaluation's")
    report.add_argument("--title", default=None, help="default: the name of the folder")
    report.add_argument(
        "--embed-mb",
        type=_megabytes,
        default=EMBED_MB,
        metavar="N",
        help="films and pictures up to so many megabytes are put into the page, others linked (default: 50)",
    )
    dash = commands.add_parser(
        "dash",
        help="the same page, live",
        description="Watch runs while they train: gaitway dash runs",
        epilog="Only this machine can open the page, unless --host is given; then the address that is printed has a "
        "token, and whoever knows it sees all runs below DIR.",
    )
    dash.add_argument("folder", metavar="DIR", help="a folder of runs, a sweep or a run")
    dash.add_argument("--metric", default=None, metavar="NAME", help="what to judge by; default: the evaluation's")
    dash.add_argument("--host", default=None, help="let others in: 0.0.0.0, or an address of this machine")
    dash.add_argument("--port", type=int, default=PORT, help=f"default: {PORT}; 0 takes any free one")


def report(options: argparse.Namespace) -> int:
    """Write the page, and say where."""
    from gaitway.analysis.report.board import Board
    from gaitway.analysis.report.page import write_report
    from gaitway.analysis.runs import find_runs

    out = Path(options.out)
    if out.is_dir() or out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{out} is not the name of a page; write -o report.html")
    places = [Path(place) for text in options.runs for place in (_matches(text) or [text])]
    folders = find_runs(places)
    root = Path(os.path.commonpath([folder.absolute().parent for folder in folders]))
    title = options.title or (places[0].resolve().name if len(places) == 1 else root.name) or "runs"
    board = Board(title, root, options.metric)
    board.look([folder.absolute() for folder in folders], inside=False)
    if not board.runs:
        raise ValueError(next(iter(board.problems.values())))
    known = {str(name) for facts in board.runs for name in facts.run.metrics}
    if options.metric is not None and board.metric not in known:
        raise ValueError(f"no run has the metric {options.metric!r}; there are {', '.join(sorted(known))}")
    command = shlex.join(["gaitway", "report", *options.runs])
    path, linked = write_report(board, out, options.embed_mb, command)
    for folder, sentence in board.problems.items():
        console.print(f"left out {folder}: {sentence}", markup=False, soft_wrap=True)
    if linked:
        console.print(f"{linked} films or pictures are linked, because --embed-mb is {options.embed_mb:g}")
    console.print(f"{path}: {len(board.runs)} runs, {path.stat().st_size / 1e6:.1f} MB", markup=False, soft_wrap=True)
    return 0


def dash(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    from gaitway.analysis.report.server import DashServer
    from gaitway.core.run_names import nearest_runs

    folder = Path(options.folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder{nearest_runs(folder)}; name a folder of runs")
    if not 0 <= options.port < 65536:
        raise ValueError(f"--port {options.port} is no port; use 0 to 65535")
    try:
        server = DashServer(folder.absolute(), options.host, options.port, options.metric)
    except OSError as error:
        where = f"{options.host or '127.0.0.1'}:{options.port}"
        raise ValueError(f"{where} cannot be opened ({error.strerror}); choose another --port, or 0") from error
    with server:
        server.board.start()
        print(server.url, flush=True)
        if server.token is not None:
            print("whoever has this address sees all runs below the folder, unencrypted on the way", flush=True)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            pass  # the way to end it
        finally:
            server.board.close()
    return 0


def _matches(text: str) -> list[str]:
    return [] if os.path.exists(text) else sorted(match for match in glob.glob(text) if os.path.isdir(match))


def _megabytes(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < 1e5:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of megabytes; write --embed-mb 50")
    return number
