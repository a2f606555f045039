"""T-RESUME: a run that is stopped and resumed ends with the very bits of one that was not."""

import json
from dataclasses import replace

import pytest

from gaitway.agents.actor_critic import ActorCriticConfig, MemoryConfig
from gaitway.agents.soft_actor_critic import SoftActorCriticConfig
from gaitway.algorithms.ppo import PPOConfig
from gaitway.algorithms.sac import SACConfig
from gaitway.cli.build import EnvConfig, TrainConfig, build_runner
from gaitway.cli.config_file import write_config
from gaitway.core.config import to_config
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder

STEPS = 8 * 16  # environment steps of one iteration

SMALL = SoftActorCriticConfig(actor_hidden=(16,), critic_hidden=(16,))
NORMALISED = replace(SMALL, normalise_observations=True, layer_norm=True)

CASES = {
    "native": TrainConfig(env=EnvConfig("Hopper-v5", 8, 1)),
    "scaled rewards": TrainConfig(env=EnvConfig("walker/run", 8, 2), algorithm=PPOConfig(scale_reward=True)),
    "adaptive rate": TrainConfig(env=EnvConfig("toy/pendulum", 8), algorithm=PPOConfig(schedule="adaptive")),
    "normalised values": TrainConfig(env=EnvConfig("toy/cartpole", 8), algorithm=PPOConfig(normalise_value=True)),
    "gymnasium": TrainConfig(env=EnvConfig("gymnasium:CartPole-v1", 8)),
    "gru": TrainConfig(env=EnvConfig("toy/cue", 8), agent=ActorCriticConfig(memory=MemoryConfig("gru", 8))),
    "lstm": TrainConfig(
        env=EnvConfig("gymnasium:CartPole-v1", 8), agent=ActorCriticConfig(memory=MemoryConfig("lstm", 8))
    ),
    "sac": TrainConfig(env=EnvConfig("Hopper-v5", 8, 1), algorithm=SACConfig(), agent=SMALL),
    "sac, n-step": TrainConfig(env=EnvConfig("walker/run", 8, 2), algorithm=SACConfig(n_step=3), agent=NORMALISED),
    "sac, discrete": TrainConfig(env=EnvConfig("gymnasium:CartPole-v1", 8), algorithm=SACConfig(), agent=SMALL),
}


def shorten(config):
    short = {"rollout_steps": 16, "minibatches": 4, "epochs": 2}
    if isinstance(config.algorithm, SACConfig):  # the replay wraps around in the third iteration
        short = {"iteration_steps": STEPS, "learning_starts": 100, "replay_size": 320, "batch_size": 16}
        short["update_ratio"] = 0.3
    return replace(
        config,
        total_steps=10 * STEPS,
        torch_threads=1,
        algorithm=replace(config.algorithm, **short),
        evaluation=EvaluationConfig(interval=3 * STEPS, episodes=2, max_steps=50),
        checkpoints=CheckpointConfig(interval=STEPS, keep_all=True),
    )


def start(config, path):
    folder = RunFolder.create(path)
    write_config(folder.config, to_config(config), {})
    return build_runner(config, folder, logger=Logger(folder.path))


def metrics(path):
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


@pytest.mark.parametrize("name", CASES)
def test_resume_is_exact(name, tmp_path):
    config = shorten(CASES[name])
    whole = start(config, tmp_path / "whole")
    whole.learn()
    whole.close()

    first = start(config, tmp_path / "parts")
    first.learn(5 * STEPS)
    # something written after the checkpoint, as by a run that is killed later
    first.upkeep.logger.log(first.env_steps + 1, {"after": 1.0})
    first.close()
    folder = RunFolder.open(tmp_path / "parts")
    second = build_runner(config, folder, logger=Logger(folder.path))
    assert second.resume() == 5 * STEPS
    second.learn()
    second.close()

    assert second.parameters_sha256() == whole.parameters_sha256()
    expected = [line for line in metrics(tmp_path / "whole") if not is_final_of(line, 5 * STEPS)]
    found = [line for line in metrics(tmp_path / "parts") if not is_final_of(line, 5 * STEPS)]
    assert found == expected


@pytest.mark.parametrize("name", ["native", "gymnasium", "gru", "sac"])
def test_resume_from_the_very_first_checkpoint_is_exact(name, tmp_path):
    config = replace(shorten(CASES[name]), total_steps=3 * STEPS, stagger_timeouts=name == "native")
    whole = start(config, tmp_path / "whole")
    whole.learn()
    folder = RunFolder.open(tmp_path / "whole")
    twin = build_runner(config, folder, logger=Logger(folder.path))
    assert twin.resume("0") == 0
    twin.learn()
    assert twin.parameters_sha256() == whole.parameters_sha256()


def is_final_of(line, step):
    """The evaluation with which the first part ended; the uninterrupted run has none there."""
    return line["step"] == step and any(key.startswith("eval/") for key in line)


@pytest.mark.parametrize("missing", ["env", "policy_stream", "minibatch", "optimiser", "normaliser", "memory"])
def test_a_checkpoint_that_lacks_something_is_not_exact(missing, tmp_path):
    config = shorten(CASES["gru"] if missing == "memory" else CASES["native"])
    whole = start(config, tmp_path / "whole")
    whole.learn(5 * STEPS)
    state = whole.state_dict()
    whole.learn(2 * STEPS)

    twin = start(config, tmp_path / "twin")
    fresh = twin.state_dict()
    if missing == "env":
        state["env"] = fresh["env"]
    elif missing == "policy_stream":
        state["policy_stream"] = fresh["policy_stream"]
    elif missing == "minibatch":
        state["algorithm"]["minibatch_stream"] = fresh["algorithm"]["minibatch_stream"]
    elif missing == "optimiser":
        state["algorithm"]["engine"] = fresh["algorithm"]["engine"]
    elif missing == "normaliser":
        for key in list(state["algorithm"]["policy"]):
            if key.startswith("normalisers"):
                state["algorithm"]["policy"][key] = fresh["algorithm"]["policy"][key]
    else:
        state["carried"] = fresh["carried"]
    twin.load_state_dict(state)
    twin.learn(2 * STEPS)
    assert twin.parameters_sha256() != whole.parameters_sha256()
