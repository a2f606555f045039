"""Lists in a configuration: losses, rewards, cast, callbacks and blocks, ours and the user's, through the commands."""

import json
import os
import re
import shutil
import sys
from dataclasses import replace

import pytest
import torch
import yaml

from gaitway.cli.build import load_frozen, load_policy
from gaitway.cli.compose import compose
from gaitway.cli.main import main
from gaitway.cli.open_run import open_run
from gaitway.cli.train_config import TrainConfig, choices, parse
from gaitway.core.config import ConfigError, to_config
from gaitway.data.trajectories import Trajectories
from gaitway.envs.registry import make_env
from gaitway.runners.evaluate import run_episodes

MODULE = '''
import torch
from torch import nn

from gaitway import Agent
from gaitway.agents.blocks import Block
from gaitway.algorithms.algorithm import Coefficient
from gaitway.envs.toys.toy_env import ToyEnv
from gaitway.envs.toys.toys import Pendulum
from gaitway.envs.spec import Component


class Steady(Agent):
    """Whatever was chosen, does the same."""

    reads, writes = ("action",), ("action",)

    def __init__(self, torque: float = 1.5):
        super().__init__()
        self.torque = torque
        self.gain = nn.Parameter(torch.tensor(torque))

    def step(self, ws, t):
        ws.put("action", t, torch.full_like(ws.at("action", t), self.torque))


class Gentle(Steady):
    """Adds to what was chosen, and draws nothing."""

    def step(self, ws, t):
        ws.put("action", t, ws.at("action", t) + self.gain.detach())


class Deaf(Steady):
    reads = ()


class Bonus(nn.Module):
    """A reward source whose gain grows with what it has seen."""

    name, reads, when = "bonus", ("env/obs/pos",), "drawn"

    def __init__(self, spec, weight: Coefficient = 1.0, gain: float = 1.0):
        super().__init__()
        assert "pos" in spec.group_names
        self.weight, self.gain = weight, nn.Parameter(torch.tensor(gain))

    def annotate(self, ws):
        ws["reward/bonus"] = self.gain * ws.following("env/obs/pos")[..., 0]

    def update(self, ws, now):
        with torch.no_grad():
            self.gain.add_(0.01 * ws["reward/bonus"].mean())
        return {"bonus/gain": self.gain.detach().clone()}


class Small:
    """A loss: small mean actions."""

    name, reads = "small", ("new/mean", "env/obs/pos")

    def __init__(self, action, coef: Coefficient = 0.1, power: int = 2):
        assert action.kind == "continuous"
        self.coef, self.power = coef, power

    def __call__(self, batch, now):
        return batch["new/mean"].abs().pow(self.power).mean(), {}


class Odd(Small):
    reads = ("env/obs/poss",)


class Square(Block):
    """A block: the squares of a feature."""

    def __init__(self, shapes, reads: tuple[str, ...], writes: str):
        super().__init__(reads, writes, shapes[reads[0]][0])

    def forward(self, feature):
        return feature.square()


class Counting:
    name = "counting"

    def __init__(self, step: int = 1):
        self.step, self.count = step, 0

    def after_iteration(self, moment):
        self.count += self.step
        moment.log({"own/count": float(self.count)})

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Secret(Pendulum):
    """A pendulum that shows only some of its groups."""

    def __init__(self, shown=("pos", "vel", "secret")):
        super().__init__(max_episode_steps=8)
        self.groups = {**self.groups, "secret": (Component("all", 3),)}
        self.groups = {name: self.groups[name] for name in shown}

    def observe(self, state):
        import numpy as np

        seen = super().observe(state)
        seen["secret"] = np.concatenate([seen["pos"], seen["vel"]], -1)
        return {name: seen[name] for name in self.groups}


class Hidden(ToyEnv):
    def __init__(self, shown=("pos", "vel", "secret"), **common):
        super().__init__(Secret(shown), **common, id="hidden")


class Poor(Hidden):
    def __init__(self, **common):
        super().__init__(("pos", "vel"), **common)


class Blind(Hidden):
    def __init__(self, **common):
        super().__init__(("pos", "secret"), **common)


NUMBER = 3
'''
TINY = ["env.id=toy/pendulum", "env.num_envs=4", "env.options={max_episode_steps: 8}", "algorithm.rollout_steps=8",
        "algorithm.minibatches=2", "algorithm.epochs=1", "agent.actor_hidden=[8]", "agent.critic_hidden=[8]",
        "evaluation.episodes=2", "evaluation.interval=96", "checkpoints.interval=32", "checkpoints.keep_all=true",
        "total_steps=256"]  # fmt: skip
REPLAYED = [text for text in TINY if not text.startswith("algorithm.")] + [
    "algorithm.name=sac", "algorithm.learning_starts=16", "algorithm.iteration_steps=32", "algorithm.batch_size=8",
    "algorithm.replay_size=200", "algorithm.update_ratio=0.25",
]  # fmt: skip
LISTS = {
    "terms": "algorithm.terms=[{name: 'own_lists:Small', coef: {start: 0.2, end: 0, over: 100}, power: 3}]",
    "rewards": "rewards=[{name: rnd, weight: 0.5, batch_size: 16}, {name: 'own_lists:Bonus', gain: 2}]",
    "cast": "cast=[{name: policy}, {name: 'own_lists:Gentle', torque: 0.25}]",
    "callbacks": "callbacks=[{name: 'own_lists:Counting', step: 2}]",
    "blocks": "agent.blocks=[{name: 'own_lists:Square', reads: [pos], writes: squares}]",
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A folder with the module, where the commands are called."""
    path, before, paths = tmp_path_factory.mktemp("own"), os.getcwd(), list(sys.path)
    (path / "own_lists.py").write_text(MODULE)
    (path / "own_broken.py").write_text("import nothing_of_this_name\n")
    os.chdir(path)
    main(["list", "algorithms"])  # any command finds modules of this folder from now on
    yield path
    os.chdir(before)
    sys.path[:] = paths
    sys.modules.pop("own_lists", None)


def shown(capsys, *arguments):
    assert main(["train", *arguments, "--show-config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def answer(capsys, *arguments):
    assert main(list(arguments)) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def metrics(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


# --- Where lists come from -------------------------------------------------------------------------------------------


def expected_lists():
    terms = [{"name": "own_lists:Small", "coef": {"start": 0.2, "end": 0, "over": 100}, "power": 3}]
    rewards = [{"name": "rnd", "weight": 0.5, "batch_size": 16}, {"name": "own_lists:Bonus", "gain": 2}]
    return {
        "terms": terms,
        "rewards": rewards,
        "cast": [{"name": "policy"}, {"name": "own_lists:Gentle", "torque": 0.25}],
        "callbacks": [{"name": "own_lists:Counting", "step": 2}],
        "blocks": [{"name": "own_lists:Square", "reads": ["pos"], "writes": "squares"}],
    }


def lists_of(config):
    outside = {key: config[key] for key in ("rewards", "cast", "callbacks")}
    return outside | {"terms": config["algorithm"]["terms"], "blocks": config["agent"]["blocks"]}


def as_sections(lists):
    outside = {key: lists[key] for key in ("rewards", "cast", "callbacks")}
    return outside | {"algorithm": {"terms": lists["terms"]}, "agent": {"blocks": lists["blocks"]}}


def test_lists_come_from_the_command_line_and_from_a_file(folder, capsys):
    assert lists_of(shown(capsys, *TINY)) == {key: [] for key in LISTS}
    assert lists_of(shown(capsys, *TINY, *LISTS.values())) == expected_lists()
    (folder / "mine.yaml").write_text(yaml.safe_dump(as_sections(expected_lists())))
    assert lists_of(shown(capsys, *TINY, "config=mine.yaml")) == expected_lists()
    # the command line wins, as a whole list
    found = lists_of(shown(capsys, *TINY, "config=mine.yaml", "rewards=[rnd]", "cast=[]"))
    assert (found["rewards"], found["cast"], found["terms"]) == (["rnd"], [], expected_lists()["terms"])
    parsed = parse(shown(capsys, *TINY, "config=mine.yaml"))
    assert parse(to_config(parsed)) == parsed


def test_lists_come_from_a_preset(tmp_path):
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\n# Ours and theirs.\n" + yaml.safe_dump(as_sections(expected_lists()))
    (tmp_path / "experiment" / "listed.yaml").write_text(text)
    options = {"config_dir": tmp_path, **choices()}
    composed = compose(["experiment=listed"], to_config(TrainConfig()), parse, **options)
    assert lists_of(composed.config) == expected_lists()
    assert composed.sources["rewards"] == composed.sources["algorithm.terms"] == "experiment listed"
    composed = compose(["experiment=listed", "rewards=[]"], to_config(TrainConfig()), parse, **options)
    assert (composed.config["rewards"], composed.sources["rewards"]) == ([], "command line")


# --- A run with all of them ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(folder):
    assert main(["train", *TINY, *LISTS.values(), f"run_dir={folder / 'run'}", "--quiet"]) == 0
    return folder / "run"


def test_everything_of_the_lists_takes_part(run):
    found = set().union(*metrics(run))
    assert {"loss/small", "rnd/loss", "reward/rnd", "reward/bonus", "reward/total", "bonus/gain", "own/count"} <= found
    assert [line["own/count"] for line in metrics(run) if "own/count" in line] == [2.0 * n for n in range(1, 9)]
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert lists_of(config) == expected_lists()
    assert "# command line" in (run / "config.yaml").read_text()


def test_it_is_resumed_bit_for_bit(run, tmp_path, capsys):
    copied = tmp_path / "copy"
    shutil.copytree(run, copied, symlinks=True)
    assert main(["resume", str(copied), "--checkpoint", "128", "--quiet"]) == 0
    capsys.readouterr()
    one, other = (answer(capsys, "info", str(path), "--json") for path in (run, copied))
    assert one["parameters_sha256"] == other["parameters_sha256"]
    assert (one["last"], one["best"]) == (other["last"], other["best"])
    assert metrics(copied) == metrics(run)


def test_the_fingerprint_of_info_is_that_of_the_run(run, capsys):
    found = answer(capsys, "info", str(run), "--json")["parameters_sha256"]
    from gaitway.cli.build import build_runner  # a runner restored from the last checkpoint says the same
    from gaitway.runners.logger import Logger

    folder, config = open_run(str(run))
    runner = build_runner(config, folder, logger=Logger(None))
    runner.load_state_dict(runner.upkeep.load("last")[0])
    assert set(runner._further()) == {"rewards.rnd", "rewards.bonus", "cast.gentle"}
    assert runner.parameters_sha256() == found


def test_it_is_evaluated_with_its_cast(run, capsys):
    summary = json.loads((run / "summary.json").read_text())
    found = answer(capsys, "eval", str(run), "--checkpoint", "last", "--json")
    for name in ("return", "stochastic_return", "length"):
        assert found[name] == summary["last"][name]


def test_it_is_evaluated_in_the_environment_of_a_run(run, capsys):
    own = answer(capsys, "eval", str(run), "--checkpoint", "last", "--json")
    there = answer(capsys, "eval", str(run), "--policy", str(run), "--checkpoint", "last", "--json")
    assert there["return"] == own["return"]
    assert there["length"] == own["length"] == 8.0  # the run's episodes, shorter than those of the id


def steady_return(torque, seeds):
    class Actor:
        def __call__(self, obs):
            return torch.full((len(obs["pos"]), 1), torque)

        def reset(self, mask=None):
            pass

    with make_env("toy/pendulum", num_envs=seeds, purpose="evaluation", max_episode_steps=8) as env:
        return run_episodes(env, Actor(), seeds, 8)["return"].mean().item()


@pytest.mark.parametrize("arguments", [TINY, REPLAYED], ids=["ppo", "sac"])
def test_who_changes_the_action_acts_wherever_the_run_is_played(arguments, tmp_path, capsys):
    path = tmp_path / "steady"
    more = ["cast=['own_lists:Steady']", f"run_dir={path}", "total_steps=64"]
    assert main(["train", *arguments[:], *more, "--quiet"]) == 0
    capsys.readouterr()
    found = answer(capsys, "eval", str(path), "--episodes", "3", "--json")
    assert found["return"] == pytest.approx(steady_return(1.5, 3))
    assert found["stochastic_return"] == pytest.approx(steady_return(1.5, 3))
    assert main(["play", str(path), "--no-video"]) == 0
    told = capsys.readouterr().out
    assert "8 steps" in told
    assert float(re.search(r"return (-?[\d.]+)", told).group(1)) == pytest.approx(steady_return(1.5, 1), rel=1e-3)


def test_off_policy_runs_take_lists_too(tmp_path, capsys):
    path = tmp_path / "sac"
    lists = [LISTS["rewards"], LISTS["cast"], LISTS["callbacks"]]
    assert main(["train", *REPLAYED, *lists, f"run_dir={path}", "--quiet"]) == 0
    capsys.readouterr()
    copied = tmp_path / "copy"
    shutil.copytree(path, copied, symlinks=True)
    assert main(["resume", str(copied), "--checkpoint", "128", "--quiet"]) == 0
    capsys.readouterr()
    one, other = (answer(capsys, "info", str(each), "--json") for each in (path, copied))
    assert one["parameters_sha256"] == other["parameters_sha256"]
    assert metrics(copied) == metrics(path)
    found = answer(capsys, "eval", str(path), "--checkpoint", "last", "--json")
    assert found["return"] == json.loads((path / "summary.json").read_text())["last"]["return"]


def test_what_is_recorded_is_learnt_from(tmp_path, capsys):
    data, path = tmp_path / "data", tmp_path / "first"
    cast = f"cast=[{{name: recorder, path: {data}, start: 64}}]"
    assert main(["train", *TINY, cast, f"run_dir={path}", "--quiet"]) == 0
    recorded = Trajectories(data)
    assert 0 < recorded.num_steps <= 256 - 64
    capsys.readouterr()
    # eval and info of such a run leave its dataset alone
    shutil.move(data, tmp_path / "moved")
    answer(capsys, "info", str(path), "--json")
    answer(capsys, "eval", str(path), "--json")
    assert not data.exists()
    offline = ["algorithm=bc", "env.id=toy/pendulum", "env.num_envs=1", f"data.path={tmp_path / 'moved'}"]
    offline += ["algorithm.batch_size=8", "algorithm.iteration_steps=10", "total_steps=20", "evaluation.episodes=1"]
    assert main(["train", *offline, "evaluation.max_steps=10", f"run_dir={tmp_path / 'bc'}", "--quiet"]) == 0


# --- A frozen policy -------------------------------------------------------------------------------------------------


def test_a_run_may_name_the_policy_of_another(run, tmp_path, capsys):
    plain = tmp_path / "plain"
    assert main(["train", *TINY, f"run_dir={plain}", "--quiet"]) == 0
    near = [f"algorithm.terms=[{{name: action_distance, frozen: {plain}, coef: 0.5}}]", f"run_dir={tmp_path / 'near'}"]
    assert main(["train", *TINY, *near, "seed=1", "--quiet"]) == 0
    assert any("loss/action_distance" in line for line in metrics(tmp_path / "near"))
    capsys.readouterr()
    answer(capsys, "eval", str(tmp_path / "near"), "--json")
    spec = make_env("toy/pendulum", num_envs=1).spec
    policy = load_frozen(str(plain), "frozen", spec, "cpu")
    assert not any(parameter.requires_grad for parameter in policy.parameters())
    with pytest.raises(ConfigError, match=r"frozen: what acts in .* is more than a policy; name a run without a cast"):
        load_frozen(str(run), "frozen", spec, "cpu")
    with pytest.raises(ConfigError, match="frozen is 3; name the folder of a run"):
        load_frozen(3, "frozen", spec, "cpu")
    with pytest.raises(ConfigError, match="frozen: 'own_lists:Steady' is no function; name one that maps"):
        load_frozen("own_lists:Steady", "frozen", spec, "cpu")


# --- Mistakes --------------------------------------------------------------------------------------------------------

MISTAKES = {
    "two sources of one name": (["rewards=[rnd, rnd]"], "two reward sources are called 'rnd'; give each"),
    "two callbacks of one name": (["callbacks=['own_lists:Counting', 'own_lists:Counting']"], "are called 'counting'"),
    "two agents of one name": (["cast=['own_lists:Steady', 'own_lists:Steady']"], "are called 'steady'; give one"),
    "two losses of one name": (["algorithm.terms=['own_lists:Small', 'own_lists:Small']"], "two terms share a name"),
    "a loss of what nobody writes": (
        ["algorithm.terms=['own_lists:Odd']"],
        "loss small reads 'env/obs/poss', which nobody writes. Did you mean 'env/obs/pos'",
    ),
    "overwritten": (["cast=['own_lists:Deaf']"], "Deaf writes 'action', which ActorCritic has written already"),
    "a weight of nan": (["rewards=[{name: rnd, weight: nan}]"], "rewards[0].weight is nan; use a"),
    "an infinite schedule": (
        ["rewards=[{name: rnd, weight: {start: 0, end: inf, over: 3}}]"],
        "rewards[0].weight.end is inf; use",
    ),
    "a source with a typo": (["rewards=[rdn]"], "rewards[0]: there is no 'rdn' (did you mean 'rnd'?); use one of"),
    "an option with a typo": (
        ["rewards=[task, {name: rnd, wieght: 1}]"],
        "rewards[1]: rnd has no option 'wieght' (did you mean 'weight'?)",
    ),
    "a loss with a typo": (
        ["algorithm.terms=[{name: entropi}]"],
        "algorithm.terms[0]: there is no 'entropi' (did you mean 'entropy'?)",
    ),
    "an option of a loss with a typo": (
        ["algorithm.terms=[{name: entropy, coeff: 1}]"],
        "algorithm.terms[0]: entropy has no option 'coeff' (did you mean 'coef'?)",
    ),
    "an agent with a typo": (["cast=[recoder]"], "cast[0]: there is no 'recoder' (did you mean 'recorder'?)"),
    "an option of an agent with a typo": (
        ["cast=[{name: 'own_lists:Steady', torq: 1}]"],
        "cast[0]: own_lists:Steady has no option 'torq' (did you mean 'torque'?)",
    ),
    "a callback with a typo": (
        ["callbacks=[env_shedule]"],
        "callbacks[0]: there is no 'env_shedule' (did you mean 'env_schedule'?)",
    ),
    "a block with a typo": (
        ["agent.blocks=[{name: mpl, reads: [pos], writes: a}]"],
        "agent.blocks[0]: there is no 'mpl' (did you mean 'mlp'?)",
    ),
    "a feature with a typo": (["agent.blocks=[{name: mlp, reads: [poss], writes: a}]"], "(did you mean 'pos'?)"),
    "what is needed": (
        ["callbacks=[env_schedule]"],
        "callbacks[0]: env_schedule needs method, value; write {name: env_schedule, method: ..., value: ...}",
    ),
    "what the run gives": (["rewards=[{name: rnd, seed: 3}]"], "rewards[0]: rnd gets its seed from the run; remove"),
    "a value of another type": (["rewards=[{name: rnd, updates: many}]"], "rewards[0].updates is the text 'many'"),
    "a check of the constructor": (["rewards=[{name: rnd, size: 0}]"], "rewards[0].size is 0; use an integer"),
    "no module": (["cast=['own_nothing:Steady']"], "cast[0]: there is no module 'own_nothing'"),
    "no class": (["cast=['own_lists:Stedy']"], "has no 'Stedy' (did you mean 'Steady'?)"),
    "a module that does not import": (["rewards=['own_broken:Bonus']"], "nothing_of_this_name"),
    "no class at all": (["callbacks=['own_lists:NUMBER']"], "is 3; name a class or a function"),
    "no agent": (["cast=['own_lists:Counting']"], "cast[0] is a Counting; derive it from gaitway.Agent"),
    "no block": (["agent.blocks=[{name: 'own_lists:Counting'}]"], "agent.blocks[0] is a Counting; derive it from"),
    "no list": (["rewards=rnd"], "rewards is the text 'rnd'; expected a list"),
    "a mapping for a list": (["rewards={name: rnd}"], "rewards is {name: rnd}; expected a list; write rewards=[...]"),
    "a list for a mapping": (
        ["env.options=[1,2]"],
        "env.options is [1,2]; expected a mapping; write 'env.options={key:",
    ),
    "no name": (["cast=[{path: x}]"], "cast[0] is {'path': 'x'}, which has no name; write {name: ...}"),
    "no frozen run": (
        ["algorithm.terms=[{name: action_distance, frozen: runs/none}]"],
        "there is no folder runs/none; give the run_dir of a run",
    ),
    "no teacher": (["cast=[teacher]"], "cast[0]: teacher needs teachers; write {name: teacher, teachers: ...}"),
    "no run of a teacher": (["cast=[{name: teacher, teachers: runs/none}]"], "there is no folder runs/none; give the"),
    "no function of a teacher": (
        ["cast=[{name: teacher, teachers: [own_lists:nobody]}]"],
        "cast[0].teachers[0]: the module 'own_lists' has no 'nobody'",
    ),
    "a probability above 1": (
        ["cast=[{name: teacher, teachers: 'gaitway.envs.toys.controllers:swing_up', probability: 1.5}]"],
        "cast[0].probability is 1.5; use",
    ),
    "imitation without a teacher": (
        ["algorithm.terms=[imitation]"],
        "loss imitation reads 'teacher/action', which nobody writes",
    ),
    "an unknown form": (
        ["algorithm.terms=[{name: imitation, form: l3}]"],
        "algorithm.terms[0].form is the text 'l3'; expected 'l2', 'squared'",
    ),
    "a start before the first step": (["cast=[{name: recorder, path: x, start: -1}]"], "cast[0].start is -1; use"),
}


def made():
    """What is in the folder, but for the bytecode of the module that Python keeps there."""
    return set(os.listdir()) - {"__pycache__"}


def refused(capsys, path, *arguments):
    before = made()
    assert main(["train", *arguments, f"run_dir={path}", "--quiet"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gaitway: ")
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    assert not path.exists()
    assert made() == before
    return error


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_sentence_and_no_folder(mistake, tmp_path, capsys):
    arguments, sentence = MISTAKES[mistake]
    assert sentence in refused(capsys, tmp_path / "run", *TINY, *arguments)


@pytest.mark.parametrize(
    ("algorithm", "key", "entry"),
    [
        ("cem", "cast", "[{name: recorder, path: recorded}]"),
        ("es", "rewards", "[rnd]"),
        ("td3_bc", "rewards", "[rnd]"),
    ],
)
def test_lists_that_an_algorithm_has_no_use_for(algorithm, key, entry, tmp_path, capsys):
    arguments = [f"algorithm={algorithm}", "env.id=toy/pendulum", "env.num_envs=1", f"{key}={entry}"]
    if algorithm == "td3_bc":
        with make_env("toy/pendulum", num_envs=2, max_episode_steps=8) as env:
            from gaitway.core.seeding import stream
            from gaitway.data.trajectories import TrajectoryWriter
            from gaitway.runners.collect import RandomPolicy, collect_steps

            with TrajectoryWriter(tmp_path / "data", env.spec) as writer:
                collect_steps(env, RandomPolicy(env.spec.action, stream(9, "test")), writer, 32)
        arguments.append(f"data.path={tmp_path / 'data'}")
    error = refused(capsys, tmp_path / "run", *arguments)
    assert f"{algorithm} has no use for {key}; leave the list empty" in error
    assert not os.path.exists("recorded")


def test_a_method_that_the_environment_lacks_is_named(tmp_path, capsys):
    callback = "callbacks=[{name: env_schedule, method: set_push, value: 1}]"
    assert main(["train", *TINY, callback, f"run_dir={tmp_path / 'run'}", "--quiet"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("neither toy/pendulum nor its task has a method 'set_push'")
    assert not (tmp_path / "run").exists()


def test_losses_are_for_algorithms_that_have_some(tmp_path, capsys):
    error = refused(capsys, tmp_path / "run", *REPLAYED, "algorithm.terms=[entropy]")
    assert "there is no key 'algorithm.terms'" in error


def test_mistakes_of_a_file_are_told_with_the_file(folder, tmp_path, capsys):
    (folder / "wrong.yaml").write_text("rewards: [{name: rnd, weight: .nan}]\n")
    assert "use a finite number" in refused(capsys, tmp_path / "run", *TINY, "config=wrong.yaml")
    (folder / "wrong.yaml").write_text("rewards: [[rnd]]\n")
    assert "(from the file wrong.yaml)" in refused(capsys, tmp_path / "run", *TINY, "config=wrong.yaml")


# --- Where a trained policy may play ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def asymmetric(folder):
    observations = "agent.observations={actor: [pos, vel], critic: [pos, vel, secret]}"
    arguments = ["env.id=own_lists:Hidden", observations, f"run_dir={folder / 'asymmetric'}"]
    tiny = [text for text in TINY if not text.startswith("env.options")]
    assert main(["train", *tiny, *arguments, "--quiet"]) == 0
    return folder / "asymmetric"


def spec_of(*shown):
    return make_env("own_lists:Hidden", num_envs=2, shown=shown)


def test_a_policy_plays_without_what_its_critic_read(asymmetric, capsys):
    folder, config = open_run(str(asymmetric))
    whole, poor = spec_of("pos", "vel", "secret"), spec_of("pos", "vel")
    actions = []
    for env in (whole, poor):
        act = load_policy(folder, config, env.spec, "last").inference()
        actions.append(act(env.reset(seed=3)))
    assert torch.equal(actions[0], actions[1])
    assert main(["play", "own_lists:Poor", "--policy", str(asymmetric), "--no-video"]) == 0
    assert "8 steps" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"does not fit hidden: it was trained with the observation 'vel', which is"):
        load_policy(folder, config, spec_of("pos", "secret").spec, "last")
    assert main(["play", "own_lists:Blind", "--policy", str(asymmetric), "--no-video"]) == 1
    assert "which is not among ['pos', 'secret']" in capsys.readouterr().err


def test_in_a_cast_a_policy_needs_all_that_it_reads(asymmetric):
    folder, config = open_run(str(asymmetric))
    with_cast = replace(config, cast=("own_lists:Steady",))
    whole = spec_of("pos", "vel", "secret")
    assert len(load_policy(folder, with_cast, whole.spec, "last").cast.agents) == 2
    with pytest.raises(ConfigError, match=r"it was trained with the observation 'secret', which is not among"):
        load_policy(folder, with_cast, spec_of("pos", "vel").spec, "last")


def test_other_actions_and_other_meanings_are_refused(asymmetric):
    folder, config = open_run(str(asymmetric))
    spec = spec_of("pos", "vel", "secret").spec
    other = replace(spec, action=replace(spec.action, high=(3.0,)))
    with pytest.raises(ConfigError, match="it was trained with the actions torque, here they are torque or have other"):
        load_policy(folder, config, other, "last")
    group = replace(spec.groups[0], components=spec.groups[0].components[::-1])
    with pytest.raises(ConfigError, match="the numbers in 'pos' mean something else, 'cos' there and 'sin' here"):
        load_policy(folder, config, replace(spec, groups=(group, *spec.groups[1:])), "last")
    first, second = spec.groups[0].components
    group = replace(spec.groups[0], components=(first, replace(second, noise=0.5, frame="imu")))
    with pytest.raises(ConfigError, match=f"something else: the frame of '{second.name}' is '' there and 'imu' here"):
        load_policy(folder, config, replace(spec, groups=(group, *spec.groups[1:])), "last")
