from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from gaitway.cli.compose import Composed, compose, read_config, write_config
from gaitway.cli.presets import list_experiments
from gaitway.core.config import ConfigError, choose, flatten, from_config, to_config


@dataclass(frozen=True)
class PPOConfig:
    epochs: int = 5
    clip: float = 0.2


@dataclass(frozen=True)
class SACConfig:
    alpha: float = 0.1
    batch: int = 256


@dataclass(frozen=True)
class EnvConfig:
    id: str = "walker/run"
    num_envs: int = 64
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainConfig:
    total_steps: int = 1_000_000
    seed: int = 0
    run_dir: str | None = None
    hidden: tuple[int, ...] = (64, 64)
    env: EnvConfig = field(default_factory=EnvConfig)
    algorithm: Any = None


ALGORITHMS: dict[str, type] = {"ppo": PPOConfig, "sac": SACConfig}
CHOICES = {"algorithm": {name: to_config(cls()) for name, cls in ALGORITHMS.items()}}
DEFAULTS = to_config(TrainConfig()) | {"algorithm": {"name": "ppo"}}


def schema(data: Mapping[str, Any]) -> TrainConfig:
    section = dict(data["algorithm"])
    cls = choose(ALGORITHMS, section.pop("name"), "algorithm.name")
    algorithm = from_config(cls, section, "algorithm")
    return from_config(TrainConfig, {**data, "algorithm": algorithm})


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    folder = tmp_path / "conf"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "run.yaml").write_text(
        "# @package _global_\n# A walker that runs.\nenv: {num_envs: 8}\nalgorithm: {epochs: 3}\ntotal_steps: 2e6\n"
    )
    (folder / "experiment" / "run_fast.yaml").write_text(
        "# @package _global_\ndefaults: [run, _self_]\nenv: {id: walker/fast}\nalgorithm: {epochs: 4}\n"
    )
    (folder / "experiment" / "soft.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /algorithm: sac\nalgorithm: {alpha: 0.3}\n"
    )
    (folder / "experiment" / "named.yaml").write_text("# @package _global_\nalgorithm: {name: sac, batch: 32}\n")
    return folder


def run(conf: Path, *arguments: str, config_dir: Path | None = None) -> Composed:
    return compose(arguments, DEFAULTS, schema, choices=CHOICES, config_dir=config_dir, conf_folder=conf)


def other(composed: Composed) -> dict[str, str]:
    return {key: source for key, source in composed.sources.items() if source != "default"}


def test_without_arguments_the_defaults_of_the_dataclasses_hold(conf: Path) -> None:
    composed = run(conf)
    assert composed.config == DEFAULTS | {"algorithm": {"name": "ppo", "epochs": 5, "clip": 0.2}}
    assert set(composed.sources) == set(flatten(composed.config))
    assert not other(composed)
    assert composed.experiment is None


def test_layers_win_in_order_and_say_so(conf: Path, tmp_path: Path) -> None:
    own = tmp_path / "my own, file.yaml"
    own.write_text("algorithm: {clip: 1e-1}\nenv: {num_envs: 16}\nseed: 3\n")
    composed = run(conf, "experiment=run_fast", f"config={own}", "seed=4", "hidden=[32]", "run_dir=runs/a")
    assert composed.config["algorithm"] == {"name": "ppo", "epochs": 4, "clip": 0.1}
    assert composed.config["env"] == {"id": "walker/fast", "num_envs": 16, "options": {}}
    assert (composed.config["seed"], composed.config["hidden"]) == (4, [32])
    assert composed.experiment == "run_fast"
    assert other(composed) == {
        "total_steps": "experiment run",
        "env.id": "experiment run_fast",
        "algorithm.epochs": "experiment run_fast",
        "algorithm.clip": f"file {own}",
        "env.num_envs": f"file {own}",
        "seed": "command line",
        "hidden": "command line",
        "run_dir": "command line",
    }


def test_values_get_the_type_of_the_dataclass(conf: Path) -> None:
    composed = run(conf, "total_steps=3e6", "algorithm.clip=1")
    assert repr(composed.config["total_steps"]) == "3000000"
    assert repr(composed.config["algorithm"]["clip"]) == "1.0"


@pytest.mark.parametrize(
    ("arguments", "section", "source"),
    [
        (["algorithm=sac"], {"alpha": 0.1, "batch": 256}, "command line"),
        (["algorithm.name=sac", "algorithm.alpha=1"], {"alpha": 1.0, "batch": 256}, "command line"),
        (["algorithm={name: sac, batch: 3}"], {"alpha": 0.1, "batch": 3}, "command line"),
        (["experiment=soft"], {"alpha": 0.3, "batch": 256}, "experiment soft"),
        (["experiment=named"], {"alpha": 0.1, "batch": 32}, "experiment named"),
    ],
)
def test_a_choice_brings_its_own_defaults(conf: Path, arguments: list[str], section: Any, source: str) -> None:
    composed = run(conf, *arguments)
    assert composed.config["algorithm"] == {"name": "sac", **section}
    assert composed.sources["algorithm.name"] == source
    if arguments[0] in ("algorithm=sac", "experiment=named"):
        assert composed.sources["algorithm.alpha"] == "default"
    if arguments == ["experiment=named"]:
        assert composed.sources["algorithm.batch"] == source


def test_open_mappings_take_new_keys_without_a_plus(conf: Path) -> None:
    for plus in ("", "+", "++"):
        composed = run(conf, f"{plus}env.options.noise=0", "env.options.size.x=1.5")
        assert composed.config["env"]["options"] == {"noise": 0, "size": {"x": 1.5}}
        assert composed.sources["env.options.size.x"] == "command line"
    removed = run(conf, "env.options={a: 1, b: 2}", "~env.options.a")
    assert removed.config["env"]["options"] == {"b": 2}


def one_sentence(conf: Path, *arguments: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        run(conf, *arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_misspelt_key_on_the_command_line(conf: Path) -> None:
    message = one_sentence(conf, "algorithm.epoch=3")
    assert message.startswith("there is no key 'algorithm.epoch' (did you mean 'algorithm.epochs'?)")
    assert "the known keys of algorithm are clip, epochs" in message
    assert message.endswith("(from the command line)")
    assert "there is env.num_envs" in one_sentence(conf, "num_envs=3")
    assert "did you mean 'seed'?" in one_sentence(conf, "sed=3")


def test_a_misspelt_key_in_an_experiment_which_hydra_would_accept(conf: Path, tmp_path: Path) -> None:
    text = "# @package _global_\nalgorithm: {epochss: 3}\n"
    (conf / "experiment" / "wrong.yaml").write_text(text)
    message = one_sentence(conf, "experiment=wrong")
    assert "did you mean 'algorithm.epochs'" in message
    assert message.endswith("(from the experiment wrong)")
    (tmp_path / "own.yaml").write_text("env: {idd: x}")
    message = one_sentence(conf, f"config={tmp_path / 'own.yaml'}")
    assert "did you mean 'env.id'" in message
    assert message.endswith(f"(from the file {tmp_path / 'own.yaml'})")


def test_a_wrong_value_says_where_it_stands(conf: Path) -> None:
    assert one_sentence(conf, "seed=abc") == "seed is the text 'abc'; expected an integer (from the command line)"
    assert one_sentence(conf, "hidden=[1,x]").startswith("hidden[1] is the text 'x'; expected an integer (from")
    assert "algorithm.alpha" in one_sentence(conf, "experiment=soft", "algorithm=ppo")


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (
            "experiment=runn",
            "there is no experiment 'runn' (did you mean 'run'?); there are named, run, run_fast, soft",
        ),
        ("experiment=my.yaml", "for a file of your own write config=my.yaml"),
        ("config=absent.yaml", "cannot read config=absent.yaml: No such file"),
        ("algorithm=poo", "algorithm is 'poo' (did you mean 'ppo'?); the choices are ppo, sac"),
        ("algorithm.name=poo", "algorithm.name is 'poo' (did you mean 'ppo'?)"),
        ("algorithm=3", "algorithm is 3"),
        ("seed", "cannot read the argument 'seed'"),
        ("--seed=3", "cannot read the argument '--seed=3'"),
        ("seed=[1", "cannot read the argument 'seed=[1'"),
        ("seed=1,2", "seed has several values"),
        ("seed=range(1,4)", "seed has several values"),
        ("hydra.run.dir=x", "sets Hydra itself"),
        ("~seed", "seed has a default and cannot be removed"),
        ("~algorithm.epochs", "algorithm.epochs has a default"),
        ("~env.options.zzz", "does not exist"),
        ("run_dir=${absent}", "absent"),
        ("seed=???", "seed"),
    ],
)
def test_other_mistakes_are_one_sentence(conf: Path, argument: str, words: str) -> None:
    assert words in one_sentence(conf, argument)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# @package _global_\nenv: [\n", "while parsing"),
        ("env: {num_envs: 3}\n", "must begin with the line '# @package _global_'"),
        ("# @package _global_\ndefaults: [absent]\n", "absent"),
        ("# @package _global_\ndefaults:\n  - override /algorithm: absent\n", "absent"),
        ("# @package _global_\nalgorithm: 3\n", "algorithm.name is None"),
    ],
)
def test_mistakes_in_an_experiment_are_one_sentence(conf: Path, text: str, words: str) -> None:
    (conf / "experiment" / "wrong.yaml").write_text(text)
    assert words in one_sentence(conf, "experiment=wrong")


def test_a_file_that_is_no_configuration(conf: Path, tmp_path: Path) -> None:
    for text, words in [("- 1\n", "holds a list"), ("a: [", "is not a configuration"), ("a: 1\na: 2\n", "duplicate")]:
        (tmp_path / "own.yaml").write_text(text)
        assert words in one_sentence(conf, f"config={tmp_path / 'own.yaml'}")


@pytest.mark.parametrize("arguments", [[], ["experiment=run_fast"]])
def test_a_file_builds_on_a_preset(conf: Path, tmp_path: Path, arguments: list[str]) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("defaults:\n  - experiment: run_fast\nenv: {num_envs: 16}\nalgorithm: {clip: 0.1}\nseed: 1\n")
    composed = run(conf, "seed=2", f"config={own}", *arguments)
    assert composed.config["algorithm"] == {"name": "ppo", "epochs": 4, "clip": 0.1}
    assert composed.config["env"] == {"id": "walker/fast", "num_envs": 16, "options": {}}
    assert composed.experiment == "run_fast"
    assert other(composed) == {
        "total_steps": "experiment run",
        "env.id": "experiment run_fast",
        "algorithm.epochs": "experiment run_fast",
        "algorithm.clip": f"file {own}",
        "env.num_envs": f"file {own}",
        "seed": "command line",
    }


def test_a_file_builds_on_a_preset_of_the_user(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "big.yaml").write_text(
        "# @package _global_\nalgorithm: {name: sac, batch: 512}\n"
    )
    (tmp_path / "own.yaml").write_text("defaults: [{experiment: big}]\nalgorithm: {alpha: 0.5}\n")
    composed = run(conf, f"config={tmp_path / 'own.yaml'}", config_dir=tmp_path / "mine")
    assert composed.config["algorithm"] == {"name": "sac", "alpha": 0.5, "batch": 512}
    assert composed.sources["algorithm.name"] == composed.sources["algorithm.batch"] == "experiment big"
    assert composed.sources["algorithm.alpha"] == f"file {tmp_path / 'own.yaml'}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "defaults: [{experiment: runn}]",
            "there is no experiment 'runn' (did you mean 'run'?); there are named, run, ",
        ),
        ("defaults: [{experiment: runn}]", "soft (from the file "),
        ("defaults: [{experiment: soft}]", "experiment is 'run' on the command line and 'soft' in "),
        ("defaults: [run]", "defaults is ['run'] in "),
        (
            "defaults: [{experiment: run}, {experiment: soft}]",
            "a file builds on one preset by `defaults: [{experiment: ",
        ),
        ("defaults: [{override /algorithm: sac}]", "and on nothing else"),
        ("defaults: run", "defaults is 'run' in "),
        ("defaults:", "defaults is None in "),
        ("experiment: run", "has the key 'experiment'; a file builds on one preset by"),
    ],
)
def test_mistakes_in_the_preset_of_a_file(conf: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    assert words in one_sentence(conf, "experiment=run", f"config={tmp_path / 'own.yaml'}")


def test_presets_of_the_user(conf: Path, tmp_path: Path) -> None:
    own = tmp_path / "my presets"
    (own / "experiment").mkdir(parents=True)
    (own / "experiment" / "mine.yaml").write_text("# @package _global_\n# Mine.\ndefaults: [run]\nseed: 9\n")
    composed = run(conf, "experiment=mine", config_dir=own)
    assert (composed.config["seed"], composed.config["algorithm"]["epochs"]) == (9, 3)
    assert composed.sources["seed"] == "experiment mine"
    assert list_experiments(own, conf)["mine"] == "Mine."
    assert list_experiments(conf_folder=conf) == {"named": "", "run": "A walker that runs.", "run_fast": "", "soft": ""}
    (own / "experiment" / "run.yaml").write_text("# @package _global_\n")
    assert "rename it" in one_sentence(conf, "experiment=run", config_dir=own)
    assert "is not a folder" in one_sentence(conf, config_dir=tmp_path / "absent")


def test_a_program_that_uses_hydra_itself_is_not_disturbed(conf: Path) -> None:
    ConfigStore.instance().store(name="theirs", group="algorithm", node={"x": 1})
    before = ConfigStore.instance().repo
    marker: Any = object()
    GlobalHydra.instance().hydra = marker
    try:
        assert run(conf, "algorithm=sac").config["algorithm"]["name"] == "sac"
        with pytest.raises(ConfigError):
            run(conf, "experiment=absent")
        assert GlobalHydra.instance().hydra is marker
        assert ConfigStore.instance().repo is before
        assert "theirs.yaml" in before["algorithm"]
        assert "ppo.yaml" not in before["algorithm"]
    finally:
        GlobalHydra.instance().hydra = None
        before.pop("algorithm")


def test_the_written_file_tells_sources_and_reads_back(conf: Path, tmp_path: Path) -> None:
    composed = run(conf, "experiment=run", "run_dir='a: b # c'", "env.options.yes='no'")
    path = tmp_path / "config.yaml"
    config = composed.config | {
        "rate": 1e-5,
        "bound": math.inf,
        "odd: key": [1e22, {"a": [None, True]}],
        "none": {},
        "text": "two\nlines",
    }
    write_config(path, config, composed.sources)
    assert read_config(path) == config
    lines = path.read_text().splitlines()
    assert "  epochs: 3  # experiment run" in lines
    assert "seed: 0" in lines
    assert "run_dir: 'a: b # c'  # command line" in lines
    assert len(lines) == len(flatten(config)) + 3  # and the mappings env, options, algorithm


def test_a_written_file_is_a_configuration_again(conf: Path, tmp_path: Path) -> None:
    first = run(conf, "experiment=soft", "seed=3", "hidden=[]")
    write_config(tmp_path / "config.yaml", first.config, first.sources)
    again = run(conf, f"config={tmp_path / 'config.yaml'}")
    assert again.config == first.config
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == first.config


def test_relative_folders_do_not_depend_on_the_place(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(conf.parent)
    assert run(Path(os.path.relpath(conf)), "experiment=run").config["algorithm"]["epochs"] == 3


@dataclass(frozen=True)
class SmallNetworks:
    hidden: tuple[int, ...] = (64, 64)
    memory: str = "none"


@dataclass(frozen=True)
class LargeNetworks:
    hidden: tuple[int, ...] = (256, 256)
    critics: int = 2


@dataclass(frozen=True)
class AgentConfig:
    seed: int = 0
    algorithm: Any = None
    agent: Any = None


AGENTS: dict[str, type] = {"ppo": SmallNetworks, "sac": LargeNetworks}
FOLLOWERS = {"agent": ("algorithm", {name: to_config(cls()) for name, cls in AGENTS.items()})}


def schema_with_agent(data: Mapping[str, Any]) -> AgentConfig:
    name = data["algorithm"]["name"]
    section = {key: value for key, value in data["algorithm"].items() if key != "name"}
    algorithm = from_config(choose(ALGORITHMS, name, "algorithm.name"), section, "algorithm")
    agent = from_config(AGENTS[name], data["agent"], "agent")
    return from_config(AgentConfig, {**data, "algorithm": algorithm, "agent": agent})


def run_with_agent(conf: Path, *arguments: str) -> Composed:
    defaults = {"seed": 0, "algorithm": {"name": "ppo"}, "agent": to_config(SmallNetworks())}
    return compose(arguments, defaults, schema_with_agent, choices=CHOICES, followers=FOLLOWERS, conf_folder=conf)


@pytest.mark.parametrize(
    "arguments", [["algorithm=sac"], ["algorithm.name=sac"], ["algorithm={name: sac}"], ["experiment=soft_agent"]]
)
def test_a_section_follows_the_choice_of_another(conf: Path, arguments: list[str]) -> None:
    (conf / "experiment" / "soft_agent.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /algorithm: sac\nagent: {critics: 5}\n"
    )
    assert run_with_agent(conf).config["agent"] == {"hidden": [64, 64], "memory": "none"}
    composed = run_with_agent(conf, *arguments, "agent.hidden=[32]")
    critics = 5 if arguments == ["experiment=soft_agent"] else 2
    assert composed.config["agent"] == {"hidden": [32], "critics": critics}
    assert composed.sources["agent.hidden"] == "command line"
    expected = "experiment soft_agent" if critics == 5 else "default"
    assert composed.sources["agent.critics"] == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["agent.critics=2"], "there is no key 'agent.critics'"),
        (["algorithm=sac", "agent.memory=gru"], "the known keys of agent are critics, hidden"),
        (["algorithm=sac", "agent.criticss=3"], "did you mean 'agent.critics'?"),
        (["algorithm=sac", "alpha=3"], "there is algorithm.alpha"),
        (["algorithm=sac", "critics=3"], "there is agent.critics"),
        (["algorithm=sac", "~agent.critics"], "agent.critics has a default"),
        (["agent=sac"], "agent is 'sac', but it goes with the algorithm; set algorithm=NAME, or single keys of agent"),
    ],
)
def test_mistakes_in_a_section_that_follows(conf: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_with_agent(conf, *arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


OWN = "package.module:OWN"


def run_with_own(conf: Path, *arguments: str) -> Composed:
    defaults = {"seed": 0, "algorithm": {"name": "ppo"}, "agent": to_config(SmallNetworks())}
    sections = {"algorithm": {"rate": 0.1}, "agent": {"layers": 3}}

    def own(name: str) -> dict[str, Any]:
        if name != OWN:
            raise ConfigError(f"algorithm.name: there is no {name!r}", "algorithm.name")
        return sections

    known: Any = {"choices": CHOICES, "followers": FOLLOWERS, "own": own, "conf_folder": conf}
    return compose(arguments, defaults, lambda data: data, **known)


@pytest.mark.parametrize(
    ("arguments", "rate", "source"),
    [
        ([f"algorithm={OWN}"], 0.1, "command line"),
        ([f"algorithm.name={OWN}", "algorithm.rate=0.2"], 0.2, "command line"),
        ([f"algorithm={{name: '{OWN}', rate: 0.2}}"], 0.2, "command line"),
        (["experiment=own"], 0.3, "experiment own"),
        (["config=own.yaml"], 0.4, "file own.yaml"),
    ],
)
def test_a_choice_of_the_user_brings_the_defaults_of_its_sections(
    conf: Path, arguments: list[str], rate: float, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(conf)
    (conf / "experiment" / "own.yaml").write_text(f"# @package _global_\nalgorithm: {{name: '{OWN}', rate: 0.3}}\n")
    (conf / "own.yaml").write_text(f"defaults: [{{experiment: own}}]\nalgorithm: {{name: '{OWN}', rate: 0.4}}\n")
    composed = run_with_own(conf, *arguments)
    assert composed.config == {"seed": 0, "algorithm": {"name": OWN, "rate": rate}, "agent": {"layers": 3}}
    assert composed.sources["algorithm.name"] == source
    assert composed.sources["algorithm.rate"] == ("default" if rate == 0.1 else source)
    assert composed.sources["agent.layers"] == "default"


@pytest.mark.parametrize("arguments", [["algorithm=a:B"], ["algorithm.name=a:B"]])
def test_a_choice_of_the_user_that_is_not_there(conf: Path, arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"^algorithm\.name: there is no 'a:B'$"):
        run_with_own(conf, *arguments)
    with pytest.raises(ConfigError, match=r"algorithm.* is 'a:B'; the choices are ppo, sac$"):
        run(conf, *arguments)
