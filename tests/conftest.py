"""What holds for every test."""

import atexit
import contextlib
import os
import shutil
import signal
import sys
import tempfile

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup starts what it runs without it

# the key that tells one's own runs lies in a folder of the tests, also for the processes they start
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="gaitway_state_")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Tests that share something dear come first: with `--dist worksteal` each worker begins with its part of the list
    and gives away the end of it, so that one worker alone starts a cluster of Ray."""
    items.sort(key=lambda item: "test_ray_workers" not in item.nodeid)


@pytest.fixture(scope="module", autouse=True)
def _runs_are_not_drawn():
    """Runs end without their plots, which take longer than most of them; see `drawn`."""
    with pytest.MonkeyPatch.context() as patch:
        if "gaitway.cli.main" in sys.modules:
            patch.setattr("gaitway.cli.training.plot_run", lambda path: [])
        yield


@pytest.fixture(scope="session")
def drawn():
    """`with drawn():` around runs whose plots somebody looks at."""

    @contextlib.contextmanager
    def context():
        from gaitway.analysis.plots import plot_run

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gaitway.cli.training.plot_run", plot_run)
            yield

    return context
