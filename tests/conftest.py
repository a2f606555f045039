"""What holds for every test."""

import atexit
import os
import shutil
import signal
import sys
import tempfile

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it

# the key that tells one's own runs lies in a folder of the tests, also for the processes they start
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="gaitway_state_")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def _runs_are_not_drawn(request):
    """Runs end without their plots, which take longer than most of them, but in modules that say LOOKS_AT_PLOTS."""
    with pytest.MonkeyPatch.context() as patch:
        if "gaitway.cli.main" in sys.modules and not getattr(request.module, "LOOKS_AT_PLOTS", False):
            patch.setattr("gaitway.cli.commands.plot_run", lambda path: [])
        yield
