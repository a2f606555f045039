"""Numbers, devices and files that no machine can serve: one sentence, exit code 1, nothing made."""

import re

import pytest

from gaitway.cli.main import main

GIGABYTE = 10**9
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join(['*' + before] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)

TRAIN = {
    "mps": (["device=mps"], "device is 'mps', on which nothing is computed here; use cpu, cuda or cuda:0"),
    "xla": (["device=xla"], "device is 'xla', on which nothing"),
    "meta": (["device=meta"], "device is 'meta', on which nothing"),
    "a GPU that is not there": (["device=cuda:99"], "device is 'cuda:99', but torch "),
    "no device": (["device=gpu"], "device is 'gpu'; use cpu, cuda or cuda:0"),
    "a large seed": (["seed=1e30"], "seed is 1e+30; use an integer >= 0 that 64 bits hold"),
    "steps without end": (["total_steps=inf"], "total_steps is inf; expected an integer"),
    "instances": (["env.num_envs=1e7"], "env.num_envs is 10,000,000; so many instances take"),
    "instances of a toy": (
        ["env.id=toy/pendulum", "env.num_envs=1e9"],
        "take 1.1 TB, where 1.0 GB are free; use env.num",
    ),
    "objects": (["env.id=gymnasium:CartPole-v1", "env.num_envs=1e6"], "use env.num_envs=42000 or less"),
    "a rollout": (["algorithm.rollout_steps=1e10"], "a rollout of 10,000,000,000 steps (algorithm.rollout_steps"),
    "a round": (["algorithm=sac", "algorithm.steps_per_round=1e12"], "a rollout of 1,000,000,000,000 steps"),
    "a wide actor": (["agent.actor_hidden=[1e6, 1e6]"], "a tensor of 1,000,000 x 1,000,000 numbers"),
    "an endless critic": (["agent.critic_hidden=[1e18]"], "a tensor of 1,000,000,000,000,000,000 x"),
    "wide critics": (["algorithm=sac", "agent.critic_hidden=[2e4, 2e4]"], "a tensor of 2 x 20,000 x 20,000 numbers"),
    "a wide memory": (["agent.memory.kind=gru", "agent.memory.size=1e5"], "a tensor of 300,000 x"),
    "a replay": (
        ["algorithm=sac", "algorithm.replay_size=1e12"],
        "algorithm.replay_size is 1,000,000,000,000 transitions",
    ),
    "particles": (["algorithm=svpg", "agent.particles=1e7"], "agent.particles is 10000000, more than env.num_envs, 64"),
    "an unknown environment": (["env.id=zzz"], "no environment 'zzz'; `gaitway list envs` names ours"),
    "an option of a task": (
        ["env.options.reset_noise_scale=nan"],
        "walker/run: option reset_noise_scale is nan; use a",
    ),
    "an option of a toy": (["env.id=toy/cue", "env.options.K=0"], "env.options.K is 0; use an integer >= 1"),
    "brackets": (["env.options=" + "[" * 3000 + "]" * 3000], "is nested too deeply; write it into a file"),
}


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """A function of arguments that are refused; returns the sentence."""
    monkeypatch.setattr("gaitway.runners.capacity.free_memory", lambda device: GIGABYTE)

    def call(*arguments):
        before = sorted(tmp_path.rglob("*"))
        assert main(list(arguments)) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1, said
        assert sorted(tmp_path.rglob("*")) == before
        return said

    return call


@pytest.mark.parametrize("case", TRAIN)
def test_train_refuses(case, refused, tmp_path):
    arguments, said = TRAIN[case]
    assert said in refused("train", *arguments, f"run_dir={tmp_path / 'run'}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "multiplies by aliases into"),
        ("a: &a [*a]", "is nested too deeply, or contains itself"),
        ("a: " + "[" * 5000 + "]" * 5000, "is nested too deeply"),
        ("[" * 200_000, "is nested too deeply"),  # libyaml would overflow the stack
        ("- " * 200_000 + "1", "is nested too deeply"),
        ("a: " + "1" * 2_000_000, "has 2,000,003 bytes; a configuration has at most 1,000,000"),
        ("seed: 2001-99-99", "holds a value that cannot be read (month must be in 1..12)"),
    ],
    ids=["bomb", "itself", "deep", "deeper", "deep by columns", "large", "date"],
)
def test_files_that_only_seem_small_are_refused(text, said, refused, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    assert said in refused("train", f"config={tmp_path / 'mine.yaml'}", f"run_dir={tmp_path / 'run'}")


def test_an_unknown_environment_gets_three_names_at_most(refused, tmp_path):
    said = refused("train", "env.id=Wlaker/run", f"run_dir={tmp_path / 'run'}")
    assert said.count(" or ") == 2
    assert len(said) < 200


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    arguments = [
        "env.id=toy/pendulum",
        "env.num_envs=4",
        "total_steps=128",
        "evaluation.episodes=1",
        f"run_dir={folder}",
    ]
    assert main(["train", "--quiet", *arguments]) == 0
    return folder


@pytest.mark.parametrize(
    "limit", ["until=inf", "until=nan", "until=1e30", "more=2.5", "more=-1", "more=0", "more=many"]
)
def test_resume_refuses_limits(limit, run, refused):
    assert f"'{limit}' is not understood; use until=2e6" in refused("resume", str(run), limit)


@pytest.mark.parametrize("number", ["inf", "nan", "1e400", "1e30", "2.5", "0", "-1", "many"])
@pytest.mark.parametrize("command", [["play", "toy/pendulum", "--steps"], ["eval", "x", "--episodes"]])
def test_counts_of_commands_are_whole_numbers(command, number, capsys):
    with pytest.raises(SystemExit) as raised:
        main([*command, number] if number != "-1" else [*command[:-1], f"{command[-1]}=-1"])
    assert raised.value.code == 2
    assert "is not a whole number of at least 1, such as 1000 or 1e6" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["eval"], ["info", "--verify"], ["play", "--no-video"], ["resume", "more=100"]])
def test_other_networks_than_were_trained_are_named(command, run, refused, monkeypatch):
    text = (run / "config.yaml").read_text()
    try:
        (run / "config.yaml").write_text(re.sub(r"actor_hidden: .*", "actor_hidden: [32, 32]", text))
        said = refused(command[0], str(run), *command[1:])
    finally:
        (run / "config.yaml").write_text(text)
    assert "'actor.network.layers.0.weight' is [64, 3] there, and the configuration makes it [32, 3]" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: "{", "not JSON"),
        (lambda text: "", "not JSON"),
        (lambda text: "[]", "not an object"),
        (lambda text: "{}", "id is missing"),
        (lambda text: text.replace('"float32"', '"float99"'), "has the type 'float99'"),
        (lambda text: text.replace('"size": 1', '"size": -1'), "size is -1; use an integer >= 0"),
        (lambda text: text.replace('"groups"', '"gruops"'), "did you mean 'groups'?"),
        (lambda text: text.replace('"continuous"', '"what"'), "action kind is 'what'"),
        (lambda text: text.replace('"max_episode_steps": 200', '"max_episode_steps": "long"'), "expected an integer"),
    ],
)
def test_a_damaged_contract_is_named(change, said, run, refused):
    path = run / "contract.json"
    text = path.read_text()
    assert change(text) != text
    try:
        path.write_text(change(text))
        sentence = refused("eval", str(run))
    finally:
        path.write_text(text)
    assert "contract.json is damaged (" in sentence
    assert said in sentence
