"""Which code made a run: versions, command line, and per git repository the commit with the source not committed.

`code/<repository>.diff` starts with the commit, the status and what was left out, and is otherwise a patch, untracked
files included: `git checkout COMMIT && git apply code/NAME.diff` restores the source. Only source files travel, and
none that looks like a secret (`confidential.py`). Nothing here can stop a run: where git is missing, slow or refuses,
the record says so. Nothing that names the host is recorded.
"""

from __future__ import annotations

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
from typing import Any, Literal

from gaitway.core.files import StateFileError
from gaitway.runners.confidential import contents_against, name_against, without_secrets
from gaitway.runners.run_folder import RunFolder
from gaitway.version import __version__

PACKAGES = ("torch", "mujoco", "gymnasium", "numpy")
TIMEOUT_S = 20.0
MAX_DIFF_BYTES = 16 * 2**20
MAX_FILE_BYTES = 256 * 2**10
MAX_UNTRACKED_BYTES = 4 * 2**20
MAX_UNTRACKED_FILES = 500
NAMES_SAID = 5
"""How many of the files that were left out are named in a message; all of them stand in code.json."""
Extent = Literal["none", "tracked", "all"]
"""Which changes are archived: none, those of tracked files, or untracked files too."""

log = logging.getLogger("gaitway")


@dataclass
class CodeState:
    """The state of the code: a record for code.json and the patches beside it."""

    record: dict[str, Any]
    patches: dict[str, bytes] = field(default_factory=dict)
    """File name -> content."""


def archive_code(folder: RunFolder, repositories: Iterable[str | Path] = (), extent: Extent = "all") -> dict[str, Any]:
    """Write code.json and code/*.diff of a run; returns the record."""
    state = code_state(repositories, exclude=folder.path, extent=extent)
    for entry in state.record["repositories"]:
        _say_what_stays(entry)
    try:
        folder.write_code(state.record)
        for name, content in state.patches.items():
            folder.code_changes.mkdir(exist_ok=True)
            (folder.code_changes / name).write_bytes(content)
    except (OSError, StateFileError) as error:
        log.warning("the state of the code is not archived: %s", error)
    return state.record


def code_state(
    repositories: Iterable[str | Path] = (), *, exclude: Path | None = None, extent: Extent = "all"
) -> CodeState:
    """The state of the library's checkout, the current folder's repository and `repositories`.

    `exclude` is a folder whose untracked files do not count: the run itself.
    """
    versions = {"gaitway": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    program = Path(sys.argv[0])
    # `python -m package` names the file __main__.py within it
    name = program.parent.name if program.name == "__main__.py" else program.name
    command = [name, *without_secrets(sys.argv[1:])]
    state = CodeState({"command": command, "versions": versions, "repositories": []})
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
            _add_repository(state, root, exclude, extent)
    if not seen:
        state.record["note"] = "no git repository was found, so only versions are recorded"
    return state


def _say_what_stays(entry: dict[str, Any]) -> None:
    """One line about the files that were left out."""
    left = entry.get("left_out", [])
    if left:
        named = ", ".join(f"{each['path']} ({each['reason']})" for each in left[:NAMES_SAID])
        more = f" and {len(left) - NAMES_SAID} more, see code.json" if len(left) > NAMES_SAID else ""
        log.info("changes of %s that are not archived: %s%s", entry["name"], named, more)


def _add_repository(state: CodeState, root: Path, exclude: Path | None, extent: Extent) -> None:
    name = _free_name(re.sub(r"[^\w.-]", "_", root.name) or "repository", state.record["repositories"])
    entry: dict[str, Any] = {"name": name}
    state.record["repositories"].append(entry)
    try:
        entry["commit"] = _commit(root)
        status = _git(root, "status", "--porcelain=v1", "--untracked-files=normal").decode(errors="replace")
        entry["modified"] = bool(status.strip())
        if extent == "none":
            return
        entry["left_out"] = []
        diff = _tracked(root, entry)
        additions = b""
        entry["untracked"] = []
        if extent == "all":
            entry["untracked"], additions = _untracked(root, exclude, entry["left_out"])
    except _GitError as error:
        entry["problem"] = str(error)
        return
    header = [f"commit {entry['commit'] or 'none yet'}", *(f"status {line}" for line in status.splitlines())]
    header += [f"left out {each['path']}: {each['reason']}" for each in entry["left_out"]]
    state.patches[f"{name}.diff"] = "".join(f"# {line}\n" for line in header).encode() + diff + additions
    entry["diff"] = f"code/{name}.diff"


def _tracked(root: Path, entry: dict[str, Any]) -> bytes:
    """The patch of the tracked source files that have changed; `entry["left_out"]` gets the others."""
    base = entry["commit"] or _git(root, "hash-object", "-t", "tree", os.devnull).decode().strip()
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/")
    names = [os.fsdecode(name) for name in _git(root, "diff", "--name-only", "-z", *options, base).split(b"\0") if name]
    diff = _git(root, "diff", *options, base)
    if len(diff) > MAX_DIFF_BYTES:
        entry["problem"] = f"the diff of {len(diff)} bytes is left out (limit {MAX_DIFF_BYTES})"
        return b""
    # lines of contents begin with a sign or a blank, so that this is where git begins another file
    parts = [b"diff --git" + part for part in re.split(rb"(?m)^diff --git", diff)[1:]]
    if len(parts) != len(names):
        entry["problem"] = "the diff is left out, because a file changed while it was made"
        return b""
    patch = b""
    for name, part in zip(names, parts, strict=True):
        reason = name_against(name) or contents_against(part) or _file_against(root / name)
        if reason is None and re.search(rb"(?m)^(?:Binary files .* differ|GIT binary patch)$", part):
            reason = "it is binary"
        if reason is None:
            patch += part
        else:
            entry["left_out"].append({"path": _printable(name), "reason": reason})
    return patch


def _file_against(path: Path) -> str | None:
    """Why the change of this file stays home: a few lines of a private key do not look like one."""
    try:
        return contents_against(path.read_bytes()) if path.is_file() and not path.is_symlink() else None
    except OSError:
        return "it cannot be read"


def _commit(root: Path) -> str | None:
    try:
        return _git(root, "rev-parse", "--verify", "HEAD").decode().strip()
    except _GitError:
        return None  # a repository without a commit


def _untracked(root: Path, exclude: Path | None, left_out: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bytes]:
    """A list of the untracked files that are archived, and a patch that creates them; `left_out` gets the others."""
    names = _git(root, "ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    listed: list[dict[str, Any]] = []
    patch = b""
    hidden = 0
    for name in sorted(os.fsdecode(name) for name in names if name):
        path = root / name
        if exclude is not None and path.resolve().is_relative_to(exclude.resolve()):
            continue
        if len(listed) + len(left_out) >= MAX_UNTRACKED_FILES:
            hidden += 1
            continue
        reason, content = _read_untracked(path, name, MAX_UNTRACKED_BYTES - len(patch))
        if reason is None:
            listed.append({"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
            patch += _creation(name, content, os.access(path, os.X_OK))
        else:
            left_out.append({"path": _printable(name), "reason": reason})
    if hidden:
        left_out.append({"path": f"{hidden} more", "reason": f"there are more than {MAX_UNTRACKED_FILES}"})
    return listed, patch


def _read_untracked(path: Path, name: str, room: int) -> tuple[str | None, bytes]:
    """Why a file stays home, or None and its contents."""
    reason = name_against(name)
    if reason is not None:
        return reason, b""
    try:
        if path.is_symlink() or not path.is_file():
            return "it is no plain file", b""
        if path.stat().st_size > min(MAX_FILE_BYTES, room):
            return "it is too large", b""
        content = path.read_bytes()
    except OSError:
        return "it cannot be read", b""
    return (None if _is_plain(name) else "its name has odd signs") or contents_against(content), content


def _printable(name: str) -> str:
    return name.encode(errors="replace").decode()


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
