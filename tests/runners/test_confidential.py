"""Secrets stay home: what of a working tree goes into a run folder, and what never does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gaitway.cli.main import main
from gaitway.runners import code_archive
from gaitway.runners.code_archive import archive_code
from gaitway.runners.confidential import contents_against, name_against, without_secrets
from gaitway.runners.run_folder import RunFolder

MARK = "Zq81" + "kTw0c7Yx5Lm2Np9Rb4Vd6"
"""What must not travel; put together, so that this file is no secret."""
KEY = "-----BEGIN OPENSSH " + f"PRIVATE KEY-----\n{MARK}\n-----END OPENSSH " + "PRIVATE KEY-----\n"
SECRETS = {
    ".aws/config": f"[default]\naws_secret_access_key = {MARK}\n",
    ".aws/credentials": f"[default]\naws_secret_access_key = {MARK}\n",
    ".kube/config": f"users:\n- user:\n    token: {MARK}\n",
    ".pypirc": f"[pypi]\npassword = {MARK}\n",
    ".npmrc": f"//registry/:_authToken={MARK}\n",
    ".netrc": f"machine host login me password {MARK}\n",
    ".env": f"WANDB_API_KEY={MARK}\n",
    ".env.local": f"API={MARK}\n",
    ".docker/config.json": json.dumps({"auths": {"host": {"auth": MARK}}}),
    ".ssh/id_ed25519": KEY,
    ".git-credentials": f"https://me:{MARK}@host\n",
    "id_rsa": KEY,
    "id_ecdsa": KEY,
    "hf_token.txt": f"{MARK}\n",
    "service_account.json": json.dumps({"private_key": MARK}),
    "server.pem": KEY,
    "secrets.yaml": f"pin: {MARK}\n",
    "deploy/prod.env": f"A={MARK}\n",
}
"""The 18 of the tree that was attacked."""
RELATIVES = {
    "settings.py": f'API_KEY = "{MARK}"\n',
    "run.sh": f"export HF_TOKEN={MARK}\n",
    "config.yaml": f"wandb:\n  api_key: {MARK}\n",
    "deploy.toml": f'password = "{MARK}"\n',
    "notes.md": f"curl https://me:{MARK}@host/x\n",
    "key_in_code.py": f'KEY = """{KEY}"""\n',
    "secrets.py": f"x = '{MARK}'\n",
    "apiKey.yaml": f"x: {MARK}\n",
    "private_keys/robot.yaml": f"x: {MARK}\n",
    "kubeconfig.yaml": f"x: {MARK}\n",
    "notebook.ipynb": json.dumps({"out": MARK}),
    "dump.sql": f"insert {MARK}\n",
    "history.txt": f"{MARK}\n",
    "data.csv": f"{MARK}\n",
    "noending": f"{MARK}\n",
}


@pytest.fixture(autouse=True)
def only_this_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setattr(code_archive, "__file__", str(tmp_path / "settings"))
    monkeypatch.chdir(tmp_path)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, check=True)


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "robot"
    write(root, "train.py", "rate = 1\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    return root


def archived(root: Path, extent: str = "all") -> tuple[dict, bytes]:
    """The entry of the repository in code.json, and every byte that is in the run folder."""
    folder = RunFolder.create(root.parent / "run")
    (entry,) = archive_code(folder, [root], extent)["repositories"]
    return entry, b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())


def test_none_of_eighteen_secret_files_travels(tree, caplog):
    for name, text in SECRETS.items():
        write(tree, name, text)
    write(tree, "new.py", "rate = 3\n")
    caplog.set_level("INFO", "gaitway")
    entry, everything = archived(tree)
    assert len(SECRETS) == 18
    assert MARK.encode() not in everything
    assert {each["path"] for each in entry["left_out"]} == set(SECRETS)
    assert [each["path"] for each in entry["untracked"]] == ["new.py"]
    assert b"+rate = 3" in everything
    assert "changes of robot that are not archived: .aws/config (it is hidden)" in caplog.text
    assert "and 13 more, see code.json" in caplog.text


@pytest.mark.parametrize("tracked", [False, True], ids=["untracked", "tracked"])
@pytest.mark.parametrize("name", [*SECRETS, *RELATIVES])
def test_each_alone_stays_and_is_named(tree, name, tracked):
    if tracked:
        write(tree, name, "harmless\n")
        git(tree, "add", "-f", name)
        git(tree, "commit", "-q", "-m", "second")
    write(tree, name, (SECRETS | RELATIVES)[name])
    entry, everything = archived(tree)
    assert MARK.encode() not in everything
    assert [each["path"] for each in entry["left_out"]] == [name]
    assert entry["modified"]


def test_a_secret_that_is_removed_stays_too(tree):
    write(tree, "settings.py", f'api_key = "{MARK}"\n')
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "oops")
    write(tree, "settings.py", "api_key = None\n")
    entry, everything = archived(tree)
    assert MARK.encode() not in everything
    assert entry["left_out"] == [{"path": "settings.py", "reason": "it holds a secret that is set"}]


def test_a_line_in_the_middle_of_a_key_stays(tree):
    lines = [f"line{number}" for number in range(40)]
    write(tree, "module.py", KEY.replace(MARK, "\n".join(lines)))
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "oops")
    write(tree, "module.py", KEY.replace(MARK, "\n".join(lines).replace("line20", MARK)))
    entry, everything = archived(tree)
    assert MARK.encode() not in everything
    assert entry["left_out"] == [{"path": "module.py", "reason": "it holds a private key"}]


@pytest.mark.parametrize(("extent", "has_tracked", "has_new"), [("none", 0, 0), ("tracked", 1, 0), ("all", 1, 1)])
def test_the_extent(tree, extent, has_tracked, has_new):
    write(tree, "train.py", "rate = 2\n")
    write(tree, "new.py", "rate = 3\n")
    entry, everything = archived(tree, extent)
    assert (b"+rate = 2" in everything) == has_tracked
    assert (b"+rate = 3" in everything) == has_new
    assert ("diff" in entry) == (extent != "none")
    assert entry["modified"]


def test_the_command_line_chooses_the_extent(tree, monkeypatch, capsys):
    monkeypatch.chdir(tree)
    write(tree, "new.py", "rate = 3\n")
    small = ["env.id=toy/cartpole", "env.num_envs=2", "total_steps=64", "evaluation.episodes=1", "--quiet"]
    assert main(["train", *small, "logging.code=none", "run_dir=../run"]) == 0
    assert not (tree.parent / "run" / "code").exists()
    assert main(["train", *small, "logging.code=everything", "run_dir=../other"]) == 1
    assert "logging.code" in capsys.readouterr().err
    assert not (tree.parent / "other").exists()


@pytest.mark.parametrize(
    "name",
    ["train.py", "src/tokenizer.py", "token_embedding.py", "robots/walker.xml", "conf/run.yaml", "kernel.cu",
     "Makefile", "docs/keys.md", "env.py", "requirements-dev.txt", "CMakeLists.txt", "keyboard.cpp", "monkey.py",
     "author.md", "passenger.py"],
)  # fmt: skip
def test_source_travels(name):
    assert name_against(name) is None


@pytest.mark.parametrize(
    "text",
    [
        "token = tokenizer.encode(text)",
        "api_key = os.environ['API_KEY']",
        'parser.add_argument("--password", help="the password")',
        "password: str | None = None",
        "def login(user, password): ...",
        "secret_reward = 0.123456789012345",
        "tokens: Float[Tensor, 'batch 1024']",
        "see https://host:8080/path@version",
        "key = jax.random.PRNGKey(0)",
        "TOKEN = '<unset>'",
        "sk-learn",
        "kwargs = dict(token=None, secret=False)",
    ],
)
def test_ordinary_code_is_no_secret(text):
    assert contents_against(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "x = 'ghp" + "_" + "a1B2" * 9 + "'",
        "github" + "_pat_" + "11ABCDEFG0" * 3,
        "glp" + "at-" + "abcdEFGH12345678",
        "hf" + "_" + "AbCdEfGhIj" * 3,
        "sk" + "-proj-" + "abcd1234" * 4,
        "xox" + "b-1234567890-abcdef",
        "AI" + "za" + "a" * 35,
        "py" + "pi-AgEIcHlwaS5vcmc" + "abc",
        "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3.abc",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "postgres://user:" + "hunter2@db/x",
        f"password: {MARK}",
        "'password': " + '"correct-horse"',
    ],
)
def test_secrets_by_their_looks(text):
    assert contents_against(text.encode()).startswith("it holds ")


def test_the_command_is_recorded_without_its_secrets(monkeypatch):
    token = "hf" + "_" + "AbCdEfGhIj" * 3
    arguments = ["train", "seed=1", f"env.options.token={token}", token]
    assert without_secrets(arguments) == [
        "train",
        "seed=1",
        "env.options.token=<left out, it holds a token>",
        "<left out, it holds a token>",
    ]
    monkeypatch.setattr(sys, "argv", ["gaitway", *arguments])
    assert token not in json.dumps(code_archive.code_state().record)
