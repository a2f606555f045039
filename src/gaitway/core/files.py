"""The one writer of state: tensors as safetensors, everything else as JSON, written atomically.

A state folder holds `state.safetensors` (the tensors) and `state.json` (the structure around them, a format version, a
kind and checksums). Both are complete or the folder does not exist: they are written into a hidden sibling, forced to
disk and renamed into place. Loading checks every byte before anything is returned and never executes code.

What a state may hold is written in `core/state_codec.py`. torch is imported where tensors are met, so that commands
which only look at files need not wait for it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaitway.core.state_codec import decode, encode
from gaitway.core.user_code import SentenceError
from gaitway.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

FORMAT_VERSION = 1
TENSOR_FILE = "state.safetensors"
STRUCTURE_FILE = "state.json"
OF_RUNS = ("checkpoint", "replay chunk")
"""Kinds of which a run has several: where one is damaged, an earlier checkpoint may be whole."""
_PARTIAL = re.compile(r"^\..+\.partial-[0-9a-f]{12}$")
_PREVIOUS = re.compile(r"^\.(.+)\.previous$")


class StateFileError(SentenceError):
    """A state file cannot be written or must not be trusted; the message is one sentence that names the fix."""


def save_state(
    folder: str | Path, state: Mapping[Any, Any], *, kind: str, meta: Mapping[Any, Any] | None = None
) -> None:
    """Store `state` in `folder`, replacing an earlier state there only once the new one is complete on disk."""
    folder = Path(os.path.realpath(folder))
    tensors: dict[str, Tensor] = {}
    document = {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "gaitway": __version__,
        "meta": encode(meta or {}, "meta", tensors),
        "state": encode(state, "state", tensors),
    }
    with replacing_folder(folder, STRUCTURE_FILE, "a state folder") as temporary:
        _write_files(temporary, document, tensors)


@contextmanager
def replacing_folder(folder: str | Path, mark: str, what: str) -> Iterator[Path]:
    """A new, empty sibling of `folder`, which takes its place when the block ends; if it fails, nothing has changed.

    What is replaced must be empty or hold the file `mark`, as `what` does.
    """
    folder = Path(os.path.realpath(folder))
    with _one_sentence(folder):
        if folder.exists() and not (folder.is_dir() and ((folder / mark).is_file() or not any(folder.iterdir()))):
            raise StateFileError(f"{folder} exists and is not {what}; choose another path or remove it first")
        made = [parent for parent in folder.parents if not parent.exists()]
        folder.parent.mkdir(parents=True, exist_ok=True)
        _settle(folder)
        temporary = _sibling(folder)
        try:
            temporary.mkdir()
            yield temporary
            _swap_folder(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            for parent in made:
                with suppress(OSError):  # somebody else uses it by now
                    parent.rmdir()
            raise


def load_state(folder: str | Path, *, kind: str) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The `(state, meta)` of a folder, with tensors on the CPU; any doubt about it is a `StateFileError`."""
    shown, folder = folder, _valid(folder)
    _refuse_strangers(folder, shown)
    document = _read_document(folder / STRUCTURE_FILE, shown, kind)
    tensors = _read_tensors(folder / TENSOR_FILE, shown, document["tensors"], kind)
    used: set[str] = set()
    try:
        state = decode(document["state"], tensors, used)
        meta = decode(document["meta"], tensors, used)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(shown, f"{STRUCTURE_FILE}: {error}", kind) from error
    if used != set(tensors) or not isinstance(state, dict) or not isinstance(meta, dict):
        raise _damaged(shown, "its two files do not belong together", kind)
    return state, meta


def load_meta(folder: str | Path, *, kind: str) -> dict[Any, Any]:
    """The `meta` of a state folder; its tensors are neither read nor checked."""
    document = _read_document(_valid(folder) / STRUCTURE_FILE, folder, kind)
    try:
        meta = decode(document["meta"], {}, set())
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(folder, f"{STRUCTURE_FILE}: {error}", kind) from error
    if not isinstance(meta, dict):
        raise _damaged(folder, f"{STRUCTURE_FILE} has no meta", kind)
    return meta


def stored_kind(folder: str | Path) -> str | None:
    """Of which kind a state folder says it is, unchecked; None where it does not say."""
    try:
        document = json.loads((Path(folder) / STRUCTURE_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else None


def atomic_write_text(path: str | Path, text: str) -> None:
    """Replace `path` by `text`, so that a reader sees the old or the new content and never a part."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_bytes(path: str | Path, content: bytes) -> None:
    """The same for any content."""
    with _replacing(Path(path)) as temporary, open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def atomic_write_json(path: str | Path, data: Any) -> None:
    """Strict JSON by one rename; nan and inf become null, which every JSON reader understands."""
    atomic_write_text(path, json.dumps(finite(data), indent=2, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """The same plain value with every nan and inf replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of tensors on the CPU: names, shapes, dtypes and every byte, in name order."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name} {list(value.shape)} {value.dtype};".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def sync_folder(path: str | Path) -> None:
    """Force the names in a folder to disk; without it a rename may be lost when the power fails."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def swap_link(link: str | Path, target: str | Path) -> None:
    """Point the symbolic link at `target` (relative to the link's folder, or absolute) by one rename.

    What is stored is always relative, so that the whole tree may be moved.
    """
    link = Path(link)
    place = os.path.abspath(link.parent)
    with _replacing(link) as temporary:
        if link.exists() and not link.is_symlink():
            raise StateFileError(f"{link} exists and is not a link; remove it or choose another name")
        temporary.symlink_to(os.path.relpath(os.path.join(place, target), place))


def remove_leftovers(parent: str | Path) -> None:
    """Tidy a folder in which a writer was killed; only for the one process that writes there."""
    parent = Path(parent)
    for path in sorted(parent.iterdir()) if parent.is_dir() else []:
        previous = _PREVIOUS.match(path.name)
        if previous is not None:
            _settle(parent / previous[1])
        elif _PARTIAL.match(path.name):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def writing_advice(error: OSError) -> str:
    """What went wrong with the disk and what to do about it, as the end of a sentence."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space or choose a folder on another disk"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "it is not writable; change its permissions or choose another folder"
    return f"{error.strerror or error}; check the path and the disk, or choose another folder"


@contextmanager
def _one_sentence(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = writing_advice(error)
        raise StateFileError(f"cannot write {path}: {advice} (nothing that was there before is lost)") from error


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """The name of a sibling to make, which then takes the place of `path` by one rename, or leaves no trace."""
    temporary = _sibling(path)
    with _one_sentence(path):
        try:
            yield temporary
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _write_files(folder: Path, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensor_path = folder / TENSOR_FILE
    try:
        save_file(_separate(tensors), tensor_path)
    except SafetensorError as error:  # the operating system's complaint arrives as text, "... (os error 28)"
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error)) from error
    document["tensors"] = {"bytes": tensor_path.stat().st_size, "sha256": _digest(tensor_path)}
    document["checksum"] = _checksum(document)
    structure_path = folder / STRUCTURE_FILE
    structure_path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="ascii")
    shutil.copymode(structure_path, tensor_path)  # safetensors makes files that nobody else can read
    for path in (tensor_path, structure_path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors that share memory with another one; safetensors refuses two names for one storage."""
    seen: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if address in seen and tensor.nbytes else tensor
        seen.add(address)
    return separate


def _swap_folder(temporary: Path, folder: Path) -> None:
    """Two renames: a folder cannot be renamed onto a full one. In between, `load_state` finds the previous one."""
    previous = _previous(folder)
    if folder.exists():
        os.rename(folder, previous)
    try:
        os.rename(temporary, folder)
    except BaseException:
        if previous.exists():
            os.rename(previous, folder)
        raise
    sync_folder(folder.parent)
    shutil.rmtree(previous, ignore_errors=True)


def _settle(folder: Path) -> None:
    """Undo what a killed writer of this folder left behind."""
    previous = _previous(folder)
    if previous.exists():
        if folder.exists():
            shutil.rmtree(previous)
        else:
            os.rename(previous, folder)
    for path in folder.parent.iterdir():
        if _PARTIAL.match(path.name) and path.name.startswith(f".{folder.name}.partial-"):
            shutil.rmtree(path, ignore_errors=True)


def _valid(folder: str | Path) -> Path:
    """The folder that holds a state: where the writer was stopped between its two renames, the earlier one."""
    folder = Path(os.path.realpath(folder))
    previous = _previous(folder)
    return previous if not folder.exists() and _is_state(previous) else folder


def _refuse_strangers(folder: Path, shown: str | Path) -> None:
    """A state is two files; a third one was put there by somebody, who may expect it to be read."""
    names = sorted(path.name for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
    strangers = [name for name in names if name not in (STRUCTURE_FILE, TENSOR_FILE)]
    if strangers and STRUCTURE_FILE not in names:
        raise StateFileError(
            f"{shown} is something else: it holds {strangers[0]!r} and no {STRUCTURE_FILE}; name another"
        )
    if strangers:
        raise StateFileError(f"{shown} holds {strangers[0]!r}, which is not part of a state; remove it and try again")


def _read_document(path: Path, shown: str | Path, kind: str) -> dict[str, Any]:
    if not path.is_file():
        raise StateFileError(f"{shown} holds no state ({STRUCTURE_FILE} is missing); check the path")
    try:
        document = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(shown, f"{STRUCTURE_FILE} is not JSON", kind) from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise StateFileError(f"{shown} is not a gaitway state ({STRUCTURE_FILE} has no format version); check the path")
    if version > FORMAT_VERSION:
        raise StateFileError(
            f"{shown} has format version {version} and this gaitway ({__version__}) reads up to {FORMAT_VERSION}; "
            f"upgrade gaitway to at least {document.get('gaitway', 'the version that wrote it')}"
        )
    if document.get("kind") != kind:
        raise StateFileError(f"{shown} holds a {document.get('kind')!r} where a {kind!r} is needed; check the path")
    if document.pop("checksum", None) != _checksum(document) or not {"state", "meta", "tensors"} <= set(document):
        raise _damaged(shown, f"{STRUCTURE_FILE} was changed", kind)
    return document


def _read_tensors(path: Path, shown: str | Path, expected: dict[str, Any], kind: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load

    if not path.is_file():  # also refuses pipes and devices, which would block
        raise _damaged(shown, f"{TENSOR_FILE} is missing", kind, "incomplete")
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise _damaged(shown, f"{TENSOR_FILE} has {size} bytes instead of {expected['bytes']}", kind)
        if _digest(path) != expected["sha256"]:
            raise _damaged(shown, f"{TENSOR_FILE} was changed", kind)
        if not _is_text(path):
            return load(path.read_bytes())  # safetensors opens no path that is not text
        with safe_open(path, "pt") as file:
            # clones, because the tensors of safetensors stay tied to the file on disk
            return {name: file.get_tensor(name).clone() for name in file.keys()}
    except OSError as error:
        raise StateFileError(f"cannot read {path}: {error.strerror}; check its permissions") from error
    except (SafetensorError, KeyError, TypeError) as error:
        raise _damaged(shown, f"{TENSOR_FILE} is not safetensors", kind) from error


def _damaged(shown: str | Path, why: str, kind: str, how: str = "damaged") -> StateFileError:
    fix = "use another checkpoint" if kind in OF_RUNS else "make it again"
    return StateFileError(f"{shown} is {how} ({why}); copy it again or {fix}")


def _is_text(path: Path) -> bool:
    """Whether the bytes of a path are UTF-8, which no file system asks for."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_state(folder: Path) -> bool:
    return (folder / STRUCTURE_FILE).is_file()


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial-{uuid.uuid4().hex[:12]}")
