"""What tells a run of one's own from a stranger's: a keyed fingerprint of what the run may import.

The key is 32 random bytes in the user's state folder (`$XDG_STATE_HOME/gaitway` or `~/.local/state/gaitway`), readable
by the user alone. It never leaves that folder; without it nobody can make a fingerprint that fits.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEY_BYTES = 32


class KeyFileError(OSError):
    """The key cannot be made or must not be used; the message says why."""


def state_folder() -> Path:
    """Where the key lies."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):  # the specification says to ignore others
        return Path(base) / "gaitway"
    try:
        return Path.home() / ".local" / "state" / "gaitway"
    except RuntimeError as error:
        raise KeyFileError("there is no home folder to keep a key in; set XDG_STATE_HOME") from error


def signature_of(content: Mapping[str, Any], *, create: bool = False) -> str:
    """The fingerprint of plain values under the user's key, which is made when `create` says so; a `KeyFileError` where
    there is none."""
    text = json.dumps(content, sort_keys=True, default=repr, separators=(",", ":"))
    return hmac.new(_key(create), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def same_signature(one: str, other: Any) -> bool:
    """Whether two fingerprints are equal, compared in a time that tells nothing."""
    return isinstance(other, str) and hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))


def _key(create: bool) -> bytes:
    path = state_folder() / "key"
    try:
        if create and not path.exists():
            _make(path)
        found = path.stat()
        if stat.S_IMODE(found.st_mode) & 0o077 and os.name == "posix":
            raise KeyFileError(f"others may read {path}; run: chmod 600 {path}")
        key = path.read_bytes()
    except KeyFileError:
        raise
    except OSError as error:
        raise KeyFileError(f"cannot read or make the key {path}: {error.strerror or error}") from error
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{path} is damaged; remove it, and runs made from now on count as your own again")
    return key


def _make(path: Path) -> None:
    """Write a new key; of two processes that do so at once, the first one's stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f".key.{secrets.token_hex(6)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        try:
            os.link(partial, path)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
