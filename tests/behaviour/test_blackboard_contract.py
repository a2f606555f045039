"""What the blackboard promises as a whole: light imports, one module for each thing, a test for every known bug."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gaitway.agents.policy_agents import categorical_actor
from gaitway.core.agent import Agents, TemporalAgent
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.envs.registry import make_env
from gaitway.processes.n_remote import NRemoteAgent
from gaitway.processes.workers import WorkerConfig

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = (
    "mujoco",
    "pandas",
    "matplotlib",
    "scipy",
    "plotly",
    "hydra",
    "tensorboard",
    "imageio",
    "ray",
    "minari",
    "wandb",
)


def test_bug_83_the_core_imports_torch_numpy_and_gymnasium_only():
    files = (ROOT / "src/gaitway/core").glob("*.py")
    modules = sorted({path.stem for path in files} - {"__init__", "ray_workers"})  # the last is loaded for Ray only
    lines = [f"import gaitway.core.{name}" for name in modules]
    lines += ["import gaitway.envs.env_agent, gaitway.frames.agent, gaitway.nn.distributions, gaitway.data.replay"]
    lines += ["import sys", f"print(*[name for name in {HEAVY} if name in sys.modules])"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_known_bug_has_a_test_and_the_table_names_them_all():
    spec = importlib.util.spec_from_file_location("bug_table", ROOT / "scripts" / "bug_table.py")
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    assert [row for row, tests in table.tests_by_row().items() if not tests] == []
    assert table.PAGE.read_text() == table.page(), "run `python scripts/bug_table.py`"


def cast(num_envs, env_id="toy/cartpole"):
    world = EnvAgent(make_env(env_id, num_envs=num_envs, seed=0))
    actor = categorical_actor(world.env.spec, hidden=(8,), generator=torch.Generator().manual_seed(0))
    return TemporalAgent(Agents(world.observe, actor, world.advance))


def rows(agent, seed, steps=40):
    ws = Workspace()
    with torch.no_grad():
        agent.clone().seed(seed)(ws, 0, n_steps=steps)
    return ws


@pytest.mark.slow
def test_one_seed_gives_one_workspace_here_there_and_in_several_processes():
    local = [rows(cast(3), seed) for seed in (5, 6)]
    again = rows(cast(3), 5)
    assert all(torch.equal(local[0][name], again[name]) for name in again)
    config = WorkerConfig(start_method="fork")
    agents, ws = NRemoteAgent.create(cast(3), 2, n_steps=40, config=config, timeout_s=60)
    with agents:
        agents.seed(5)
        agents(ws, 0, n_steps=40)
    both = Workspace.cat(local)
    assert set(both) == set(ws)
    assert all(torch.equal(both[name], ws[name]) for name in ws)
