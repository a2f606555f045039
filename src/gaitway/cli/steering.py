"""Commands to a legged robot that is watched: `gaitway play RUN --command 0.5,0,0.2`, and arrow keys in a window."""

from __future__ import annotations

from collections.abc import Sequence

from gaitway.cli.console import console
from gaitway.core.config import ConfigError
from gaitway.envs.pictures.scene import native_task, send_off
from gaitway.envs.vec_env import VecEnv

AXES = ("x", "y", "turn")
STEP = 0.1
"""m/s, rad/s: what one press of a key changes."""
KEYS = {"up": (0, STEP), "down": (0, -STEP), "left": (2, STEP), "right": (2, -STEP)}
STOP = "space"


class Steering:
    """What the robot of a legged task is told; keys change it within the ranges that the task trains. Without a command
    it goes ahead where it would be told to stand (`send_off`)."""

    def __init__(self, env: VecEnv, command: Sequence[float] | None) -> None:
        facts = env.spec.facts.get("legged")
        self._env = env
        if facts is None or not hasattr(native_task(env), "tell"):
            raise ConfigError(f"--command tells a legged robot where to go, and {env.spec.id} has none; leave it out")
        self.ranges = [tuple(facts["commands"][axis]) for axis in AXES]
        if command is None:
            told = send_off(env)
            self.command = None if told is None else list(told)
            return
        self.command = list(command)
        for axis, value, (low, high) in zip(AXES, command, self.ranges, strict=True):
            if not low <= value <= high:
                console.print(
                    f"the command has {axis} {value:g}, and {env.spec.id} trains {low:g} to {high:g}: the policy has "
                    "never been told so",
                    soft_wrap=True,
                )
        self._env.call("tell", command)

    @classmethod
    def of(cls, env: VecEnv, command: Sequence[float] | None) -> Steering | None:
        """None where there is nothing to steer and nobody asked for it."""
        is_legged = "legged" in env.spec.facts and hasattr(native_task(env), "tell")
        return cls(env, command) if command is not None or is_legged else None

    def press(self, key: str) -> None:
        """Arrows: faster, slower, to the left, to the right; the space bar: stop. Others do nothing."""
        if key != STOP and key not in KEYS:
            return
        command = [0.0] * len(AXES) if self.command is None or key == STOP else list(self.command)
        if key in KEYS:
            axis, change = KEYS[key]
            low, high = self.ranges[axis]
            command[axis] = round(min(max(command[axis] + change, low), high), 6)
        self.command = command
        self._env.call("tell", command)

    def caption(self) -> tuple[str, ...]:
        """For a corner of the picture."""
        return () if self.command is None else (f"command {', '.join(f'{each:g}' for each in self.command)}",)
