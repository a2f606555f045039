"""T-RESUME: a run that is stopped and resumed ends with the very bits of one that was not."""

import json
from dataclasses import replace

import pytest
from hierarchy_cases import in_the_midst

from gaitway.agents.actor_critic import ActorCriticConfig, MemoryConfig
from gaitway.agents.deterministic_actor_critic import DeterministicActorCriticConfig, SingleCriticConfig
from gaitway.agents.hiro_policy import HiroPolicyConfig
from gaitway.agents.observations import Observations
from gaitway.agents.soft_actor_critic import SoftActorCriticConfig
from gaitway.agents.switching_policy import SwitchingPolicyConfig
from gaitway.agents.value_policy import ValuePolicyConfig
from gaitway.algorithms.a2c import A2CConfig
from gaitway.algorithms.ddpg import DDPGConfig
from gaitway.algorithms.distillation import DistillationConfig
from gaitway.algorithms.dqn import DQNConfig
from gaitway.algorithms.evolution import CEMConfig, ESConfig, EvolvedActorConfig
from gaitway.algorithms.ppo import PPOConfig
from gaitway.algorithms.reinforce import ReinforceConfig
from gaitway.algorithms.replay_algorithm import ReplayConfig
from gaitway.algorithms.reward_streams import RewardGroup
from gaitway.algorithms.sac import SACConfig
from gaitway.algorithms.td3 import TD3Config
from gaitway.cli.build import build_runner
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import EnvConfig, TrainConfig
from gaitway.core.config import to_config
from gaitway.core.schedules import Schedule
from gaitway.envs.legged.presets import PRESETS
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder
from gaitway.skills.hiro import HiroConfig
from gaitway.skills.switching import SwitchingConfig

STEPS = 8 * 16  # environment steps of one iteration

SMALL = SoftActorCriticConfig(actor_hidden=(16,), critic_hidden=(16,))
NORMALISED = replace(SMALL, normalise_observations=True, layer_norm=True)
VALUES = ValuePolicyConfig(hidden=(16,), normalise_observations=True)
ACTOR = {"actor_hidden": (16,), "critic_hidden": (16,)}
EVOLVED = EvolvedActorConfig(actor_hidden=(4,), critic_hidden=(4,))
PRIORITISED = DQNConfig(prioritised=True, n_step=3, target_interval=7)
PAST = {"name": "history", "reads": ["pos", "vel"], "writes": "past", "length": 4, "size": 8}
DEEP = {"name": "mlp", "reads": ["past", "pos"], "writes": "deep", "size": 6, "hidden": [8]}
FELT = {"name": "recurrent", "reads": ["policy"], "writes": "felt", "size": 8}
NOVELTY = (
    {"name": "rnd", "weight": 0.5, "batch_size": 32},
    {"name": "sim_hash", "weight": 0.5},
    {"name": "task", "weight": 2.0},
)
STYLE = {"name": "style", "motion": "oscillator", "hidden": (16,), "batch_size": 32, "updates": 3, "replay": 300}
PENDULUM = {"pos": {"sin": "-sin"}, "vel": {"velocity": "-velocity"}, "action": {"torque": "-torque"}}
SYMMETRY = {"name": "symmetry", "mirror": PENDULUM, "coef": 0.1}
TRACKING = {"name": "tracking", "motion": "oscillator"}
OSCILLATOR = EnvConfig("toy/oscillator", 8, options={"max_episode_steps": 23})
SHORT_EPISODES = EnvConfig("toy/cartpole", 8, options={"max_episode_steps": 16})

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
    "hiro": TrainConfig(  # stopped after 80 steps, goals come every 7
        env=EnvConfig("walker/hurdles", 8, 1, options={"goal_space": True}),
        algorithm=HiroConfig(),
        agent=HiroPolicyConfig(interval=7, goal_ranges={"rootx:p": [-1, 1], "rooty:p": [-1, 1]}, **ACTOR),
    ),
    "switching": TrainConfig(  # stopped after 80 steps, 11 into an episode; members change every 5
        env=EnvConfig("toy/pendulum", 8, options={"max_episode_steps": 23}),
        algorithm=SwitchingConfig(),
        agent=SwitchingPolicyConfig(members=4, **ACTOR),
    ),
    "a2c": TrainConfig(env=EnvConfig("Hopper-v5", 8, 1), algorithm=A2CConfig()),
    "reinforce": TrainConfig(env=SHORT_EPISODES, algorithm=ReinforceConfig()),
    "dqn": TrainConfig(env=EnvConfig("gymnasium:CartPole-v1", 8), algorithm=DQNConfig(target_interval=7), agent=VALUES),
    "dqn, prioritised": TrainConfig(
        env=EnvConfig("toy/cartpole", 8), algorithm=PRIORITISED, agent=replace(VALUES, dueling=True)
    ),
    "ddpg": TrainConfig(env=EnvConfig("toy/pendulum", 8), algorithm=DDPGConfig(), agent=SingleCriticConfig(**ACTOR)),
    "td3": TrainConfig(
        env=EnvConfig("Hopper-v5", 8, 1),
        algorithm=TD3Config(policy_delay=3),
        agent=DeterministicActorCriticConfig(**ACTOR, normalise_observations=True),
    ),
    "blocks": TrainConfig(
        env=EnvConfig("toy/pendulum", 8, options={"max_episode_steps": 23}),
        agent=ActorCriticConfig(blocks=(PAST, DEEP), observations=Observations(("pos", "past"), ("deep", "vel"))),
    ),
    "recurrent block": TrainConfig(
        env=EnvConfig("toy/cue", 8),
        agent=ActorCriticConfig(blocks=(FELT,), observations=Observations(("policy", "felt"))),
    ),
    "critic memory differs": TrainConfig(
        env=EnvConfig("toy/cue", 8),
        agent=ActorCriticConfig(memory=MemoryConfig("gru", 8), critic_memory=MemoryConfig("lstm", 4)),
    ),
    "sac with a history block": TrainConfig(
        env=EnvConfig("toy/pendulum", 8, options={"max_episode_steps": 23}),
        algorithm=SACConfig(),
        agent=replace(NORMALISED, blocks=(PAST,), observations=Observations(("pos", "past"))),
    ),
    "cem": TrainConfig(env=EnvConfig("gymnasium:CartPole-v1", 1), algorithm=CEMConfig(), agent=EVOLVED),
    "es": TrainConfig(env=EnvConfig("toy/cartpole", 1), algorithm=ESConfig(), agent=EVOLVED),
    "distillation": TrainConfig(
        env=EnvConfig("toy/pendulum", 8, options={"max_episode_steps": 23}),
        algorithm=DistillationConfig(epochs=2, gradient_length=6, memory_noise=0.2),
        agent=ActorCriticConfig(memory=MemoryConfig("lstm", 8), observations=Observations(("pos",), ("pos", "vel"))),
        cast=({"name": "teacher", "teachers": "gaitway.envs.toys.controllers:swing_up", "probability": 0.5},),
    ),
    "teacher": TrainConfig(
        env=EnvConfig("toy/pendulum", 8, options={"max_episode_steps": 23}),
        algorithm=PPOConfig(terms=({"name": "imitation", "coef": {"start": 1.0, "end": 0.1, "over": 8}},)),
        agent=ActorCriticConfig(memory=MemoryConfig("gru", 8), observations=Observations(("pos",), ("pos", "vel"))),
        cast=(
            {
                "name": "teacher",
                "teachers": "gaitway.envs.toys.controllers:swing_up",
                "probability": {"start": 1.0, "end": 0.0, "over": 4, "kind": "decay"},
            },
        ),
    ),
    "reward source": TrainConfig(env=EnvConfig("toy/pendulum", 8), rewards=NOVELTY),
    "style with a replay": TrainConfig(env=OSCILLATOR, rewards=(STYLE, TRACKING, {"name": "task", "weight": 0.5})),
    "reward groups": TrainConfig(
        env=SHORT_EPISODES,
        algorithm=PPOConfig(
            scale_reward=True, reward_groups=(RewardGroup("new", ("rnd", "sim_hash"), episodic=False),)
        ),
        agent=ActorCriticConfig(critics=2),
        rewards=NOVELTY,
    ),
    "symmetry": TrainConfig(env=EnvConfig("toy/pendulum", 8), algorithm=PPOConfig(terms=(SYMMETRY,))),
    "momentum": TrainConfig(
        env=EnvConfig("toy/pendulum", 8),
        algorithm=PPOConfig(optimiser="sgd", momentum=0.9, learning_rate=Schedule(1e-2, 1e-3, over=5)),
    ),
    "sac, style": TrainConfig(env=OSCILLATOR, algorithm=SACConfig(), agent=SMALL, rewards=(STYLE,)),
    "sac, reward source": TrainConfig(
        env=EnvConfig("Hopper-v5", 8, 1), algorithm=SACConfig(n_step=3), agent=SMALL, rewards=NOVELTY
    ),
}


def shorten(config):
    short = {"rollout_steps": 16}
    if isinstance(config.algorithm, PPOConfig):
        short |= {"minibatches": 4, "epochs": 2}
    if isinstance(config.algorithm, ReplayConfig):  # the replay wraps around in the third iteration
        short = {"iteration_steps": STEPS, "learning_starts": 100, "replay_size": 320, "batch_size": 16}
        short["update_ratio"] = 0.3
    if isinstance(config.algorithm, CEMConfig | ESConfig):
        short = {"population": 4, "episodes": 2, "max_episode_steps": 16}
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


def resumes_exactly(config, tmp_path, after=5 * STEPS):
    """Stopped `after` so many steps, it ends as if it had not been."""
    whole = start(config, tmp_path / "whole")
    whole.learn()
    whole.close()

    first = start(config, tmp_path / "parts")
    first.learn(after)
    middle = first.env_steps
    assert after <= middle < after + STEPS  # a generation of evolution may reach beyond
    if isinstance(config.agent, HiroPolicyConfig | SwitchingPolicyConfig):
        assert in_the_midst(first.policy, first.state_dict()["carried"])
    # something written after the checkpoint, as by a run that is killed later
    first.upkeep.logger.log(middle + 1, {"after": 1.0})
    first.close()
    folder = RunFolder.open(tmp_path / "parts")
    second = build_runner(config, folder, logger=Logger(folder.path))
    assert second.resume() == middle
    second.learn()
    second.close()

    assert second.parameters_sha256() == whole.parameters_sha256()
    expected = [line for line in metrics(tmp_path / "whole") if not is_final_of(line, middle)]
    found = [line for line in metrics(tmp_path / "parts") if not is_final_of(line, middle)]
    assert found == expected


@pytest.mark.parametrize("name", CASES)
def test_resume_is_exact(name, tmp_path):
    resumes_exactly(shorten(CASES[name]), tmp_path)


HARDER = {  # commands, kicks and delays change and episodes end in between, before and after the checkpoint
    "episode_seconds": 0.3,
    "commands": {"seconds": [0.1, 0.3]},
    "pushes": {"kick_seconds": [0.1, 0.3], "push_seconds": [0.1, 0.3]},
    "latency": {"most": 5, "seconds": 0.1},
    "randomise": {"enabled": True, "delay": 3},
}
CLIPS = {"name": "starts", "motion": "pup12_trot", "probability": 0.5, "reference": True}
LEGGED = ("pup12/velocity_rough", "pup12/amp_trot", "pup12/field")
"""One for each mechanism: levels, starts in clips, held images; commands, latency, noise and kicks are in all of them.
All other ids with `-m long`."""
CAMERA = {"name": "conv2d", "reads": ["depth"], "writes": "seen", "channels": [4], "size": 4, "hidden": [8]}
SEEING = ActorCriticConfig(
    actor_hidden=(8,),
    critic_hidden=(8,),
    blocks=(CAMERA,),
    observations=Observations(actor=("student", "seen"), critic=("policy",)),
)
"""A policy that acts by images: where nobody reads them, nobody would notice that they are lost."""
OTHER_LEGGED = [id for id in PRESETS if id not in (*LEGGED, "legged:velocity")]


def legged(id):
    """A run with everything that an environment carries."""
    options = dict(HARDER)
    if id == "pup12/gait_params":  # shows nothing that can be late
        options.pop("latency")
    wrappers = (CLIPS,) if "/amp_" in id else ()
    config = shorten(TrainConfig(env=EnvConfig(id, 8, 1, options=options, wrappers=wrappers)))
    if id == "pup12/field":
        config = replace(config, agent=SEEING)
    short = EvaluationConfig(interval=3 * STEPS, episodes=1, max_steps=10)
    return replace(config, total_steps=4 * STEPS, evaluation=short)


@pytest.mark.parametrize("id", [*LEGGED, *(pytest.param(id, marks=pytest.mark.long) for id in OTHER_LEGGED)])
def test_resume_of_legged_tasks_is_exact(id, tmp_path):
    resumes_exactly(legged(id), tmp_path, after=2 * STEPS)


@pytest.mark.parametrize("name", ["native", "gymnasium", "gru", "sac", "dqn, prioritised", "td3", "es"])
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


@pytest.mark.parametrize("name", ["blocks", "critic memory differs", "sac with a history block"])
def test_what_blocks_remember_is_part_of_a_checkpoint(name, tmp_path):
    config = shorten(CASES[name])
    whole, twin = start(config, tmp_path / "whole"), start(config, tmp_path / "twin")
    whole.learn(5 * STEPS)
    state = whole.state_dict()
    assert set(state["carried"]) == set(whole.policy.memories)
    assert all(bool(value.any()) for value in state["carried"].values())
    whole.learn(2 * STEPS)
    state["carried"] = {key: value * 0 for key, value in state["carried"].items()}
    twin.load_state_dict(state)
    twin.learn(2 * STEPS)
    assert twin.parameters_sha256() != whole.parameters_sha256()
