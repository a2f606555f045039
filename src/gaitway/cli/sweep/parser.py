"""The arguments of `gaitway sweep`; apart from the command, so that the command line stays quick."""

from __future__ import annotations

from typing import Any


def add_parser(commands: Any, count: Any) -> None:
    """Add `sweep` to the subparsers of the command line."""
    parser = commands.add_parser(
        "sweep",
        help="train many runs: seeds, grids, random draws, Optuna",
        description="Train the runs that a file describes: gaitway sweep FILE.yaml --workers 2. Go on: gaitway sweep "
        "--resume DIR. Look: gaitway sweep status DIR. docs/sweeps.md shows the file.",
        epilog="`gaitway train ... --seeds 0..9` and `gaitway train -m key=a,b` are short forms.",
    )
    parser.add_argument("what", nargs="*", metavar="FILE|status DIR", help="a sweep file; or `status` and a folder")
    parser.add_argument("--resume", default=None, metavar="DIR", help="go on with a sweep, bit for bit")
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: try failed trials again")
    parser.add_argument("--out", default=None, metavar="DIR", help="its folder (default: runs/sweeps/NAME)")
    parser.add_argument("--workers", type=count, default=None, help="trials at the same time, which share the cores")
    parser.add_argument("--json", action="store_true", help="with status: for programs")
