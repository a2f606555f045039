"""Runs that begin with another run: `gaitway distill`, in which it teaches, and `gaitway finetune`, which goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.cli.open_run import read_run
from gaitway.cli.train_config import TrainConfig, choices, recipe_of
from gaitway.core.config import ConfigError, to_config
from gaitway.core.trust import Origin
from gaitway.runners.run_folder import RunFolder

WARM_UP = 10
"""Iterations in which the critic alone learns before a policy is fine-tuned, unless the arguments say otherwise."""
TAUGHT = ("imitation", "latent_imitation")
"""Losses that need a teacher in the cast."""


class Base(NamedTuple):
    """What the arguments of a command are laid over."""

    defaults: dict[str, Any]
    choices: dict[str, Any]
    """As `train_config.choices` gives them."""
    origin: Origin
    arguments: tuple[str, ...] = ()
    """Arguments that come before the user's."""
    source: str = ""
    """Where `sections` of the defaults come from."""
    sections: tuple[str, ...] = ()


def student_of(path: str) -> Base:
    """A student of the run at `path`: its environment, a teacher in the cast, distillation."""
    folder, run, origin = _opened(path)
    defaults = to_config(TrainConfig())
    defaults |= _world(run) | {"cast": [{"name": "teacher", "teachers": [str(folder.path.resolve())]}]}
    arguments = ("algorithm=distillation",)
    return Base(defaults, choices(), origin, arguments, f"run {folder.path}", ("env", "evaluation", "cast"))


def successor_of(path: str) -> Base:
    """A run of PPO that goes on with the policy of the run at `path`."""
    folder, run, origin = _opened(path)
    name = run.algorithm.name
    if recipe_of(name).agent is not ActorCriticConfig:
        raise ConfigError(
            f"{folder.path} learnt by {name}, whose policy PPO cannot take over; fine-tune a run of ppo, a2c, "
            "reinforce, distillation or bc, or begin by `gaitway train algorithm=... init_from.run=...`"
        )
    plain, known = to_config(run), choices()
    known["followers"]["agent"][1]["ppo"] = plain["agent"]
    algorithm = plain["algorithm"] if name == "ppo" else known["choices"]["algorithm"]["ppo"]
    terms = [term for term in algorithm["terms"] if (term if isinstance(term, str) else term.get("name")) not in TAUGHT]
    known["choices"]["algorithm"]["ppo"] = algorithm | {"terms": terms, "critic_warmup": WARM_UP}
    kept = {key: plain[key] for key in ("total_steps", "rewards", "callbacks")}
    kept["cast"] = [
        part for part in plain["cast"] if (part if isinstance(part, str) else part.get("name")) != "teacher"
    ]
    kept["init_from"] = plain["init_from"] | {"run": str(folder.path.resolve())}
    defaults = to_config(TrainConfig()) | _world(run) | kept
    sections = ("env", "evaluation", "agent", "algorithm", *kept)
    return Base(defaults, known, origin, ("algorithm=ppo",), f"run {folder.path}", sections)


def _opened(path: str) -> tuple[RunFolder, TrainConfig, Origin]:
    folder = RunFolder.open(path)
    run = read_run(folder, None)
    if run.objects:
        raise ConfigError(
            f"{folder.path} was made by a program with objects that no configuration can name; go on there"
        )
    return folder, run, run.origin.trusting(str(folder.path.resolve()))


def _world(run: TrainConfig) -> dict[str, Any]:
    """Where the run played and was measured."""
    plain = to_config(run)
    return {"env": plain["env"] | {"num_threads": None}, "evaluation": plain["evaluation"]}
