"""One run and its export for all tests here: an export takes seconds."""

import pytest

from gaitway.cli import training
from gaitway.cli.main import main

GRU = ["env.id=toy/pendulum", "env.num_envs=4", "algorithm.rollout_steps=16", "algorithm.minibatches=1",
       "total_steps=256", "evaluation.episodes=1", "evaluation.max_steps=10", "agent.memory.kind=gru",
       "agent.memory.size=8", "agent.actor_hidden=[8]", "agent.critic_hidden=[8]"]  # fmt: skip


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A recurrent run with a trained normaliser, and its export in `export`."""
    folder = tmp_path_factory.mktemp("exported") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "plot_run", lambda path: [])
        assert main(["train", *GRU, f"run_dir={folder}", "--quiet"]) == 0
    assert main(["export", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def exported(run):
    return run / "export"
