"""Where figures come from, for benchmarks that start `gaitway` itself: commit, command, machine."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import Any

from _rounds import machine, revision


def add_commit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--commit", default=None, help="the commit of this source, where there is no git to ask")


def provenance(name: str, commit: str | None) -> dict[str, Any]:
    """What a raw file says of its origin, asked before anything is measured."""
    return {
        "commit": commit or revision()[:7],
        "command": shlex.join(["gaitway", "bench", name, *sys.argv[1:]]),
        "machine": machine() | {"load_at_beginning": os.getloadavg()[0]},
    }


def let_children_import() -> None:
    """Let processes that are started from any folder import what this one does."""
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
