"""gaitway chooses the OpenGL backend for the first import of mujoco, so it comes before the tests' own."""

import gaitway  # noqa: F401
