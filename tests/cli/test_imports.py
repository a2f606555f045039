"""What the commands import: simulators of others come with a MuJoCo that has no `mujoco.batch`."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
sys.modules["mujoco.batch"] = None  # importing it raises ImportError
import gaitway.cli
for found in pkgutil.walk_packages(gaitway.cli.__path__, "gaitway.cli."):
    importlib.import_module(found.name)
import gaitway.envs.check, gaitway.envs.foreign.tensor_env
import gaitway.envs.foreign.manager_env, gaitway.envs.foreign.brax_env
from gaitway import make_env
make_env("toy/cue", 2).close()
try:
    make_env("HalfCheetah-v5", 1)
except ImportError as error:
    assert "mujoco.batch" in str(error)
else:
    raise AssertionError("a native task was made without mujoco.batch")
"""


def test_nothing_of_the_commands_needs_mujoco_batch_before_a_native_task_is_made() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
