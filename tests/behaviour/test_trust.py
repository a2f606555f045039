"""A run folder never executes code: what a stranger's run names is judged before anything is imported.

Every hostile module here leaves a mark when it is imported; every hostile folder is compared with itself afterwards.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from gaitway.cli.build import build_env
from gaitway.cli.main import main
from gaitway.cli.open_run import open_run
from gaitway.core import signature
from gaitway.core.config import ConfigError, resolve_class
from gaitway.core.trust import Origin, TrustError, check_trusted, judge_options, present_folder, speaker, speaking
from gaitway.envs.gym.state import decode, restore
from gaitway.envs.registry import make_env
from gaitway.runners.run_folder import RunFolder

TINY = ["env.id=toy/cartpole", "env.num_envs=4", "algorithm.rollout_steps=8", "total_steps=32",
        "evaluation.episodes=1", "agent.actor_hidden=[4]", "agent.critic_hidden=[4]"]  # fmt: skip
EVIL = """
import pathlib
(pathlib.Path(__file__).resolve().parent / "RAN").touch()


def anything(*arguments, **options):
    (pathlib.Path(__file__).resolve().parent / "RAN").touch()
"""
GOOD = """
from gaitway.envs.toys.toys import TOYS
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.wrappers import Wrapper


def Poles(**options):
    return ToyEnv(TOYS["toy/cartpole"](), id="good_poles:Poles", **options)


class Same(Wrapper):
    pass
"""
LOADER, DUMPER = (getattr(yaml, f"CSafe{kind}", getattr(yaml, f"Safe{kind}")) for kind in ("Loader", "Dumper"))
ARGUMENTS = {
    "eval": ["eval", "RUN", "--episodes", "1"],
    "play": ["play", "RUN", "--no-video", "--steps", "2"],
    "info": ["info", "RUN", "--verify"],
    "collect": ["collect", "RUN", "--steps", "4", "--out", "OUT", "--quiet"],
    "resume": ["resume", "RUN", "more=32", "--quiet"],
}
PLAYING, ALL = ("eval", "play", "collect", "resume"), tuple(ARGUMENTS)
DOORS = {
    "environment": ({"env.id": "evil_door:anything"}, PLAYING),
    "torch.hub": (
        {"env.id": "torch.hub:load", "env.options": {"repo_or_dir": "RUN", "source": "local", "model": "x"}},
        PLAYING,
    ),
    "gymnasium id": ({"env.id": "gymnasium:evil_door:Anything-v0"}, PLAYING),
    "gymnasium class": (
        {"env.id": "gaitway.envs.gym.env:GymnasiumEnv", "env.options": {"source": "evil_door:Anything-v0"}},
        PLAYING,
    ),
    "option module": ({"env.id": "gymnasium:CartPole-v1", "env.options": {"maker": "evil_door:anything"}}, PLAYING),
    "option file": ({"env.id": "gymnasium:CartPole-v1", "env.options": {"xml_file": "RUN/evil_door.py"}}, PLAYING),
    "option file here": ({"env.id": "gymnasium:CartPole-v1", "env.options": {"file": "evil_door.py"}}, PLAYING),
    "option deep": ({"env.id": "toy/cartpole", "env.options": {"a": [{"b": "../evil_door.py"}]}}, PLAYING),
    "wrapper": ({"env.wrappers": [{"name": "evil_door:anything"}]}, PLAYING),
    "wrapper option": ({"env.wrappers": [{"name": "history", "group": "evil_door:anything"}]}, PLAYING),
    "evaluation": ({"evaluation.env": {"id": "evil_door:anything"}}, ("eval", "play", "resume")),
    "network": ({"agent.actor_network": {"name": "evil_door:anything"}}, ALL),
    "critic": ({"agent.critic_network": {"name": "evil_door.deep:anything"}}, ALL),
    "block": ({"agent.blocks": [{"name": "evil_door:anything", "reads": ["policy"], "writes": "x"}]}, ALL),
    "term": ({"algorithm.terms": [{"name": "evil_door:anything"}]}, ("resume",)),
    "source": ({"rewards": [{"name": "evil_door:anything"}]}, ("info", "resume")),
    "source by name": ({"rewards": ["evil_door:anything"]}, ("info", "resume")),
    "cast": ({"cast": [{"name": "evil_door:anything"}]}, ALL),
    "callback": ({"callbacks": [{"name": "evil_door:anything"}]}, ("resume",)),
    "recipe": ({"algorithm.name": "evil_door:anything"}, ALL),
    "dataset": ({"data.path": "/RUN/data"}, ("resume",)),
    "recorder": ({"cast": [{"name": "recorder", "path": "../elsewhere"}]}, ("resume",)),
    "recorder here": ({"cast": [{"name": "recorder", "path": "elsewhere"}]}, ("resume",)),
    "repository": ({"repositories": ["RUN"]}, ("resume",)),
    "wandb": ({"logging.wandb": {"settings": {"base_url": "http://localhost:1"}}}, ("resume",)),
    "not an environment": ({"env.id": "gaitway.core.files:atomic_write_text"}, PLAYING),
    "a function of ours": ({"env.id": "gaitway.envs.registry:make_env"}, PLAYING),
    "through ours": ({"env.id": "gaitway.core.files:os.system"}, PLAYING),
    "no wrapper": ({"env.wrappers": [{"name": "gaitway.core.files:shutil.rmtree"}]}, PLAYING),
    "no network": ({"agent.actor_network": {"name": "gaitway.core.files:save_state"}}, ALL),
    "torch's network": ({"agent.actor_network": {"name": "gaitway.nn.mlp:nn.Linear"}}, ALL),
    "no block": ({"agent.blocks": [{"name": "gaitway.nn.mlp:MLP", "reads": ["policy"], "writes": "x"}]}, ALL),
    "no term": ({"algorithm.terms": [{"name": "gaitway.cli.open_run:open_run"}]}, ("resume",)),
    "no source": ({"rewards": [{"name": "gaitway.core.files:swap_link"}]}, ("info", "resume")),
    "no agent": ({"cast": [{"name": "gaitway.nn.mlp:MLP"}]}, ALL),
    "no callback": ({"callbacks": [{"name": "gaitway.runners.run_folder:RunFolder"}]}, ("resume",)),
    "no recipe": ({"algorithm.name": "gaitway.cli.main:main"}, ALL),
}
"""What the configuration says, and the commands that would need it; the others do without."""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run that was made here."""
    path = tmp_path_factory.mktemp("own") / "run"
    assert main(["train", *TINY, f"run_dir={path}", "--quiet"]) == 0
    return path


@pytest.fixture
def copy(own, tmp_path, monkeypatch):
    """A copy of it to change, in a folder where one stands, which holds hostile and harmless modules."""
    shutil.copytree(own, tmp_path / "run", symlinks=True)
    for folder in (tmp_path, tmp_path / "run"):
        (folder / "evil_door.py").write_text(EVIL)
    (tmp_path / "good_poles.py").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "run"
    for name in ("evil_door", "good_poles"):
        sys.modules.pop(name, None)


def change(run, **changes):
    """Write dotted keys into the configuration."""
    config = yaml.load((run / "config.yaml").read_text(), LOADER)
    for key, value in changes.items():
        section, names = config, key.split(".")
        for name in names[:-1]:
            section = section[name]
        section[names[-1]] = _filled(value, run)
    (run / "config.yaml").write_text(yaml.dump(config, Dumper=DUMPER))


def _filled(value, run):
    return json.loads(json.dumps(value).replace("/RUN", str(run)).replace("RUN", str(run)))


def contents(folder):
    """Every byte, link and time of a folder."""
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def call(command, run, *more):
    return main(
        [str(run) if text == "RUN" else text.replace("OUT", f"{run}_out") for text in ARGUMENTS[command]] + [*more]
    )


def has_run(run):
    return any((folder / "RAN").exists() for folder in (run, run.parent)) or "evil_door" in sys.modules


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize("door", DOORS)
def test_nothing_that_a_stranger_names_runs(door, command, copy, capsys):
    changes, needed_by = DOORS[door]
    change(copy, **changes)
    before = contents(copy)
    code = call(command, copy)
    said = capsys.readouterr().err
    assert not has_run(copy)
    if command not in needed_by:
        assert code == 0
        return
    assert code == 1
    assert said.count("\n") == 1
    assert str(copy) in said
    assert "was not made here, or its config.yaml was changed" in said
    assert "--trust" in said or "correct its config.yaml" in said
    assert contents(copy) == before
    assert not Path(f"{copy}_out").exists()


@pytest.mark.parametrize(
    ("door", "words"),
    [
        ("environment", ["env.id", "'evil_door:anything'", "evil_door.py) would be imported", "--trust evil_door\n"]),
        ("torch.hub", ["'torch.hub:load'", "--trust torch.hub\n"]),
        ("gymnasium id", ["'evil_door:Anything-v0'", "--trust evil_door\n"]),
        ("option file here", ["env.options.file", "the file or folder 'evil_door.py'", "--trust evil_door.py\n"]),
        ("not an environment", ["'gaitway.core.files:atomic_write_text' is no VecEnv"]),
        ("term", ["algorithm.terms[0]", "--trust evil_door\n"]),
        ("repository", ["repositories", "--trust"]),
        ("wandb", ["logging.wandb", "--trust wandb\n"]),
    ],
)
def test_the_refusal_says_what_would_be_imported_and_how_to_allow_it(door, words, copy, capsys):
    change(copy, **DOORS[door][0])
    assert call("resume", copy) == 1
    said = capsys.readouterr().err
    for word in words:
        assert word in said


@pytest.mark.parametrize("command", PLAYING)
def test_what_the_person_trusts_is_imported(command, copy, capsys):
    change(copy, **{"env.id": "good_poles:Poles", "env.wrappers": [{"name": "good_poles:Same"}]})
    assert call(command, copy) == 1
    assert call(command, copy, "--trust", "other", "--trust", "good_poles.deeper") == 1
    assert "good_poles" not in sys.modules
    assert call(command, copy, "--trust", "good_poles") == 0
    assert "good_poles" in sys.modules


def test_trust_in_a_package_covers_its_modules_and_nothing_beside_it():
    origin = Origin("x", "is strange", ("package", "other.part"))
    for module, allowed in {
        "package": True, "package.deep.er": True, "packages": False, "other": False, "other.part.x": True,
    }.items():  # fmt: skip
        assert origin.allows_module(module) is allowed


@pytest.mark.parametrize("name", ["", "a b", "no/../such thing?"[:0] + "1up", "x y.py"])
def test_what_cannot_be_trusted_is_said(name, own, capsys):
    assert main(["eval", str(own), "--trust", name]) == 1
    assert "name a module such as my_package" in capsys.readouterr().err


def test_a_typed_environment_is_the_persons_and_the_policy_still_a_strangers(copy, capsys):
    assert main(["play", "good_poles:Poles", "--policy", str(copy), "--no-video", "--steps", "2"]) == 0
    change(copy, **{"env.wrappers": [{"name": "evil_door:anything"}]})
    assert main(["play", "good_poles:Poles", "--policy", str(copy), "--no-video", "--steps", "2"]) == 1
    assert "--trust evil_door" in capsys.readouterr().err
    assert not has_run(copy)


def test_two_runs_are_each_judged_under_their_own_name(copy, own, capsys):
    change(copy, **{"env.id": "evil_door:anything"})
    assert main(["play", str(copy), "--policy", str(own), "--no-video", "--steps", "2"]) == 1
    assert main(["play", str(own), "--policy", str(copy), "--no-video", "--steps", "2"]) == 0
    assert not has_run(copy)


def test_a_folder_called_like_a_name_is_not_typed(copy, capsys):
    change(copy, **{"env.id": "evil_door:anything"})
    copy.rename(copy.parent / "evil_door:anything")
    assert main(["eval", "evil_door:anything"]) == 1
    assert "--trust evil_door" in capsys.readouterr().err
    assert not (copy.parent / "RAN").exists()


@pytest.mark.parametrize("place", ["teacher", "nested"])
def test_a_run_named_by_another_is_judged_too(place, copy, own, capsys):
    teacher = copy.parent / "teacher"
    shutil.copytree(copy, teacher, symlinks=True)
    change(teacher, **{"agent.actor_network": {"name": "evil_door:anything"}})
    term = {"name": "action_distance", "coef": 1.0, "frozen": str(teacher)}
    written = f'{{name: action_distance, coef: 1.0, frozen: "{teacher}"}}'
    if place == "teacher":  # the person names the inner run, which names what is not theirs
        code = main(["train", *TINY, f"algorithm.terms=[{written}]", "run_dir=new", "--quiet"])
        assert "agent.actor_network" in capsys.readouterr().err
        assert not Path("new").exists()
    else:  # a stranger's run names the inner one
        change(copy, **{"algorithm.terms": [term]})
        code = call("resume", copy)
        assert f"--trust {teacher}" in capsys.readouterr().err
        assert call("resume", copy, "--trust", str(teacher)) == 1
        assert "agent.actor_network" in capsys.readouterr().err
    assert code == 1
    assert not has_run(copy)


@pytest.mark.parametrize("door", ["environment", "recipe", "term", "callback", "torch.hub"])
def test_a_configuration_out_of_a_strangers_folder_is_a_strangers(door, copy, capsys):
    change(copy, **DOORS[door][0])
    before = contents(copy)
    assert main(["train", f"config={copy}/config.yaml", "run_dir=new", "--quiet"]) == 1
    assert "--trust" in capsys.readouterr().err
    assert not has_run(copy)
    assert contents(copy) == before
    assert not Path("new").exists()


# Links


LINKS = ("config.yaml", "code.json", "contract.json", "metrics.jsonl", "run.log", "summary.json",
         "checkpoints", "plots",
         "videos", ".lock", "checkpoints/32", "checkpoints/32/state.json", "checkpoints/best", "code/x",
         "deep")  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_links_out_of_a_strangers_folder_are_not_followed(name, copy, capsys):
    (copy / "fingerprint.json").unlink()
    target = copy.parent / "outside"
    link = copy / name
    if link.exists() or link.is_symlink():
        shutil.move(link, target)
    else:
        link.parent.mkdir(exist_ok=True)
        target.mkdir()
    link.symlink_to(target)
    before, outside = contents(copy), contents(copy.parent)
    for command in (*ALL, "plot"):
        code = main(["plot", str(copy)]) if command == "plot" else call(command, copy)
        said = capsys.readouterr().err
        assert (code, said.count("\n")) == (1, 1)
        assert f"leads to {target.parent}" in said
    assert (contents(copy), contents(copy.parent)) == (before, outside)


def test_a_link_to_what_the_person_trusts_is_followed_and_one_that_stays_inside(copy, capsys):
    (copy / "fingerprint.json").unlink()
    (copy / "again").symlink_to(copy / "run.log")
    assert call("eval", copy) == 0
    (copy.parent / "disk").mkdir()
    shutil.move(copy / "checkpoints", copy.parent / "disk" / "checkpoints")
    (copy / "checkpoints").symlink_to(copy.parent / "disk" / "checkpoints")
    assert call("eval", copy) == 1
    assert call("eval", copy, "--trust", str(copy.parent / "disk")) == 0
    capsys.readouterr()


def test_links_of_ones_own_run_are_ones_own(copy):
    shutil.move(copy / "checkpoints", copy.parent / "disk")
    (copy / "checkpoints").symlink_to(copy.parent / "disk")
    assert call("eval", copy) == 0


def test_a_pipe_in_a_strangers_folder_is_refused(copy, capsys):
    (copy / "fingerprint.json").unlink()
    (copy / "metrics.jsonl").unlink()
    os.mkfifo(copy / "metrics.jsonl")
    assert call("resume", copy) == 1
    assert "neither a file nor a folder" in capsys.readouterr().err


# Checkpoints


@pytest.mark.parametrize(
    "which",
    ["../../other", "..", ".", "", "/tmp", "last/..", "best/../last", "../checkpoints/32", "latest", "1e5",
         "-1", "\uff13\uff12", "32 ",
     "~", "last\n", ".last.partial", "file:last"],
)  # fmt: skip
def test_a_checkpoint_is_a_step_or_a_name(which, copy, capsys):
    shutil.copytree(copy / "checkpoints" / "32", copy.parent / "other", symlinks=True)
    before = contents(copy)
    for command in PLAYING:
        if (command, which) == ("collect", ""):
            continue  # an empty --policy is the default
        assert call(command, copy, "--policy" if command == "collect" else "--checkpoint", which) == 1
        assert "use last, best or a number of steps" in capsys.readouterr().err
    assert contents(copy) == before


@pytest.mark.parametrize("which", ["last", "best", "32"])
def test_checkpoints_that_are_there_are_taken(which, copy):
    assert call("eval", copy, "--checkpoint", which) == 0


@pytest.mark.parametrize("name", ["test", "seed", "rand", "__name__", "Generator", "os"])
def test_a_stored_generator_is_one_of_numpys(name):
    with pytest.raises(ValueError, match="which NumPy has not"):
        decode({"generator": {"dict": [["bit_generator", name]]}})


def test_a_stored_state_sets_no_special_attribute():
    import gymnasium

    env = gymnasium.make("CartPole-v1").unwrapped
    with pytest.raises(ValueError, match="__class__"):
        restore(env, [{"__class__": 1}])


# One's own runs


def test_ones_own_run_needs_no_flag(copy, capsys):
    run = copy.parent / "mine"
    arguments = ["env.id=good_poles:Poles", 'env.wrappers=[{name: "good_poles:Same"}]', f"run_dir={run}"]
    assert main(["train", *TINY[1:], *arguments, "--quiet"]) == 0
    for command in ALL:
        assert call(command, run) == 0, capsys.readouterr().err
    moved = copy.parent / "moved" / "mine"
    shutil.copytree(run, moved, symlinks=True)
    assert call("eval", moved) == 0
    text = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(f"# a note\n{text}")
    assert call("eval", moved) == 0  # what it says is the same
    (moved / "config.yaml").write_text(text.replace("good_poles:Same", "evil_door:anything"))
    capsys.readouterr()
    assert call("eval", moved) == 1
    assert "was not made here, or its config.yaml was changed" in capsys.readouterr().err
    assert not has_run(copy)


def origin(run):
    return RunFolder(run).origin()


def test_a_fingerprint_of_another_run_or_key_does_not_fit(copy, own, monkeypatch, tmp_path):
    assert origin(copy).is_person
    kept = (copy / "fingerprint.json").read_text()
    for text in (
        "{}",
        "[]",
        "no json",
        '{"fingerprint": 3}',
        '{"fingerprint": "ü"}',
        json.dumps({"fingerprint": "0" * 64}),
    ):
        (copy / "fingerprint.json").write_text(text)
        assert not origin(copy).is_person
    (copy / "fingerprint.json").write_text(kept)
    code = json.loads((copy / "code.json").read_text())
    (copy / "code.json").write_text(json.dumps(code | {"run_id": "another"}))
    assert not origin(copy).is_person
    (copy / "code.json").write_text(json.dumps(code))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert not origin(copy).is_person
    assert not (tmp_path / "elsewhere").exists()  # reading makes no key
    assert RunFolder(copy).sign() is None
    assert origin(copy).is_person


def test_every_key_is_under_the_fingerprint_but_for_the_number_that_resume_changes(copy):
    config = yaml.safe_load((copy / "config.yaml").read_text())
    for key in config:
        changed = {**config, key: "other"}
        (copy / "config.yaml").write_text(yaml.safe_dump(changed))
        assert origin(copy).is_person is (key == "total_steps"), key


def test_the_key_is_the_users_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found, folder = set(), signature.state_folder()
    threads = [threading.Thread(target=lambda: found.add(signature.signature_of({}, create=True))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert [path.name for path in folder.iterdir()] == ["key"]
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "key").chmod(0o644)
    with pytest.raises(signature.KeyFileError, match="chmod 600"):
        signature.signature_of({})
    (folder / "key").chmod(0o600)
    (folder / "key").write_bytes(b"short")
    with pytest.raises(signature.KeyFileError, match="damaged"):
        signature.signature_of({})


def test_the_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert signature.state_folder() == tmp_path / ".local" / "state" / "gaitway"


def test_without_a_key_training_works_and_says_so(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert main(["train", *TINY, f"run_dir={tmp_path}/run", "--quiet"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gaitway")]
    assert len(said) == 1
    assert "will not count as your own run" in said[0]
    assert not origin(tmp_path / "run").is_person
    assert main(["eval", str(tmp_path / "run")]) == 0  # nothing in it is foreign


# The mechanism


def test_inside_a_program_names_are_the_programmers(copy):
    assert speaker().is_person
    assert make_env("good_poles:Poles", num_envs=2).num_envs == 2
    folder, config = open_run(str(copy))
    assert config.origin.is_person
    change(copy, **{"env.id": "evil_door:anything"})
    folder, config = open_run(str(copy))
    assert config.origin.folder == str(folder.path)
    with pytest.raises(TrustError, match="evil_door"):
        build_env(config)
    assert speaker().is_person


STRANGER = Origin("folder", "is strange")


@pytest.mark.parametrize(
    "value",
    ["evil_door:X", "évil:X", "a.b.c:D.e", "evil:9", "evil:Env-v0", "gymnasium:evil:Env-v0", "/etc/passwd",
         "~/x", "../x", "a/../../x",
     "http://host/x", "file:///x", "file:/x", "C:\\x", ["ok", {"deep": "evil:X"}], {"evil:X": 1}],
)  # fmt: skip
def test_options_of_strangers_name_no_modules_and_no_files(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judge_options({"option": value})
    with speaking(STRANGER), pytest.raises(TrustError, match="--trust"):
        judge_options({"option": value}, "env.options")


@pytest.mark.parametrize(
    "value",
    ["walker/run", "cuda:0", "cpu", "env/obs/policy", "gymnasium:CartPole-v1", "envpool:Pong-v5",
         "a text: with words", "3:4", "1.5",
     "x.y", "", None, 3, True, [1.0, "elu"], {"start": 0, "unit": "fraction"}, "half_cheetah.xml"],
)  # fmt: skip
def test_plain_options_of_strangers_are_taken(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with speaking(STRANGER):
        judge_options({"option": value}, "env.options")


@pytest.mark.parametrize(
    "reference", ["evil_door:X", "evil_door.deep:X", "os:system", "builtins:eval", "gaitways:X", "torch.hub:load"]
)
def test_no_import_by_name_is_open_to_strangers(reference):
    with speaking(STRANGER), pytest.raises(TrustError, match="would be imported and run"):
        resolve_class(reference, "key", object)


def test_parts_of_ours_resolve_for_strangers_where_they_belong():
    from torch import nn

    with speaking(STRANGER):
        assert resolve_class("gaitway.nn.mlp:MLP", "key", nn.Module).__name__ == "MLP"
        for kind in (None, dict, ("annotate",)):
            with pytest.raises(TrustError, match="is no"):
                resolve_class("gaitway.nn.mlp:MLP", "key", kind)


def test_what_is_trusted_may_be_a_reference_or_a_path(tmp_path):
    names = ("my_env", "my_env:Class", "a.b", str(tmp_path), "./x")
    assert check_trusted(names) == names


# The present folder


def test_the_present_folder_is_last_on_the_path_and_only_for_the_import(copy, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(copy.parent))])
    before = list(sys.path)
    with present_folder():
        assert sys.path == [*before, str(copy.parent)]
    assert sys.path == before
    assert resolve_class("good_poles:Poles").__name__ == "Poles"
    assert sys.path == before


@pytest.mark.parametrize("inside", ["", "code", "checkpoints/32"])
def test_a_folder_of_a_run_is_never_on_the_path(inside, copy, monkeypatch, capsys):
    place = copy / inside
    place.mkdir(exist_ok=True)
    (place / "left_here.py").write_text(EVIL)
    monkeypatch.chdir(place)
    with pytest.raises(ConfigError, match="no module 'left_here'"):
        resolve_class("left_here:anything")
    assert not (place / "RAN").exists()


def test_benchmarks_are_those_of_the_checkout(copy, capsys):
    (copy.parent / "benchmarks").mkdir()
    (copy.parent / "pyproject.toml").touch()
    (copy.parent / "benchmarks" / "evil_door.py").write_text(EVIL)
    assert main(["bench"]) == 0
    assert "evil_door" not in capsys.readouterr().out
    assert main(["bench", "evil_door"]) == 1
    assert not (copy.parent / "benchmarks" / "RAN").exists()


SHADOWS = ("yaml", "torch", "numpy", "gymnasium", "mujoco", "rich", "ast", "pathlib", "wandb", "envpool", "pandas")
SCRIPT = ("-c", "import sys; from gaitway.cli.main import main; sys.exit(main(sys.argv[1:]))")


@pytest.mark.parametrize("start", [("-m", "gaitway"), ("-P", *SCRIPT)], ids=["module", "command"])
def test_modules_of_the_present_folder_are_found_and_never_taken_for_installed_ones(start, copy):
    for name in SHADOWS:
        (copy.parent / f"{name}.py").write_text(EVIL + "\nraise SystemExit(77)\n")
    command = ["check", "good_poles:Poles"]
    found = subprocess.run([sys.executable, *start, *command], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert not (copy.parent / "RAN").exists()
