"""Which code made a run: versions, command line, and per git repository the commit with everything not committed.

`code/<repository>.diff` starts with the commit and the status and is otherwise a patch, untracked files included:
`git checkout COMMIT && git apply code/NAME.diff` restores the tree. Nothing here can stop a run: where git is missing,
slow or refuses, the record says so. Nothing that names the host is recorded.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import logging
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gaitway.core.files import StateFileError
from gaitway.runners.run_folder import RunFolder
from gaitway.version import __version__

PACKAGES = ("torch", "mujoco", "gymnasium", "numpy")
TIMEOUT_S = 20.0
MAX_DIFF_BYTES = 16 * 2**20
MAX_FILE_BYTES = 256 * 2**10
MAX_UNTRACKED_BYTES = 4 * 2**20
MAX_UNTRACKED_FILES = 500
PRIVATE = ("*.pem", "*.key", ".env", ".env.*", "*.env", "id_rsa*", "id_ed25519*", "*credential*", "*secret*", ".netrc")
"""Untracked files with such names are listed and never copied."""

log = logging.getLogger("gaitway")


@dataclass
class CodeState:
    """The state of the code: a record for code.json and the patches beside it."""

    record: dict[str, Any]
    patches: dict[str, bytes] = field(default_factory=dict)
    """File name -> content."""


def archive_code(folder: RunFolder, repositories: Iterable[str | Path] = ()) -> dict[str, Any]:
    """Write code.json and code/*.diff of a run; returns the record."""
    state = code_state(repositories, exclude=folder.path)
    try:
        folder.write_code(state.record)
        for name, content in state.patches.items():
            folder.code_changes.mkdir(exist_ok=True)
            (folder.code_changes / name).write_bytes(content)
    except (OSError, StateFileError) as error:
        log.warning("the state of the code is not archived: %s", error)
    return state.record


def code_state(repositories: Iterable[str | Path] = (), *, exclude: Path | None = None) -> CodeState:
    """The state of the library's checkout, the current folder's repository and `repositories`.

    `exclude` is a folder whose untracked files do not count: the run itself.
    """
    versions = {"gaitway": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    state = CodeState({"command": [Path(sys.argv[0]).name, *sys.argv[1:]], "versions": versions, "repositories": []})
    seen: set[Path] = set()
    for path in (Path(__file__).parent, Path.cwd(), *map(Path, repositories)):
        try:
            root = Path(os.fsdecode(_git(path, "rev-parse", "--show-toplevel").rstrip(b"\n"))).resolve()
        except _GitError as error:
            if path not in (Path(__file__).parent, Path.cwd()):  # asked for by name
                state.record["repositories"].append({"name": path.name, "problem": str(error)})
            continue
        if root not in seen:
            seen.add(root)
            _add_repository(state, root, exclude)
    if not seen:
        state.record["note"] = "no git repository was found, so only versions are recorded"
    return state


def _add_repository(state: CodeState, root: Path, exclude: Path | None) -> None:
    name = _free_name(re.sub(r"[^\w.-]", "_", root.name) or "repository", state.record["repositories"])
    entry: dict[str, Any] = {"name": name}
    state.record["repositories"].append(entry)
    try:
        entry["commit"] = _commit(root)
        base = entry["commit"] or _git(root, "hash-object", "-t", "tree", os.devnull).decode().strip()
        status = _git(root, "status", "--porcelain=v1", "--untracked-files=normal").decode(errors="replace")
        diff = _git(root, "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
                    "--src-prefix=a/", "--dst-prefix=b/", base)  # fmt: skip
        entry["modified"] = bool(status.strip())
        if len(diff) > MAX_DIFF_BYTES:
            entry["problem"] = f"the diff of {len(diff)} bytes is left out (limit {MAX_DIFF_BYTES})"
            diff = b""
        entry["untracked"], additions = _untracked(root, exclude)
    except _GitError as error:
        entry["problem"] = str(error)
        return
    header = [f"commit {entry['commit'] or 'none yet'}", *(f"status {line}" for line in status.splitlines())]
    state.patches[f"{name}.diff"] = "".join(f"# {line}\n" for line in header).encode() + diff + additions
    entry["diff"] = f"code/{name}.diff"


def _commit(root: Path) -> str | None:
    try:
        return _git(root, "rev-parse", "--verify", "HEAD").decode().strip()
    except _GitError:
        return None  # a repository without a commit


def _untracked(root: Path, exclude: Path | None) -> tuple[list[dict[str, Any]], bytes]:
    """A list of the untracked files, and a patch that creates those that are small, text and not private."""
    names = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    listed: list[dict[str, Any]] = []
    patch = b""
    hidden = 0
    for name in sorted(os.fsdecode(name) for name in names if name):
        path = root / name
        if exclude is not None and path.resolve().is_relative_to(exclude.resolve()):
            continue
        if len(listed) >= MAX_UNTRACKED_FILES:
            hidden += 1
            continue
        entry, addition = _untracked_file(path, name, MAX_UNTRACKED_BYTES - len(patch))
        listed.append(entry)
        patch += addition
    if hidden:
        listed.append({"path": f"and {hidden} more", "stored": False})
    return listed, patch


def _untracked_file(path: Path, name: str, room: int) -> tuple[dict[str, Any], bytes]:
    entry: dict[str, Any] = {"path": name.encode(errors="replace").decode(), "stored": False}
    try:
        if path.is_symlink() or not path.is_file():
            return entry, b""
        entry["bytes"] = path.stat().st_size
        private = any(fnmatch.fnmatch(path.name.lower(), pattern) for pattern in PRIVATE)
        if private or entry["bytes"] > min(MAX_FILE_BYTES, room) or not _is_plain(name):
            return entry, b""
        content = path.read_bytes()
        executable = os.access(path, os.X_OK)
    except OSError:
        return entry, b""
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    if b"\0" in content:
        return entry, b""
    entry["stored"] = True
    return entry, _creation(name, content, executable)


def _creation(name: str, content: bytes, executable: bool) -> bytes:
    """A patch that creates a file, in the form git writes it."""
    head = f"diff --git a/{name} b/{name}\nnew file mode {'100755' if executable else '100644'}\n"
    if not content:
        return head.encode() + b"index 0000000..e69de29\n"
    lines = content.split(b"\n")
    complete = lines[-1] == b""
    lines = lines[:-1] if complete else lines
    head += f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n"
    body = b"".join(b"+" + line + b"\n" for line in lines)
    return head.encode() + body + (b"" if complete else b"\\ No newline at end of file\n")


def _is_plain(name: str) -> bool:
    """Whether the name needs no quoting in a patch."""
    return name.isprintable() and name.isascii() and not set(name) & {'"', "\\"}


def _free_name(name: str, entries: Iterable[dict[str, Any]]) -> str:
    taken = {entry["name"] for entry in entries}
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


class _GitError(Exception):
    pass


def _git(folder: Path, *arguments: str) -> bytes:
    command: Sequence[str] = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", *arguments)
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise _GitError(f"git {arguments[0]} took longer than {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise _GitError(f"git cannot be run ({error.strerror})") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise _GitError(re.sub(r"'/[^']*'", "here", lines[0]) if lines else f"git {arguments[0]} failed")
    return done.stdout
