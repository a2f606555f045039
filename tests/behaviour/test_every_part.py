"""Every part of a policy goes through rollout, update, evaluation, predict, resume, recording and export; and none of
them lets the actor see what it must not (T-PRIVATE)."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import gaitway
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy
from gaitway.algorithms.ppo import PPOConfig
from gaitway.cli.build import build_env, build_runner
from gaitway.cli.config_file import write_config
from gaitway.cli.train_config import EnvConfig, TrainConfig
from gaitway.core.config import to_config
from gaitway.data.dataset import Dataset
from gaitway.envs.wrappers import Wrapper
from gaitway.export import proof as proof_module
from gaitway.export.robot_runner import RobotRunner
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig, run_episodes
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder

STEPS = 4 * 16
SMALL = {"actor_hidden": (8,), "critic_hidden": (8,)}
SEES = {"name": "conv2d", "reads": ["camera"], "writes": "seen", "channels": [2, 2], "hidden": [8], "size": 4}
TELLS = {"name": "estimator", "reads": ["seen"], "writes": "place", "target": ["light"], "memory": "gru",
         "memory_size": 5, "hidden": [8], "replace": 0.5}  # fmt: skip
KEEPS = {"name": "history", "reads": ["light.x", "seen"], "writes": "past", "length": 3, "size": 4, "hidden": [8]}
HEAD = {"name": "estimator", "reads": ["actor/memory"], "writes": "again", "target": ["light.y"], "hidden": [8]}
SPEED = {"name": "estimator", "reads": ["pos"], "writes": "speed", "target": ["vel"], "memory": "lstm",
         "memory_size": 4, "replace": 1.0}  # fmt: skip
SLOPE = {"name": "conv1d", "reads": ["pos"], "writes": "slope", "channels": [2], "hidden": [], "size": 3}
CASES = {
    "encoder, estimators, history, memory": TrainConfig(
        env=EnvConfig("toy/light", 4),
        agent=ActorCriticConfig(
            blocks=(SEES, TELLS, KEEPS, HEAD), memory=MemoryConfig("gru", 4), **SMALL,
            observations=Observations(("light", "past"), ("light", "seen")),
        ),
        rewards=({"name": "rnd", "weight": 0.1, "batch_size": 16}, "task"),
    ),
    "estimator, teacher, further term": TrainConfig(
        env=EnvConfig("toy/pendulum", 4, options={"max_episode_steps": 20}),
        algorithm=PPOConfig(terms=("imitation", {"name": "estimation", "of": "speed", "loss": "l1_loss"})),
        agent=ActorCriticConfig(
            blocks=(SLOPE, SPEED), observations=Observations(("pos", "vel", "slope"), ("pos", "vel")), **SMALL
        ),
        cast=("policy", {"name": "teacher", "teachers": "gaitway.envs.toys.controllers:swing_up", "probability": 0.5}),
    ),
}  # fmt: skip
PRIVATE = {"encoder, estimators, history, memory": "light", "estimator, teacher, further term": "vel"}
FORMATS = {"encoder, estimators, history, memory": "onnx", "estimator, teacher, further term": "torch"}


def shortened(config, path):
    return replace(
        config,
        total_steps=4 * STEPS,
        torch_threads=1,
        algorithm=replace(config.algorithm, rollout_steps=16, minibatches=2, epochs=2),
        cast=(*(config.cast or ("policy",)), {"name": "recorder", "path": str(path)}),
        evaluation=EvaluationConfig(interval=2 * STEPS, episodes=2),
        checkpoints=CheckpointConfig(interval=STEPS, keep_all=True),
    )


def start(config, path):
    folder = RunFolder.create(path)
    write_config(folder.config, to_config(config), {})
    runner = build_runner(config, folder, logger=Logger(folder.path))
    folder.write_contract(runner.env.spec.to_dict())
    return runner


class Hidden(Wrapper):
    """Shows NaN where the actor must not look."""

    def __init__(self, env, group):
        super().__init__(env)
        self.group = group

    def shown(self, obs):
        return obs | {self.group: torch.full_like(obs[self.group], float("nan"))}

    def step(self, action):
        step = super().step(action)
        return replace(step, obs=self.shown(step.obs), final_obs=self.shown(step.final_obs))


@pytest.mark.parametrize("name", CASES)
def test_every_part_everywhere(name, tmp_path, monkeypatch):
    config = shortened(CASES[name], tmp_path / "recorded")
    whole = start(config, tmp_path / "whole")  # rollout, update, evaluation
    whole.learn()
    whole.close()
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    losses = {key for line in lines for key in line if key.startswith("loss/estimate/")}
    assert losses == {f"loss/{each}" for each in whole.policy.estimators}
    assert any("eval/return" in line for line in lines)

    recorded = Dataset.open(tmp_path / "recorded")  # recording
    assert recorded.num_steps > 2 * STEPS
    parts = start(replace(config, cast=config.cast[:-1]), tmp_path / "parts")  # resume
    parts.learn(2 * STEPS)
    parts.close()
    folder = RunFolder.open(tmp_path / "parts")
    parts = build_runner(replace(config, cast=config.cast[:-1]), folder, logger=Logger(folder.path))
    assert parts.resume() == 2 * STEPS
    parts.learn()
    parts.close()
    assert parts.parameters_sha256() == whole.parameters_sha256()

    run = gaitway.load(tmp_path / "whole", "last")  # predict, without what is private
    env, private = build_env(config, "evaluation", 2), PRIVATE[name]
    obs = env.reset(seed=0)
    seen = {group: value[0].numpy() for group, value in obs.items() if group in run.policy.actor_groups}
    assert private not in seen
    expected = InferencePolicy(run.policy)(obs)[0].numpy()
    limits = env.spec.action.low, env.spec.action.high
    np.testing.assert_allclose(run.predict(seen), np.clip(expected, *limits), rtol=1e-5, atol=1e-7)

    returns = [  # T-PRIVATE: evaluations
        run_episodes(place, InferencePolicy(run.policy), 2)["return"] for place in (env, Hidden(env, private))
    ]
    assert torch.equal(*returns)
    assert bool(returns[0].isfinite().all())

    monkeypatch.setattr(proof_module, "DRIVEN_STEPS", 20)  # export, which reads nothing private
    format = FORMATS[name]
    assert run.export(tmp_path / "export", format=format).largest <= proof_module.TOLERANCE
    contract = json.loads((tmp_path / "export" / "policy_contract.json").read_text())
    assert private not in [entry["group"] for entry in contract["inputs"]]
    if format == "onnx":
        run.reset()
        np.testing.assert_allclose(RobotRunner(tmp_path / "export")(seen), run.predict(seen), atol=1e-5)
