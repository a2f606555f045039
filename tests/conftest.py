"""What holds for every test."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
