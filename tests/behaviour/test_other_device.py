"""A run trained on a GPU opens without one, and `device=` chooses where the commands compute.

The runs here are made on the CPU and then say of themselves, in configuration and checkpoint, that they were trained on
a GPU: the states of their random streams have the sixteen bytes of a CUDA generator.
"""

import json
import shutil

import pytest
import torch
import yaml

from gaitway.cli.build import load_frozen
from gaitway.cli.main import main
from gaitway.cli.open_run import open_run
from gaitway.core.files import load_state, save_state
from gaitway.core.seeding import restore_stream, stream
from gaitway.envs.spec import EnvSpec

TINY = {
    "ppo": ["env.id=toy/cartpole", "env.num_envs=4", "algorithm.rollout_steps=8", "total_steps=32"],
    "sac": ["env.id=toy/pendulum", "env.num_envs=2", "algorithm=sac", "algorithm.learning_starts=16",
            "algorithm.iteration_steps=32",
            "algorithm.batch_size=8", "algorithm.replay_size=200", "total_steps=64"],
}  # fmt: skip
SMALL = ["evaluation.episodes=1", "agent.actor_hidden=[4]", "agent.critic_hidden=[4]", "--quiet"]
COMMANDS = {
    "eval": ["eval", "RUN", "--json"],
    "info": ["info", "RUN", "--verify", "--json"],
    "play": ["play", "RUN", "--no-video", "--steps", "2"],
    "collect": ["collect", "RUN", "--steps", "4", "--out", "OUT", "--quiet"],
    "resume": ["resume", "RUN", "more=32", "--quiet"],
}
STREAMS = {"policy_stream", "minibatch_stream", "noise_stream", "generator"}

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, arguments in TINY.items():
        assert main(["train", *arguments, *SMALL, f"run_dir={folder / name}"]) == 0
    return folder


@pytest.fixture
def run(runs, tmp_path):
    shutil.copytree(runs / "ppo", tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def trained_on(run, device, **execution):
    """Let a run say that it was trained on `device`."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["device"] = device
    config["execution"] |= execution
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    last = (run / "checkpoints" / "last").resolve()
    state, meta = load_state(last, kind="checkpoint")
    save_state(last, _with_streams(state), kind="checkpoint", meta=meta)


def _with_streams(value):
    if not isinstance(value, dict):
        return value
    sixteen = torch.arange(16, dtype=torch.uint8)
    return {key: sixteen.clone() if key in STREAMS else _with_streams(item) for key, item in value.items()}


def call(command, run, *more):
    return main(
        [str(run) if text == "RUN" else text.replace("OUT", f"{run}_out") for text in COMMANDS[command]] + [*more]
    )


def lines(capsys):
    said = capsys.readouterr()
    return said.out, [line for line in said.err.splitlines() if " INFO " not in line]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_that_is_not_here_is_the_cpu_with_one_line(command, device, run, capsys):
    trained_on(run, device)
    assert call(command, run) == 0
    out, said = lines(capsys)
    assert said == [f"gaitway: {run} was trained on {device}, which is not here: the CPU is used"]
    if "--json" in COMMANDS[command]:
        assert json.loads(out)["steps"] == 32
    assert yaml.safe_load((run / "config.yaml").read_text())["device"] == device  # it is the same run elsewhere


def test_what_warp_simulated_mujoco_does_where_there_is_no_gpu(run, capsys):
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["device"], config["env"]["simulator"] = "cuda", "warp"
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert open_run(str(run))[1].env.simulator == "mujoco"
    assert "MuJoCo does on the CPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("execution", "is_changed"),
    [
        ({"mode": "captured"}, True),
        ({"mode": "compiled_captured"}, True),
        ({"precision": "tf32"}, True),
        ({"mode": "captured", "precision": "bf16"}, True),
        ({"mode": "eager", "precision": "bf16"}, False),
        ({"mode": "eager"}, False),
    ],
)
@pytest.mark.parametrize("typed", [(), ("device=cpu",)])
def test_what_only_a_gpu_can_do_is_chosen_anew(execution, is_changed, typed, run, capsys):
    trained_on(run, "cuda", **execution)
    assert call("eval", run, *typed) == 0
    said = " ".join(lines(capsys)[1])
    assert ("what execution says needs cuda: it is chosen for cpu" in said) is is_changed
    assert ("was trained on cuda" in said) is not typed


@pytest.mark.parametrize("command", COMMANDS)
def test_device_chooses_and_nothing_is_said(command, run, capsys):
    trained_on(run, "cuda")
    assert call(command, run, "device=cpu") == 0
    assert lines(capsys)[1] == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["device=cuda"], "torch finds no GPU; use device=cpu"),
        (["device=cuda:1"], "torch finds no GPU; use device=cpu"),
        (["device=gpu"], "device is 'gpu'; use cpu, cuda or cuda:0"),
        (["device="], "write device=cpu or device=cuda"),
        (["device=cpu", "device=cpu"], "write device=cpu or device=cuda"),
        (["devise=cpu"], "devise=cpu"),
        (["seed=3"], "seed=3"),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_other_settings_get_a_sentence(command, settings, words, run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert call(command, run, *settings) == 1
    said = lines(capsys)[1]
    assert len(said) == 1
    assert words in said[0]
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_the_numbers_are_those_of_the_cpu(runs, run, capsys):
    assert call("eval", runs / "ppo") == 0
    expected = json.loads(lines(capsys)[0])
    trained_on(run, "cuda", mode="captured")
    assert call("eval", run) == 0
    assert json.loads(lines(capsys)[0]) == expected


@pytest.mark.parametrize("name", TINY)
def test_a_resumed_run_goes_on_with_streams_that_the_checkpoint_decides(name, runs, tmp_path, capsys):
    found = []
    for place in ("one", "two"):
        shutil.copytree(runs / name, tmp_path / place, symlinks=True)
        trained_on(tmp_path / place, "cuda", mode="captured")
        for _ in range(2):  # from streams of a GPU, then from streams of the CPU
            assert call("resume", tmp_path / place) == 0
        capsys.readouterr()
        assert call("info", tmp_path / place) == 0
        found.append(json.loads(lines(capsys)[0])["parameters_sha256"])
    assert found[0] == found[1]


def test_a_teacher_trained_on_a_gpu_teaches_without_one(run):
    trained_on(run, "cuda", mode="captured")
    spec = EnvSpec.from_dict(json.loads((run / "contract.json").read_text()))
    assert next(load_frozen(str(run), "key", spec, "cpu").parameters()).device.type == "cpu"


def test_programs_open_it_too(run):
    trained_on(run, "cuda")
    assert open_run(str(run))[1].device == "cpu"
    assert open_run(str(run), "cpu")[1].device == "cpu"


@pytest.mark.parametrize(
    "command", [["play", "--no-video", "--steps", "2"], ["collect", "--steps", "4", "--quiet", "--out", "OUT"]]
)
def test_environments_take_a_device_as_well(command, tmp_path, capsys):
    arguments = [text.replace("OUT", str(tmp_path / "out")) for text in command]
    assert main([arguments[0], "toy/cartpole", "device=cuda", *arguments[1:]]) == 1
    assert "device is 'cuda', but torch finds no GPU; use device=cpu" in capsys.readouterr().err
    assert main([arguments[0], "toy/cartpole", "device=cpu", *arguments[1:]]) == 0


def test_streams_of_the_same_kind_go_on_exactly():
    one, two = stream(3, "policy"), stream(4, "policy")
    torch.rand(5, generator=one)
    restore_stream(two, one.get_state())
    assert torch.equal(torch.rand(3, generator=one), torch.rand(3, generator=two))


def test_streams_of_another_kind_depend_on_the_state_alone():
    state = torch.arange(16, dtype=torch.uint8)
    one, two, three = stream(3, "policy"), stream(4, "policy"), stream(3, "policy")
    restore_stream(one, state)
    restore_stream(two, state)
    restore_stream(three, state + 1)
    drawn = [torch.rand(3, generator=each) for each in (one, two, three)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
