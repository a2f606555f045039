from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaitway.runners import code_archive
from gaitway.runners.code_archive import archive_code, code_state
from gaitway.runners.run_folder import RunFolder


@pytest.fixture(autouse=True)
def only_these_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this checkout nor the user's git settings take part."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "settings").write_text("[color]\n\tui = always\n[diff]\n\tnoprefix = true\n\texternal = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setattr(code_archive, "__file__", str(tmp_path / "settings"))
    monkeypatch.chdir(tmp_path)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q")
    (path / "train.py").write_text("rate = 1\n")
    (path / "old.py").write_text("old\n")
    (path / "weights.bin").write_bytes(bytes(range(256)))
    (path / ".gitignore").write_text("ignored.txt\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return path


def change(path: Path) -> None:
    (path / "train.py").write_text("rate = 2\n")
    (path / "old.py").unlink()
    (path / "weights.bin").write_bytes(bytes(range(255, -1, -1)))
    (path / "sub folder").mkdir()
    (path / "sub folder" / "new file.py").write_text("a\n\nb")
    (path / "empty.py").write_text("")
    (path / "tool.sh").write_text("#!/bin/sh\n")
    (path / "tool.sh").chmod(0o755)
    (path / "staged.py").write_text("staged\n")
    git(path, "add", "staged.py")
    (path / "ignored.txt").write_text("ignored\n")


def tree(path: Path) -> dict[str, tuple[bytes, bool]]:
    files = [found for found in path.rglob("*") if found.is_file() and ".git" not in found.parts]
    return {
        str(found.relative_to(path)): (found.read_bytes(), os.access(found, os.X_OK))
        for found in files
        if found.name != "ignored.txt"
    }


def test_commit_and_patch_restore_the_tree(tmp_path: Path) -> None:
    root = repository(tmp_path / "robot")
    change(root)
    folder = RunFolder.create(tmp_path / "run")
    record = archive_code(folder, [root])
    (entry,) = record["repositories"]
    assert entry["commit"] == git(root, "rev-parse", "HEAD")
    assert entry["modified"]
    assert folder.read_code() == {"run_id": folder.run_id, **record}
    git(tmp_path, "clone", "-q", str(root), "restored")
    git(tmp_path / "restored", "checkout", "-q", entry["commit"])
    assert tree(tmp_path / "restored") != tree(root)
    git(tmp_path / "restored", "apply", str(folder.path / entry["diff"]))
    # a binary file is no source: it is named and does not travel
    assert entry["left_out"] == [{"path": "weights.bin", "reason": "it is no source file"}]
    assert b"# left out weights.bin: it is no source file\n" in (folder.path / entry["diff"]).read_bytes()
    restored = tree(tmp_path / "restored")
    assert restored.pop("weights.bin") != tree(root)["weights.bin"]
    assert restored == {name: found for name, found in tree(root).items() if name != "weights.bin"}


def test_a_clean_repository(tmp_path: Path) -> None:
    root = repository(tmp_path / "robot")
    state = code_state([root])
    (entry,) = state.record["repositories"]
    assert not entry["modified"]
    assert entry["untracked"] == []
    assert state.patches["robot.diff"] == f"# commit {entry['commit']}\n".encode()


def test_versions_and_command_but_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "bin" / "gaitway"), "train", "seed=1"])
    record = code_state([repository(tmp_path / "robot")]).record
    assert record["command"] == ["gaitway", "train", "seed=1"]
    assert set(record["versions"]) == {"gaitway", "python", "torch", "mujoco", "gymnasium", "numpy"}
    assert record["versions"]["python"].startswith("3.")
    assert str(tmp_path) not in str(record)
    assert os.uname().nodename not in str(record)


def test_limits_on_untracked_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "robot")
    monkeypatch.setattr(code_archive, "MAX_FILE_BYTES", 100)
    monkeypatch.setattr(code_archive, "MAX_UNTRACKED_FILES", 8)
    (root / "a_large.py").write_text("x" * 101)
    (root / "b_small.py").write_text("small\n")
    (root / "c_binary.py").write_bytes(b"\0\1")
    (root / "d_secret.key").write_text("private words\n")
    (root / ".env").write_text("TOKEN=private words\n")
    (root / "e_link.py").symlink_to("/etc/hostname")
    (root / 'f_"quoted".py').write_text("odd name\n")
    run = root / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text("{}\n")
    for index in range(5):
        (root / f"z{index}.py").write_text("z\n")
    state = code_state([root], exclude=run)
    (entry,) = state.record["repositories"]
    assert [each["path"] for each in entry["untracked"]] == ["b_small.py", "z0.py"]
    assert {each["path"]: each["reason"] for each in entry["left_out"]} == {
        ".env": "it is hidden",
        "a_large.py": "it is too large",
        "c_binary.py": "it is binary",
        "d_secret.key": "its name is that of a secret",
        "e_link.py": "it is no plain file",
        'f_"quoted".py': "its name has odd signs",
        "4 more": "there are more than 8",
    }
    patch = state.patches["robot.diff"]
    assert b"+small" in patch
    assert b"private words" not in patch
    assert b"xxx" not in patch


def test_the_total_and_the_diff_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "robot")
    (root / "train.py").write_text("rate = 3\n" * 100)
    for name in ("a.py", "b.py", "c.py"):
        (root / name).write_text("0123456789\n" * 10)
    monkeypatch.setattr(code_archive, "MAX_UNTRACKED_BYTES", 300)
    monkeypatch.setattr(code_archive, "MAX_DIFF_BYTES", 100)
    (entry,) = code_state([root]).record["repositories"]
    assert [each["path"] for each in entry["untracked"]] == ["a.py"]
    assert [(each["path"], each["reason"]) for each in entry["left_out"]] == [
        ("b.py", "it is too large"),
        ("c.py", "it is too large"),
    ]
    assert "is left out (limit 100)" in entry["problem"]


def test_equal_names_do_not_overwrite_and_equal_repositories_count_once(tmp_path: Path, monkeypatch: Any) -> None:
    first, second = repository(tmp_path / "one" / "robot"), repository(tmp_path / "two" / "robot")
    (second / "train.py").write_text("second\n")
    monkeypatch.chdir(first)
    (first / "inner").mkdir()
    state = code_state([second, first / "inner", second])
    assert [entry["name"] for entry in state.record["repositories"]] == ["robot", "robot-2"]
    assert b"+second" not in state.patches["robot.diff"]
    assert b"+second" in state.patches["robot-2.diff"]


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    root = tmp_path / "fresh"
    root.mkdir()
    git(root, "init", "-q")
    (root / "staged.py").write_text("staged\n")
    git(root, "add", "staged.py")
    (root / "loose.py").write_text("loose\n")
    state = code_state([root])
    (entry,) = state.record["repositories"]
    assert entry["commit"] is None
    assert state.patches["fresh.diff"].startswith(b"# commit none yet\n")
    assert b"+staged" in state.patches["fresh.diff"]
    assert b"+loose" in state.patches["fresh.diff"]


def test_no_repository_or_no_git_is_said_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").mkdir()
    record = code_state([tmp_path / "plain", tmp_path / "absent"]).record
    assert "no git repository was found" in record["note"]
    assert "not a git repository" in record["repositories"][0]["problem"]
    assert "git cannot be run" in record["repositories"][1]["problem"]
    root = repository(tmp_path / "robot")
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = RunFolder.create(tmp_path / "run")
    record = archive_code(folder, [root])
    assert "git cannot be run" in record["repositories"][0]["problem"]
    assert not folder.code_changes.exists()


def test_a_git_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "robot")
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    monkeypatch.setattr(code_archive, "TIMEOUT_S", 0.05)
    assert "took longer than 0.05 s" in code_state([root]).record["repositories"][0]["problem"]


def test_a_full_disk_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = repository(tmp_path / "robot")
    folder = RunFolder.create(tmp_path / "run")
    folder.code_changes.write_text("in the way")
    archive_code(folder, [root])
    assert "the state of the code is not archived" in caplog.text
