"""A robot among the blocks of its track: which obstacle it engages, what it penetrates, when it is past everything."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gaitway.envs.episode_numbers import Index
from gaitway.envs.legged.frame import Bodies, norm, rotate
from gaitway.envs.legged.terrain.obstacles import CRAWL, DOWN, HURDLE, JUMP, LEAP, TILT, WALK
from gaitway.envs.legged.terrain.track import BLOCK, EXTENT, FLOOR, WIDTH, Track

NEAR = 1.2
"""The next obstacle is engaged from this distance on (m)."""
GOAL = 1.0
"""How far behind an obstacle its goal lies (m)."""
MARGIN, BEHIND = 0.1, -0.5
"""A robot is off the track so far beside it, or behind its beginning (m)."""
FALLEN = 0.25
"""A base so far below the floor has fallen into a pit (m)."""
LEAP_HEIGHT = 0.2
"""Points lower than this (m) above a gap count as inside."""
ROLL, PITCH, LOW = 0.8, 1.6, 0.12
"""Endings: roll, pitch (rad) and height of the base (m) of a robot of pup12's size."""
ROLLS, PITCHES, LOWS = {TILT: 1.5, LEAP: 0.4}, {CRAWL: 0.7}, {CRAWL: 0.08}
"""Where the block under the robot sets them otherwise."""


@dataclass(frozen=True)
class BodyPoints:
    """Points of a robot's surface: the body [K] each is fixed to, and where in it [K, 3]."""

    body: Tensor
    place: Tensor

    def positions(self, bodies: Bodies) -> Tensor:
        """[n, K, 3] in the world."""
        turn = bodies.rotation[:, self.body]
        return bodies.position[:, self.body] + rotate(turn, self.place.expand(len(turn), -1, -1))

    def speeds(self, bodies: Bodies, points: Tensor) -> Tensor:
        """[n, K]; velocities of bodies are told as of the robot's centre of mass."""
        turning, moving = bodies.velocity[:, self.body].split(3, -1)
        return norm(moving + torch.linalg.cross(turning, points - bodies.centre[:, None]))


@dataclass
class Place:
    """Where robots are on their tracks; tables of `Track` for the same n rows."""

    track: Track
    rows: Index
    position: Tensor
    """Of the base [n, 3]."""
    points: Tensor
    """[n, K, 3]"""
    speeds: Tensor
    """[n, K]"""

    def __post_init__(self) -> None:
        x = self.position[:, 0]
        self._depth: Tensor | None = None
        self.number = self.track.block_of(x)
        """The block under the base [n]."""
        self.along = x - BLOCK * self.number
        self.rear = self.points[..., 0].amin(1) - x
        """How far the rearmost point is ahead of the base [n], below 0."""
        self.kind = self._of(self.track.kind, self.number)
        self.extent = self._of(self.track.extent, self.number)
        self.profile_floor = self._of(self.track.profile[..., FLOOR], self.number)

    def _of(self, table: Tensor, number: Tensor) -> Tensor:
        return table[self.rows].gather(1, number[:, None])[:, 0]

    def is_off(self) -> Tensor:
        """Beside the track or behind it, bool [n]."""
        return (self.position[:, 1].abs() > WIDTH / 2 + MARGIN) | (self.position[:, 0] < BEHIND)

    def is_past(self) -> Tensor:
        """The whole robot is behind the last block, bool [n]."""
        return self.position[:, 0] + self.rear > self.track.length

    def has_fallen_in(self) -> Tensor:
        """The base is below the lower of the floors around it, bool [n]."""
        floor = torch.minimum(self._of(self.track.floor, self.number), self.profile_floor)
        following = (self.number + 1).clamp(max=self.track.blocks)
        return self.position[:, 2] < torch.minimum(floor, self._of(self.track.floor, following)) - FALLEN

    def engaged(self) -> Tensor:
        """The number of the block whose obstacle matters [n]."""
        moves_on = (self.along + self.rear > self.extent) & (self.along > BLOCK - NEAR)
        return self.number + (moves_on & (self.number < self.track.blocks))

    def goal(self) -> Tensor:
        """A point on the middle line of the track, behind the obstacle that matters [n, 2]."""
        number = self.engaged()
        x = BLOCK * number + self._of(self.track.extent, number) + GOAL
        return torch.stack((x, torch.zeros_like(x)), 1)

    def engaging(self) -> Tensor:
        """Distance to the obstacle that matters [n], its kind as a one-hot, its extent and critical number."""
        track, number = self.track, self.engaged()
        kind, extent, critical = (self._of(table, number) for table in (track.kind, track.extent, track.critical))
        distance = BLOCK * number - self.position[:, 0]
        nothing = self.is_off()
        if track.config.walk_in_gap:
            nothing = nothing | (distance > NEAR)
        none = torch.zeros_like(distance)
        kind = torch.where(nothing, none + WALK, kind)
        distance = torch.where(self.is_off(), none, distance)
        info = torch.stack((extent, critical), 1) * ~nothing[:, None]
        return torch.cat((distance[:, None], track.one_hot(kind), info), 1)

    def way_through(self) -> Tensor:
        """Metres of obstacles that the whole robot has passed [n]."""
        track = self.track
        begins = BLOCK * torch.arange(track.blocks + 1, dtype=self.rear.dtype, device=self.rear.device)
        extent = track.extent[self.rows]
        passed = (self.position[:, 0] + self.rear)[:, None] > begins + extent
        return (extent * passed).sum(1)

    def penetration(self) -> Tensor:
        """How deep each point is inside the obstacle of its block [n, K] (m); found once, whoever asks."""
        if self._depth is None:
            self._depth = self._penetration()
        return self._depth

    def _penetration(self) -> Tensor:
        track, rows = self.track, self.rows
        x, y, z = self.points.unbind(-1)
        number = track.block_of(x)
        kind, critical, extent, floor = (
            table[rows].gather(1, number) for table in (track.kind, track.critical, track.extent, track.floor)
        )
        along, above = x - BLOCK * number, z - floor
        within = (along >= 0.0) & (along < extent)
        none = torch.zeros_like(x)
        raised = (kind == JUMP) | (kind == HURDLE)
        depth = torch.where(raised, critical - above, none)
        depth = torch.where(kind == CRAWL, above - critical, depth)
        depth = torch.where(kind == TILT, y.abs() - critical / 2, depth)
        depth = torch.where(kind == LEAP, LEAP_HEIGHT - above, depth)
        depth = torch.where(within, depth, none)
        # a step down is penetrated before its edge: what is below the floor of the block before
        following = (number + 1).clamp(max=track.blocks)
        steps_down = (track.kind[rows].gather(1, following) == DOWN) & (number < track.blocks)
        before = along > BLOCK - track.profile[rows][..., EXTENT].gather(1, following)
        edge = track.floor[rows].gather(1, following)
        return torch.where(steps_down & before, edge - z, depth).clamp(min=0.0)

    def may_touch(self) -> Tensor:
        """Where bases and links may touch what is in the way, bool [n]."""
        return (self.kind == CRAWL) | (self.kind == TILT)

    def is_tilted(self, roll: Tensor, pitch: Tensor) -> Tensor:
        """Beyond the limits of the block under the robot, bool [n]."""
        return (roll.abs() > self._limit(ROLL, ROLLS)) | (pitch.abs() > self._limit(PITCH, PITCHES))

    def is_low(self, height: Tensor, lowest: float) -> Tensor:
        """Bases [n] m above the ground that are too low there, or in a pit, bool [n]; on a plane this robot's base is
        down below `lowest` m."""
        return (height * (LOW / lowest) < self._limit(LOW, LOWS)) | self.has_fallen_in()

    def _limit(self, usual: float, others: dict[int, float]) -> Tensor:
        found = torch.full_like(self.kind, usual)
        for kind, value in others.items():
            found = torch.where(self.kind == kind, torch.full_like(found, value), found)
        return found

    def tilts(self) -> Tensor:
        """Between the walls of a tilt, bool [n]."""
        return (self.kind == TILT) & (self.along < self.extent)

    def to_the_walls(self) -> Tensor:
        """Distances to the left and the right wall [n, 2]."""
        y = self.position[:, 1]
        return torch.stack((WIDTH / 2 - y, WIDTH / 2 + y), 1)
