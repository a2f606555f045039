"""Where everything about one run lies: a folder that can be moved, copied and understood on another machine.

config.yaml     the effective configuration        checkpoints/   states to go on from, `last` and `best`
contract.json   what the environment promised      failures/      what was at hand when a number was not finite
code.json       revision, versions, run id         code/          changes that were not committed
fingerprint.json that the configuration is one's own
preflight.json  what was known before the first step  wiring.json who writes and reads which variable
summary.json    how it ended                       plots/ videos/ media/  pictures, texts
metrics.jsonl   one line per log                   run.log        what was said
replay/         what an off-policy run learns from, in chunks that the checkpoints name
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from gaitway.core.config import ConfigError, read_config
from gaitway.core.files import StateFileError, atomic_write_json, writing_advice
from gaitway.core.locks import lock_file
from gaitway.core.run_names import nearest_runs
from gaitway.core.signature import KeyFileError, same_signature, signature_of
from gaitway.core.trust import Origin, TrustError, speaker

NUMBERS = ("total_steps",)
"""What `gaitway resume` changes in a configuration; it names nothing."""

log = logging.getLogger("gaitway")
_HELD: set[str] = set()
"""Runs that this process holds; a second lock of the same file would refuse the first one's owner."""

LOCK = ".lock"
ATTEMPTS = 20
"""How often a folder is made again that another process removes at the same time."""


class RunFolderError(ValueError):
    """The folder is not what the command needs; the message is one sentence that names the fix."""


class RunFolderTakenError(RunFolderError):
    """Another run, or another process, has the folder."""


class RunFolder:
    """The paths of a run and its small files. `create` makes a new one, `open` finds an existing one.

    `~` stands for the home folder, which not every shell puts in its place behind a `=`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.expanduser(path))
        self.config = self.path / "config.yaml"
        self.contract = self.path / "contract.json"
        self.code = self.path / "code.json"
        self.fingerprint = self.path / "fingerprint.json"
        self.preflight = self.path / "preflight.json"
        self.wiring = self.path / "wiring.json"
        self.summary = self.path / "summary.json"
        self.metrics = self.path / "metrics.jsonl"
        self.log = self.path / "run.log"
        self.code_changes = self.path / "code"
        self.plots = self.path / "plots"
        self.videos = self.path / "videos"
        self.checkpoints = self.path / "checkpoints"
        self.failures = self.path / "failures"
        self.replay = self.path / "replay"

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """A new run; its folder may exist if it is empty."""
        with cls.beginning(path, undo=False) as folder:
            return folder

    @classmethod
    @contextmanager
    def beginning(cls, path: str | Path, undo: bool = True) -> Iterator[RunFolder]:
        """A new run that is held, as by `writing`, while the block runs.

        Whoever comes second is refused and touches nothing. With `undo`, a run in which nothing was trained when the
        block ends leaves no trace: neither the folder nor those made above it.
        """
        folder = cls(path)
        made: list[Path] = []
        try:
            folder._check_free()
            with folder._claim(made), folder._marked():
                folder._check_free()
                try:
                    folder.write_code({})
                    yield folder
                finally:  # still locked, so that nobody takes the folder for a free one while it goes
                    if (undo or not folder.code.is_file()) and not folder.has_trained:
                        folder._empty()
        finally:
            _remove_empty(made)

    def _check_free(self) -> None:
        """Refuse a folder in which something is; it is left as it is."""
        try:
            # code.json alone is a run that was killed before it had a configuration: nothing is lost by starting again
            found = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        except OSError as error:
            raise StateFileError(f"cannot read the folder {self.path}: {writing_advice(error)}") from error
        taken = {name for name in found - {self.code.name, LOCK} if not name.startswith(f".{self.code.name}.")}
        if taken and self.code.name in found:
            raise RunFolderTakenError(
                f"{self.path} holds a run already; go on with it by `gaitway resume {self.shown}` or choose another "
                "run_dir"
            )
        if taken:
            raise RunFolderError(f"{self.path} is not empty and not a run; choose another run_dir")

    def _claim(self, made: list[Path]) -> TextIO:
        """The lock of the folder, which is made if need be; `made` gets the folders that were."""
        problem: OSError | None = None
        for _ in range(ATTEMPTS):
            try:
                _make_folders(self.path, made)
                lock = self._lock()
            except (FileExistsError, NotADirectoryError) as error:
                reason = "cannot be a folder, a file is in the way; choose another run_dir"
                raise RunFolderError(f"{self.path} {reason}") from error
            except FileNotFoundError as error:  # another process gave up and removed the folder in this moment
                problem = error
                continue
            except OSError as error:
                problem = error
                break
            if _is_at(lock, self.path / LOCK):
                return lock
            lock.close()  # of a folder that is gone by now
        advice = writing_advice(problem) if problem is not None else "another process keeps removing it"
        raise StateFileError(f"cannot create the run folder {self.path}: {advice}") from problem

    def _empty(self) -> None:
        for found in self.path.iterdir() if self.path.is_dir() else ():
            if found.name != LOCK:
                shutil.rmtree(found, ignore_errors=True) if found.is_dir() else found.unlink(missing_ok=True)
        (self.path / LOCK).unlink(missing_ok=True)

    @property
    def has_trained(self) -> bool:
        """Whether there is anything that a run has produced."""
        lines = self.metrics.is_file() and self.metrics.stat().st_size > 0
        return lines or self.failures.exists() or any(self.checkpoints.glob("[0-9]*"))

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """An existing run."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise RunFolderError(f"there is no folder {path}{nearest_runs(folder.path)}; give the run_dir of a run")
        if not (folder.code.is_file() and folder.config.is_file()):
            inside = sorted(str(found.parent) for found in folder.path.glob("*/code.json"))
            hint = f"; it holds the runs {', '.join(inside)}" if inside else ""
            raise RunFolderError(f"{path} is not a run folder (it lacks config.yaml or code.json){hint}")
        return folder

    def sign(self) -> str | None:
        """Mark the run as one that was made here, once its configuration is written; why not, where that fails."""
        try:
            atomic_write_json(self.fingerprint, {"fingerprint": signature_of(self._signed(), create=True)})
        except KeyFileError as error:
            return str(error)
        return None

    def origin(self, config: Mapping[str, Any] | None = None) -> Origin:
        """Who speaks in the configuration (`config`, if it was read already): the person, where it is as it was when
        the run was made here."""
        origin = Origin(trusted=speaker().trusted)
        reason = self._strangeness(config)
        return origin if reason is None else Origin(str(self.path), reason, origin.trusted)

    def _strangeness(self, config: Mapping[str, Any] | None) -> str | None:
        """Why the run does not count as the person's own; None if it does."""
        if not self.fingerprint.is_file():
            return "was not made here (it has no fingerprint)"
        try:
            stored = _read_json(self.fingerprint).get("fingerprint")
            if same_signature(signature_of(self._signed(config)), stored):
                return None
        except (RunFolderError, ConfigError, KeyFileError) as error:
            log.debug("the fingerprint of %s cannot be checked: %s", self.path, error)
        return "was not made here, or its config.yaml was changed"

    def _signed(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a fingerprint vouches for."""
        config = self.read_config() if config is None else config
        names = {key: value for key, value in config.items() if key not in NUMBERS}
        return {"run_id": self.run_id, "config": names}

    @property
    def shown(self) -> str:
        """The path as a shell takes it."""
        return shlex.quote(str(self.path))

    @property
    def run_id(self) -> str:
        """Tells this run from all others, however its folder is named; every checkpoint carries it."""
        identity = self.read_code().get("run_id")
        if not isinstance(identity, str):
            raise RunFolderError(f"{self.code} has no run_id; restore the file from where the run was made")
        return identity

    def need_checkpoint(self) -> None:
        """For commands that cannot do without one."""
        if not (self.checkpoints / "last").exists():
            raise RunFolderError(
                f"{self.path} has no checkpoint yet; let it train longer, or start it again by "
                f"`gaitway resume {self.shown}`"
            )

    def write_code(self, record: Mapping[str, Any]) -> None:
        """code.json; the run id in it is drawn once and stays."""
        identity = self.run_id if self.code.is_file() else uuid.uuid4().hex
        atomic_write_json(self.code, {"run_id": identity, **record})

    def write_contract(self, contract: Mapping[str, Any]) -> None:
        atomic_write_json(self.contract, contract)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        atomic_write_json(self.summary, summary)

    def write_wiring(self, rows: list[dict[str, Any]]) -> None:
        atomic_write_json(self.wiring, {"variables": rows})

    def write_preflight(self, report: Mapping[str, Any]) -> None:
        atomic_write_json(self.preflight, report)

    def read_preflight(self) -> dict[str, Any]:
        """What was known before the first step; empty where nobody looked."""
        return _read_json(self.preflight) if self.preflight.is_file() else {}

    def read_config(self) -> dict[str, Any]:
        return read_config(self.config)

    def read_code(self) -> dict[str, Any]:
        return _read_json(self.code)

    def read_contract(self) -> dict[str, Any]:
        from gaitway.envs.spec import EnvSpec  # knows torch, which commands that only look do without

        contract = _read_json(self.contract)
        try:
            EnvSpec.from_dict(contract)
        except ValueError as error:
            raise RunFolderError(
                f"{self.contract} is damaged ({error}); restore it from where the run was made"
            ) from error
        return contract

    def read_summary(self) -> dict[str, Any]:
        return _read_json(self.summary)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run while training, so that a second `gaitway resume` cannot write into it at the same time.

        The hold ends with the process, however that ends. File systems without locks go unprotected.
        """
        try:
            lock = self._lock()
        except OSError as error:
            raise StateFileError(f"cannot write into the run folder {self.path}: {writing_advice(error)}") from error
        with lock, self._marked():
            yield

    @contextmanager
    def training(self) -> Iterator[None]:
        """`writing`, unless this process holds the run already: a command does so before it makes a runner."""
        if os.path.realpath(self.path) in _HELD:
            yield
            return
        with self.writing():
            yield

    @contextmanager
    def _marked(self) -> Iterator[None]:
        place = os.path.realpath(self.path)
        _HELD.add(place)
        try:
            yield
        finally:
            _HELD.discard(place)

    def _lock(self) -> TextIO:
        """The open lock file, held; RunFolderTakenError if another process has it."""
        try:
            return lock_file(self.path / LOCK)
        except BlockingIOError as error:
            raise RunFolderTakenError(
                f"{self.path} is being trained by another process; wait for it or stop it"
            ) from error


def _make_folders(path: Path, made: list[Path]) -> None:
    """As `mkdir -p`; `made` gets the folders that were not there, innermost first."""
    for folder in (*reversed(path.parents), path):
        try:
            folder.mkdir()
        except OSError:  # a file system may refuse in many ways what is there already
            if not folder.is_dir():
                raise
        else:
            made.insert(0, folder)


def _remove_empty(folders: list[Path]) -> None:
    """Remove those in which nothing is."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return  # in use: so are those above it


def _is_at(file: TextIO, path: Path) -> bool:
    """Whether the open file is the one that `path` names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def check_links(folder: Path, origin: Origin) -> None:
    """Refuse a stranger's folder in which something leads out of it: what is read or written there would be elsewhere.
    Pipes and devices too, which would block or worse."""
    if origin.is_person:
        return
    root = os.path.realpath(folder)
    for place, folders, files in os.walk(root, followlinks=False):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            target = os.path.realpath(path)
            inside = target == root or target.startswith(root + os.sep)
            if os.path.islink(path) and not inside and not origin.allows_file(target):
                raise TrustError(
                    f"{path} leads to {target}, out of {origin.folder}, which {origin.reason}; put the file itself "
                    f"there, or if you trust that, add --trust {target}"
                )
            mode = os.stat(path).st_mode if os.path.exists(path) else stat.S_IFREG
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise TrustError(
                    f"{path} is neither a file nor a folder, and {origin.folder} {origin.reason}; remove it"
                )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(
            f"cannot read {path}: {error.strerror}; is {path.parent} a complete run folder?"
        ) from error
    except ValueError as error:
        raise RunFolderError(f"{path} is damaged (not JSON); restore it from where the run was made") from error
    if not isinstance(data, dict):
        raise RunFolderError(f"{path} is damaged (not an object); restore it from where the run was made")
    return data
