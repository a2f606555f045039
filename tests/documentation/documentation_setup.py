"""What the Python blocks of README.md and docs/*.md take as given, and what is made smaller so that they run quickly.

A block is code of a page, run after the blocks before it; `SETUP` has what a reader would have in place of names that a
page leaves open, before the block of that number. `SHORTER` replaces words of a page: sizes, and what is not here.
"""

ELSEWHERE = {
    "docs/how_to_add.md": "its files and commands are run by tests/behaviour/test_how_to_add.py",
    "docs/foreign_simulators.md": "it needs others' simulators; tests/envs/foreign/test_tensor_env.py plays their part",
}
"""Pages whose blocks are run elsewhere, or cannot be here; they are compiled."""

SHORTER: dict[str, dict[str, str]] = {
    "docs/datasets.md": {"D4RL/pen/human-v2": "local/pen-v0", "1000": "1", "n_steps=200": "n_steps=20"},
    "docs/environments.md": {
        'context="spawn"': 'context="fork"',
        "num_envs=8": "num_envs=1",
        "BipedalWalker-v3": "CartPole-v1",
    },
    "docs/evolution.md": {"processes=2": "processes=0", "200_000": "1"},
    "docs/motions.md": {"clips/walk": "clips/run"},
    "docs/offline.md": {"10_000": "200"},
    "docs/pictures.md": {'tensorboard=True, wandb={"project": "gait", "group": "seeds", "tags": "ppo, walker"}': ""},
    "docs/processes.md": {
        "num_processes=2": "num_processes=0",
        "TemporalAgent(evaluation_cast)": 'TemporalAgent(evaluation_cast), workers="local"',
        "n_steps=1000": "n_steps=10",
        'num_processes=64, workers="ray"': "num_processes=0",
    },
    "docs/seeing.md": {"length=400": "length=4"},
    "docs/sweeps.md": {"n_trials=20": "n_trials=2"},
}
"""Page -> words -> what stands in their place."""

SETUP: dict[str, dict[int, str]] = {
    "docs/bandits.md": {1: "from gaitway.skills.bandits import Bandit"},
    "docs/bipedal_skills.md": {
        1: """
import numpy as np
recorded = np.random.default_rng(0).normal(size=(100, 3))
"""
    },
    "docs/concepts.md": {
        0: """
import torch
from gaitway import ActorCritic, Agent, Agents, EnvAgent, TemporalAgent, Workspace, make_env
from gaitway.core.storage import Variable
env = make_env("toy/pendulum", num_envs=2)
world, policy, action = EnvAgent(env), ActorCritic(env.spec), torch.zeros(2, 1)
"""
    },
    "docs/datasets.md": {
        1: """
from dataclasses import replace
from types import SimpleNamespace
from gaitway.envs.spec import Component, ObservationGroup
kept = env
seen = [ObservationGroup(name, (Component(name, 4),), (4,)) for name in ("depth", "scan")]
env = SimpleNamespace(spec=replace(env.spec, groups=tuple(seen)))
""",
        2: "env = kept",
        4: """
import os
import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer
mine = data
os.makedirs("minari")
buffer = EpisodeBuffer(observations=np.zeros((4, 2)), actions=np.zeros((3, 1), np.float32), rewards=[0.0] * 3,
                       terminations=[False, False, True], truncations=[False] * 3, infos={})
minari.create_dataset_from_buffers(
    dataset_id="local/pen-v0", buffer=[buffer], observation_space=spaces.Box(-1.0, 1.0, (2,), np.float64),
    action_space=spaces.Box(-1.0, 1.0, (1,), np.float32), algorithm_name="none", code_permalink="none", author="nobody",
    author_email="nobody@example.org")
""",
        6: """
import json
import pickle
os.makedirs("demos/go1/trajectory_0")
facts = {"env": "go1", "total_timesteps": 2, "rollout_storage_length": 2}
open("demos/go1/metadata.json", "w").write(json.dumps(facts))
rows = {"observations": np.zeros((2, 3), np.float32), "privileged_observations": np.zeros((2, 3), np.float32),
        "actions": np.zeros((2, 1)), "rewards": np.zeros((2, 1), np.float32), "values": np.zeros((2, 1), np.float32),
        "dones": np.array([[0], [1]], np.uint8), "timeouts": np.zeros(2, bool)}
open("demos/go1/trajectory_0/traj_000000_000002.pickle", "wb").write(pickle.dumps(rows))
""",
        7: """
from gaitway import DQN, DQNConfig, OffPolicyRunner, RunnerConfig, ValuePolicy
from gaitway.algorithms.algorithm import Now
data = mine
algorithm = DQN(ValuePolicy(env.spec), DQNConfig(replay_size=20_000), num_envs=env.num_envs)
""",
    },
    "docs/distributions.md": {
        1: """
from gaitway.nn.state_dependent_noise import StateDependentNoise
head = StateDependentNoise(size=2, latent=8)
batch_size, latent = 4, torch.zeros(4, 8)
params = head(torch.zeros(4, head.inputs))
"""
    },
    "docs/environments.md": {
        1: "my_worker = None",
        2: """
import os
import shutil
import gymnasium
assets = os.path.join(os.path.dirname(gymnasium.__file__), "envs", "mujoco", "assets")
shutil.copy(os.path.join(assets, "hopper.xml"), "hopper.xml")
""",
    },
    "docs/examples.md": {
        0: """
import torch
from gaitway import (
    Agents, EnvAgent, EpisodesDone, TemporalAgent, ValueCritic, Workspace, categorical_actor, make_env,
)
from gaitway.functional.episode_returns import cumulated_reward
from gaitway.functional.reinforce import reinforce_losses
"""
    },
    "docs/export.md": {
        0: """
import os
import sys
import torch
import gaitway
import gaitway.export
sys.path.append(os.path.dirname(gaitway.export.__file__))  # the export holds a copy of the module
env = {"id": "walker/run", "num_envs": 2}
run = gaitway.train(env=env, algorithm={"rollout_steps": 4, "minibatches": 1}, total_steps=8, run_dir="run")
run.export("policy", format="onnx")
observation = gaitway.make_env("walker/run").reset()["policy"][0].numpy()
"""
    },
    "docs/frames.md": {
        1: """
T, loop = ws.T, TemporalAgent(Agents(world, Balance()))
""",
        3: """
from gaitway import ActorCritic, EnvAgent, FrameAgent, Rendering, Window, make_env
import gymnasium
frames = FrameAgent(lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"), num_envs=1)
world = EnvAgent(make_env("gymnasium:CartPole-v1", render_mode="rgb_array"))
policy = ActorCritic(world.env.spec)
""",
    },
    "docs/motions.md": {
        0: """
import numpy as np
from gaitway import make_env
from motion_cases import walk
generator = np.random.default_rng(0)
env = make_env("walker/run", wrappers=[{"name": "features", "features": "amp"}])
walk(fps=1.0 / env.spec.control_dt)[1].save("clips/run")
""",
    },
    "docs/networks.md": {
        0: """
import torch
observation, goal, bits = torch.zeros(2, 59), torch.zeros(2, 7), torch.zeros(2, 7)
"""
    },
    "docs/pictures.md": {
        0: """
import torch
from gaitway import ValuePolicy, make_env
env = make_env("toy/cartpole", num_envs=4)
policy, observations = ValuePolicy(env.spec), env.reset()["policy"]
""",
        1: """
import gaitway
shape = {"env": {"id": "toy/cartpole", "num_envs": 2}, "total_steps": 8, "run_dir": "runs/dqn"}
gaitway.train("dqn_cartpole", **shape)
""",
        2: """
from gaitway import Agents, EnvAgent, TemporalAgent, UniformActor, Workspace
world, ws = EnvAgent(make_env("toy/cartpole", num_envs=2)), Workspace()
TemporalAgent(Agents(world.observe, UniformActor(world.env.spec.action), world.advance))(ws, 0, n_steps=8)
returns_a, returns_b = [1.0, 2.0, 3.0], [2.0, 3.0, 4.0]
""",
        3: """
import json
import os
for number in range(2):
    os.makedirs(f"runs/sweep/{number}")
    settings = {"seed": number, "algorithm": {"learning_rate": 0.1 * (number + 1), "gamma": 0.9}}
    open(f"runs/sweep/{number}/config.yaml", "w").write(json.dumps(settings))
    lines = [{"step": step, "train/return": 1.0 * step} for step in (1, 2, 3)]
    open(f"runs/sweep/{number}/metrics.jsonl", "w").write("".join(json.dumps(line) + "\\n" for line in lines))
""",
        4: "steps, loss = 100, 0.5",
        5: """
import pickle
os.makedirs("old/run")
open("old/run/db.pickle", "wb").write(pickle.dumps([("reward", 0, 1.5), ("reward", 10, 2.5)]))
""",
    },
    "docs/processes.md": {
        0: """
import torch
from gaitway import Agent, AsynchronousAgent, NRemoteAgent, ParamPopulation, TemporalAgent
from worker_cast import walker
cast = walker(seed=0)
""",
        1: """
class Steer(Agent):
    writes = ("action",)
    def __init__(self):
        super().__init__("policy")
        self.scale = torch.nn.Parameter(torch.ones(2))
    def step(self, ws, t, *, stochastic=True):
        ws.put("action", t, self.scale.detach())
evaluation_cast = policy = Steer()
""",
        2: """
evaluation.close()
walk = walker(seed=0)
walk.agent.stride = walk.agent.scale
""",
    },
    "docs/running.md": {
        1: """
import torch
from gaitway.core.files import save_state
save_state("runs/first/failures/81920/rollout", {"env/obs/policy": torch.zeros(3, 2, 4)}, kind="rollout")
""",
        2: """
import json
open("runs/first/config.yaml", "w").write("seed: 1\\n")
open("runs/first/metrics.jsonl", "w").write(json.dumps({"step": 1, "eval/return": 2.0}) + "\\n")
""",
    },
    "docs/seeing.md": {
        0: """
import numpy as np
from gaitway import make_env
from gaitway.runners.baselines import ZeroPolicy
policy = ZeroPolicy(make_env("walker/run").spec.action)
frames = np.zeros((2, 480, 640, 3), np.uint8)
"""
    },
    "docs/skills.md": {
        0: """
import torch
observation, desired_goal, task = torch.zeros(2, 59), torch.zeros(2, 7), torch.zeros(2, 7)
""",
        2: """
from gaitway import make_env
env = make_env("walker/skills", num_envs=2)
""",
        3: """
import numpy as np
from gaitway.envs.tasks.skills.goals import TaskSet
space, generator = skills.space, torch.Generator().manual_seed(0)
tasks = TaskSet(space, skills.task_map, ["0", "1", "2", "3+4", "5+6"])
features = np.zeros((1024, space.size))
""",
        4: """
from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.skills.continuous_skills import ContinuousSkills
options = {"full_episodes": True, "implicit_soft_resets": False, "normalize_gs_observation": True}
spec = make_env("walker/skills", **options).spec
made = DIAYNPolicy(spec, DIAYNPolicyConfig(n_skills=10, n_embed=7))
ContinuousSkills.of_policy(made, accuracy=[0.5] * 10, origin={}).save("runs/walker_diaync")
skill = torch.zeros(2, 7)
""",
    },
    "docs/statistics.md": {
        1: """
old, new = np.loadtxt("old.csv", delimiter=","), np.loadtxt("new.csv", delimiter=",")
""",
        2: """
import json
import os
for place in ("ppo/0", "ppo/1", "sweep/0", "sweep/1"):
    number = int(place[-1])
    os.makedirs(f"runs/{place}")
    settings = {"seed": number, "env": {"id": "toy", "num_envs": 16}}
    settings["algorithm"] = {"learning_rate": 0.001 * (number + 1)}
    open(f"runs/{place}/config.yaml", "w").write(json.dumps(settings))
    lines = [{"step": step, "eval/return": 1.0 * step, "loss/value": 1.0} for step in range(1, 7)]
    open(f"runs/{place}/metrics.jsonl", "w").write("".join(json.dumps(line) + "\\n" for line in lines))
thresholds, other = [0.5, 1.0], np.array([[3.0], [4.0]])
""",
    },
    "docs/sweeps.md": {
        0: """
import optuna
from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig, make_env
from gaitway.runners.evaluate import EvaluationConfig
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(direction="maximize")
def make(purpose, num_envs):
    return make_env("toy/cartpole", num_envs=num_envs, purpose=purpose)
def make_runner(trial):
    env = make("train", 2)
    config = PPOConfig(rollout_steps=4, minibatches=1, learning_rate=trial.suggest_float("rate", 1e-4, 1e-3))
    algorithm = PPO(ActorCritic(env.spec), config, num_envs=2)
    evaluation = EvaluationConfig(episodes=2, max_steps=8)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=8, evaluation=evaluation), make_env=make)
"""
    },
}
"""Page -> number of the block -> what comes before it."""
