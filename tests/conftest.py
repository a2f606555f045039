"""What holds for every test."""

import atexit
import os
import shutil
import signal
import tempfile

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it

# the key that tells one's own runs lies in a folder of the tests, also for the processes they start
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="gaitway_state_")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
