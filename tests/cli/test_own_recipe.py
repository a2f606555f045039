"""An algorithm of the user, `algorithm.name=package.module:RECIPE`, through every command that needs it."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from gaitway.cli.main import main
from gaitway.cli.train_config import RECIPES, Recipe, TrainConfig, parse, recipe_of
from gaitway.core.config import ConfigError, to_config
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.offline import OfflineRunner

MODULE = '''
from dataclasses import dataclass

import torch

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.cli.train_config import RECIPES, Recipe
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.on_policy import OnPolicyRunner

SHORT = RECIPES["ppo"]._replace(algorithm=PPO)  # all of ours


@dataclass(frozen=True)
class ScaledConfig(PPOConfig):
    """PPO that counts its updates in units of its own."""

    rollout_steps: int = 16
    minibatches: int = 2
    unit: float = 2.0


@dataclass(frozen=True)
class SmallConfig(ActorCriticConfig):
    actor_hidden: tuple[int, ...] = (8,)


class Scaled(PPO):
    def update(self, *args, **kwargs):
        return {**super().update(*args, **kwargs), "own/unit": torch.tensor(self.config.unit)}


class Loud(OnPolicyRunner):
    """A runner of the user."""


@dataclass(frozen=True)
class Nameless:
    rate: float = 0.1


@dataclass(frozen=True)
class Demanding:
    rate: float
    name: str = ""


RECIPE = Recipe(ScaledConfig, SmallConfig, ActorCritic, Scaled, Loud)
NAMELESS = RECIPE._replace(config=Nameless)
DEMANDING = RECIPE._replace(config=Demanding)
PLAIN = RECIPE._replace(agent=dict)
INSTANCE = RECIPE._replace(config=ScaledConfig())
REPLAYED = RECIPES["sac"]._replace(runner=type("MyRunner", (OffPolicyRunner,), {}))
'''
NAME = "own_scaled_ppo:RECIPE"
TINY = ["env.id=toy/cartpole", "env.num_envs=8", "evaluation.episodes=2", "evaluation.interval=256",
        "checkpoints.interval=128", "total_steps=512"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A folder with the module, where the commands are called, which is not among those that Python imports from."""
    path, before, paths = tmp_path_factory.mktemp("own"), os.getcwd(), list(sys.path)
    (path / "own_scaled_ppo.py").write_text(MODULE)
    os.chdir(path)
    main(["list", "algorithms"])  # any command finds modules of this folder from now on
    yield path
    os.chdir(before)
    sys.path[:] = paths
    sys.modules.pop("own_scaled_ppo", None)


@pytest.fixture(scope="module")
def run(folder):
    path = folder / "run"
    arguments = [f"algorithm.name={NAME}", "algorithm.unit=3", f"run_dir={path}"]
    assert main(["train", *TINY, *arguments, "--quiet"]) == 0
    return path


def shown(capsys, *arguments):
    assert main(["train", *TINY, *arguments, "--show-config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_it_is_trained_with_its_own_defaults_and_keys(run):
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["algorithm"]["name"] == NAME
    assert (config["algorithm"]["unit"], config["algorithm"]["rollout_steps"]) == (3.0, 16)
    assert config["agent"]["actor_hidden"] == [8]
    lines = (run / "config.yaml").read_text().splitlines()
    assert f"  name: {NAME}  # command line" in lines
    assert "  rollout_steps: 16" in lines
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any(line.get("own/unit") == 3.0 for line in metrics)


def test_it_is_found_again_by_the_other_commands(run, capsys):
    assert main(["resume", str(run), "more=256", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["info", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["algorithm"], found["steps"]) == (NAME, 768)
    assert main(["eval", str(run), "--checkpoint", "last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 768
    config = parse(yaml.safe_load((run / "config.yaml").read_text()))
    assert type(config.algorithm).__name__ == "ScaledConfig"
    assert parse(to_config(config)) == config


@pytest.mark.parametrize("arguments", [[f"algorithm={NAME}"], [f"algorithm.name={NAME}"], ["config=mine.yaml"]])
def test_it_can_be_named_everywhere(arguments, folder, capsys):
    (folder / "mine.yaml").write_text(f"algorithm: {{name: '{NAME}', epochs: 4}}\n")
    algorithm = shown(capsys, *arguments)["algorithm"]
    assert (algorithm["name"], algorithm["unit"]) == (NAME, 2.0)
    assert algorithm["epochs"] == (4 if arguments == ["config=mine.yaml"] else 5)


def test_a_recipe_of_ours_with_another_algorithm_keeps_its_name(capsys):
    algorithm = shown(capsys, "algorithm.name=own_scaled_ppo:SHORT", "algorithm.epochs=2")["algorithm"]
    assert algorithm == to_config(RECIPES["ppo"].config(epochs=2)) | {"name": "own_scaled_ppo:SHORT"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([f"algorithm.name={NAME}", "algorithm.units=1"], "did you mean 'algorithm.unit'?"),
        ([f"algorithm.name={NAME}", "algorithm.unit=x"], "algorithm.unit is the text 'x'; expected a number (from"),
        ([f"algorithm.name={NAME}", "agent.critic_count=1"], "there is no key 'agent.critic_count'"),
        ([f"algorithm.name={NAME}", "data.path=x"], "learns from what it plays alone"),
        (["algorithm.name=own_scaled_ppo:RECIP"], "has no 'RECIP' (did you mean 'RECIPE'?)"),
        (["algorithm.name=own_scaled_ppoo:RECIPE"], "algorithm.name: there is no module 'own_scaled_ppoo'"),
        (["algorithm.name=own_scaled_ppo:Scaled"], "it should be a Recipe(config, agent, policy, algorithm, runner)"),
        (["algorithm=own_scaled_ppo:Scaled"], "it should be a Recipe(config, agent, policy, algorithm, runner)"),
        (
            ["algorithm.name=own_scaled_ppo:NAMELESS"],
            "Nameless has no field for the name of its recipe; add `name: str",
        ),
        (["algorithm.name=own_scaled_ppo:DEMANDING"], "has no plain defaults (Demanding"),
        (["algorithm.name=own_scaled_ppo:PLAIN"], "should be dataclasses"),
        (["algorithm.name=own_scaled_ppo:INSTANCE"], "should be dataclasses"),
        (["algorithm.name='own scaled:PPO'"], "does not name a class"),
        (["algorithm.name=poo"], "algorithm.name is 'poo' (did you mean 'ppo'?)"),
    ],
)
def test_mistakes_get_one_sentence(arguments, sentence, capsys):
    assert main(["train", *TINY, *arguments]) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1


def test_a_run_whose_module_has_gone_says_so(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, symlinks=True)
    (copy / "config.yaml").write_text((run / "config.yaml").read_text().replace("own_scaled_ppo:", "gone:"))
    assert main(["info", str(copy), "--verify", "--trust", "gone"]) == 1
    assert "algorithm.name: there is no module 'gone' for 'gone:RECIPE'" in capsys.readouterr().err


def test_the_examples_of_the_page(folder, capsys):
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    (module,) = re.findall(r"```python\n# mine\.py\n(.*?)```", text, re.DOTALL)
    (file,) = re.findall(r"```yaml\n(defaults: \[\{experiment.*?)```", text, re.DOTALL)
    (folder / "mine.py").write_text(module)
    (folder / "built_on.yaml").write_text(file)
    config = shown(capsys, "config=built_on.yaml", "algorithm.name=mine:RECIPE", "algorithm.patience=4")
    assert (config["algorithm"]["patience"], config["algorithm"]["clip"], config["algorithm"]["epochs"]) == (4, 0.1, 8)
    arguments = ["algorithm.name=mine:RECIPE", f"run_dir={folder / 'mine'}", "total_steps=256"]
    assert main(["train", *TINY[:-1], *arguments, "--quiet"]) == 0
    assert "patience/left" in (folder / "mine" / "metrics.jsonl").read_text()


def test_sections_and_recipes_belong_together():
    assert all(recipe_of(name) is recipe for name, recipe in RECIPES.items())
    with pytest.raises(ValueError, match="agent is a ActorCriticConfig; sac takes a SoftActorCriticConfig"):
        TrainConfig(algorithm=RECIPES["sac"].config())
    with pytest.raises(ValueError, match="algorithm is a PPOConfig; own_scaled_ppo:RECIPE takes a ScaledConfig"):
        TrainConfig(algorithm=RECIPES["ppo"].config(name=NAME))
    with pytest.raises(ConfigError, match=r"algorithm\.name is None; the choices are"):
        TrainConfig(algorithm={"name": "ppo"})
    own = recipe_of("own_scaled_ppo:REPLAYED")
    assert isinstance(own, Recipe)
    assert (own.runs(OffPolicyRunner), own.runs(OfflineRunner)) == (True, False)
