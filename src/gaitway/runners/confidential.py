"""What of a source tree may travel with a run: source files, unless their name or their contents look like a secret.

A run folder is copied, shared and published. So what goes into it is what was said to be fine (types of source files),
less what looks dangerous all the same. A file too many that stays home costs a line in the record.
"""

from __future__ import annotations

import fnmatch
import re
from itertools import pairwise
from pathlib import PurePosixPath

CODE_TYPES = {
    "py", "pyi", "pyx", "pxd", "c", "h", "cc", "cpp", "cxx", "hh", "hpp", "hxx", "cu", "cuh", "m", "mm", "f", "f90",
    "rs", "go", "java", "kt", "swift", "jl", "lua", "r", "sh", "bash", "zsh", "fish", "bat", "ps1", "js", "jsx",
    "ts", "tsx", "css", "html", "cmake", "mk", "proto", "glsl", "vert", "frag", "comp", "wgsl",
}  # fmt: skip
TEXT_TYPES = {"yaml", "yml", "toml", "xml", "mjcf", "urdf", "xacro", "sdf", "srdf", "md", "rst", "tex"}
"""Types of files that people write by hand and that a result depends on, or that explain it."""
SOURCE_NAMES = ("makefile", "dockerfile", "cmakelists.txt", "requirements*.txt", "constraints*.txt")
"""Source files without a type of their own."""
SECRET_WORDS = {
    "secret", "credential", "password", "passwd", "passphrase", "apikey", "keystore", "keyring", "netrc", "pgpass",
    "htpasswd", "kubeconfig", "kube", "vault", "wallet", "serviceaccount",
}  # fmt: skip
"""Words in the name of a file, or of a folder above it, that keep it home."""
SECRET_PAIRS = (("api", "key"), ("private", "key"), ("access", "key"), ("service", "account"), ("ssh", "key"))
TOKEN_WORDS = {"token", "auth", "login"}
"""The same for files that are no code, where such words have other meanings."""
SECRET_NAMES = (
    "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*.ovpn",
    "*.gpg", "*.asc", "*.env", "*.tfvars", "*.tfstate", "authorized_keys", "known_hosts",
)  # fmt: skip
_KEYWORD = r"(?i:api[_-]?key|secret|token|passw(?:or)?d|passwd|passphrase|credentials?|private[_-]?key|access[_-]?key)"
_START = r"(?m:^)[+\- \t]*(?:export[ \t]+|set[ \t]+)?[\"']?[\w.-]*"
_VALUE = r"(?=[\w+/=.~-]*[0-9])[\w+/=.~-]{12,}"
SECRET_CONTENTS = {
    "a private key": (r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY", r"PuTTY-User-Key-File", r"AGE-SECRET-KEY-1"),
    "an access key": (
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b",
        r"\bAIza[0-9A-Za-z_-]{35}",
        r"\bya29\.[0-9A-Za-z_-]{20,}",
    ),
    "a token": (
        r"\bgh[pousr]_[A-Za-z0-9]{30,}",
        r"\bgithub_pat_[A-Za-z0-9_]{20,}",
        r"\bglpat-[A-Za-z0-9_-]{16,}",
        r"\bhf_[A-Za-z0-9]{20,}",
        r"\bnpm_[A-Za-z0-9]{30,}",
        r"\bpypi-[A-Za-z0-9_-]{16,}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"\bsk-[A-Za-z0-9_-]{20,}",
        r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
        r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.",
        r"hooks\.slack\.com/services/T[A-Z0-9]",
    ),
    "a password in an address": (r"\b[a-z][a-z0-9+.-]*://[^\s/:@'\"{}$<]+:[^\s/@'\"{}$<]+@[A-Za-z0-9\[]",),
    "a secret that is set": (  # in code, in a shell, in YAML or TOML; not what is read from elsewhere
        rf"{_KEYWORD}[\w-]*[\"']?\]?[ \t]*(?:=|:)[ \t]*[rbf]?[\"']{_VALUE}[\"']",
        rf"{_START}{_KEYWORD}[\w-]*=[\"']?{_VALUE}[\"']?[ \t]*$",
        rf"{_START}{_KEYWORD}[\w-]*[\"']?:[ \t]+[\"']?{_VALUE}[\"']?,?[ \t]*(?:#.*)?$",
        r"(?i:passw(?:or)?d|passphrase)[\"']?\]?[ \t]*[:=][ \t]*[rbf]?[\"'][^\"'\s{}$<]{6,}[\"']",
        r"(?i:\blogin[ \t]+\S+\s+password[ \t]+\S+)",
    ),
}
"""What is found in a file -> what it looks like."""
_CONTENTS = {what: re.compile("|".join(each).encode(), re.MULTILINE) for what, each in SECRET_CONTENTS.items()}


def name_against(name: str) -> str | None:
    """Why a file of this name, relative to its repository, stays home; None if nothing is said against it."""
    path = PurePosixPath(name)
    code = path.suffix[1:].lower() in CODE_TYPES
    for part in path.parts:
        if part.startswith("."):
            return "it is hidden"
        words = _words(part)
        known = SECRET_WORDS if code else SECRET_WORDS | TOKEN_WORDS
        is_pair = any(pair in pairwise(words) for pair in SECRET_PAIRS)
        if known & set(words) or is_pair or any(fnmatch.fnmatch(part.lower(), pattern) for pattern in SECRET_NAMES):
            return "its name is that of a secret"
    is_source = code or path.suffix[1:].lower() in TEXT_TYPES
    if not (is_source or any(fnmatch.fnmatch(path.name.lower(), pattern) for pattern in SOURCE_NAMES)):
        return "it is no source file"
    return None


def contents_against(content: bytes) -> str | None:
    """Why a file with these contents stays home."""
    if b"\0" in content:
        return "it is binary"
    found = next((what for what, pattern in _CONTENTS.items() if pattern.search(content)), None)
    return None if found is None else f"it holds {found}"


def variable_against(name: str, value: str) -> str | None:
    """Why the value of an environment variable must not be written down; None if nothing is said against it."""
    words = _words(name)
    if (SECRET_WORDS | TOKEN_WORDS) & set(words) or any(pair in pairwise(words) for pair in SECRET_PAIRS):
        return "its name is that of a secret"
    found = contents_against(value.encode(errors="replace"))
    return None if found is None else f"its value looks like one: {found}"


def without_secrets(arguments: list[str]) -> list[str]:
    """The arguments of a command, with a note in the place of values that look like secrets."""
    shown = []
    for text in arguments:
        key, sign, _ = text.partition("=")
        secret = contents_against(text.encode(errors="replace"))
        shown.append(text if secret is None else f"{key if sign else ''}{sign}<left out, {secret}>")
    return shown


def _words(name: str) -> list[str]:
    """The words of a name, in the singular: `hfTokens_v2` has hf, token, v2."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
    return [word[:-1] if word.endswith("s") and not word.endswith("ss") else word for word in words]
