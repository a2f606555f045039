"""A depth camera at the front of the base: which rays it casts, and the image that their distances make."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gaitway.envs.legged.frame import rotate
from gaitway.envs.legged.terrain.config import DepthConfig

MOUNT = (0.27, 0.0, 0.03)
"""In the base (m)."""
JITTER, PITCH = 0.01, math.radians(5.0)
"""+- m by which mounts differ by episode, and the most that a camera looks down (rad)."""
FIELD = math.radians(87.0)
"""Horizontal field of view."""
NEAR, FAR = 0.1, 2.0
NOISE_NEAR, NOISE_FAR, NOISE_CHANGE = 0.02, 0.08, 1.0
"""Deviation of a depth (m) below and above the third."""
STRIPE = 3
CAMERA_DRAWS = 4
"""Numbers of an episode: three of the mount, one of the pitch."""


def mirrored(config: DepthConfig) -> list[int] | None:
    """Which column of an image is where each one is seen in a mirror; None for a camera beside the middle plane. Mounts
    differ by episode as far to the left as to the right."""
    return list(reversed(range(config.columns))) if MOUNT[1] == 0.0 else None


class DepthCamera:
    """Images [rows, columns]; the first row looks up, the first column to the left."""

    def __init__(self, config: DepthConfig, like: Tensor, dt: float = 0.02) -> None:
        """`dt` is the time of a step, in which delays are counted."""
        self.config = config
        self.delays = None if config.delay is None else (config.delay[0] / dt, config.delay[1] / dt)
        """The least and the most steps by which images are late."""
        self.kept = 1 if self.delays is None else math.ceil(self.delays[1] / config.refresh) + 1
        """Images that are kept until they are seen."""
        rows, columns = config.rows, config.columns
        focus = columns / 2 / math.tan(FIELD / 2)
        right = (torch.arange(columns, dtype=torch.float64) + 0.5 - columns / 2) / focus
        down = (torch.arange(rows, dtype=torch.float64) + 0.5 - rows / 2) / focus
        plane = torch.stack(
            (torch.ones(rows, columns), -right.expand(rows, -1), -down[:, None].expand(-1, columns)), -1
        )
        plane = plane.flatten(0, 1).to(like)
        length = plane.square().sum(1).sqrt()
        self._ways, self._forward = plane / length[:, None], 1.0 / length
        self._mount = like.new_tensor(MOUNT)
        self.draws = rows * columns + 2
        """Random numbers of an image."""

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.config.rows, self.config.columns

    def seen(self, taken: Tensor, elapsed: Tensor, delay: Tensor) -> Tensor:
        """Which image, newest first, is seen [n]: the newest that is as old as `delay` [n] steps, or the oldest.

        `taken` [n, kept] are the steps of the episode at which they were taken, `elapsed` [n] is the present one.
        """
        too_new = taken > (elapsed.to(delay.dtype) - delay)[:, None]
        return too_new.sum(1).clamp(max=self.kept - 1)

    @property
    def dtype(self) -> torch.dtype:
        return getattr(torch, self.config.type)

    def mount(self, uniform: Tensor) -> Tensor:
        """How the cameras of episodes sit [n, 4]: x, y, z off the usual place (m), and how far they look down (rad)."""
        return torch.cat((JITTER * (2.0 * uniform[:, :3] - 1.0), PITCH * uniform[:, 3:4]), 1)

    def is_due(self, elapsed: Tensor, place: Tensor) -> Tensor:
        """Who takes a new image in this step [n]; instances take turns."""
        return torch.remainder(elapsed + place.long(), self.config.refresh) == 0

    def rays(self, position: Tensor, rotation: Tensor, mount: Tensor) -> tuple[Tensor, Tensor]:
        """Where rays begin [n, 1, 3] and their unit directions [n, P, 3] in the world, for bases [n, 3], [n, 4]."""
        half = mount[:, 3] / 2
        none = torch.zeros_like(half)
        pitch = torch.stack((half.cos(), none, half.sin(), none), 1)
        count = len(self._ways)
        ways = rotate(pitch[:, None].expand(-1, count, -1), self._ways.expand(len(pitch), -1, -1))
        ways = rotate(rotation[:, None].expand(-1, count, -1), ways)
        begins = position + rotate(rotation, self._mount + mount[:, :3])
        return begins[:, None], ways

    def image(self, distance: Tensor, uniform: Tensor | None) -> Tensor:
        """Distances along rays [n, P], below 0 where nothing was hit, as images [n, 1, rows, columns].

        Depth counts along the axis of the camera. `uniform` [n, draws], None without noise.
        """
        far = torch.full_like(distance, FAR)
        depth = torch.where(distance < 0.0, far, distance * self._forward)
        if uniform is not None:
            depth = self._disturbed(depth, uniform, far)
        shown = depth.clamp(NEAR, FAR).unflatten(1, self.shape) / FAR
        if self.dtype == torch.uint8:
            return torch.round(255.0 * shown).to(torch.uint8)
        return (shown - 0.5).to(self.dtype)

    def _disturbed(self, depth: Tensor, uniform: Tensor, far: Tensor) -> Tensor:
        config, pixels = self.config, depth.shape[1]
        number, (striped, where) = uniform[:, :pixels], uniform[:, pixels:].unbind(1)
        dropped = number < config.dropped
        rest = ((number - config.dropped) / (1.0 - min(config.dropped, 1.0 - 1e-9))).clamp(1e-7, 1.0 - 1e-7)
        width = torch.where(depth < NOISE_CHANGE, torch.full_like(depth, NOISE_NEAR), far * (NOISE_FAR / FAR))
        depth = depth + config.noise * width * (math.sqrt(2.0) * torch.erfinv(2.0 * rest - 1.0))
        first = torch.floor(where * (config.columns - STRIPE + 1))[:, None]
        column = torch.arange(pixels, device=depth.device) % config.columns
        stripe = (column >= first) & (column < first + STRIPE) & (striped < config.striped)[:, None]
        return torch.where(dropped | stripe, far, depth)
