"""Robots among the blocks of a track, without a simulator: against a re-implementation for one robot at a time."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.envs.legged.endings import fallen
from gaitway.envs.legged.rewards import TERMS
from gaitway.envs.legged.terrain.blocks import Place
from gaitway.envs.legged.terrain.config import TerrainConfig
from gaitway.envs.legged.terrain.obstacles import ID, OBSTACLES
from gaitway.envs.legged.terrain.track import BLOCK, PIT, Track
from tests.envs.legged_cases import frame_of

LIKE = torch.zeros(0, dtype=torch.float64)


def track_of(*blocks: tuple[str, float, float], **options: Any) -> Track:
    """One track with these kinds, extents and critical numbers."""
    names = [name for name, _, _ in blocks]
    track = Track(TerrainConfig(kind="track", obstacles=names, blocks=len(blocks), **options), LIKE)
    kinds = [[float(ID[name]) for name in names]]
    layout = {"level": LIKE.new_zeros(1), "kind": LIKE.new_tensor(kinds)}
    for column, name in ((1, "extent"), (2, "critical")):
        layout[name] = LIKE.new_tensor([[block[column] for block in blocks]])
    track.attach(layout)
    track.place(slice(None))
    return track


def place_of(track: Track, position: list[float], points: list[list[float]] | None = None, speed: float = 1.0) -> Place:
    points = points or [[position[0] - 0.25, *position[1:]], [position[0] + 0.25, *position[1:]]]
    where = LIKE.new_tensor([points])
    return Place(track, slice(None), LIKE.new_tensor([position]), where, LIKE.new_full(where.shape[:2], speed))


BLOCKS = [("crawl", 0.6, 0.3), ("jump", 0.2, 0.1), ("leap", 0.5, 0.0), ("down", 0.3, -0.2)]


def engaged(x: float, y: float, width: int, gap: bool) -> list[float]:
    """Section by section what one robot is told, its rear 0.25 m behind its base."""
    blocks = [("walk", 0.0, 0.0), *BLOCKS]
    nothing = [0.0] * width
    nothing[0] = 1.0
    if abs(y) > 0.9 or x < -0.5:
        return [0.0, *nothing, 0.0, 0.0]
    number = min(max(math.floor(x / 2.0), 0), len(BLOCKS))
    along = x - 2.0 * number
    if along - 0.25 > blocks[number][1] and along > 0.8 and number < len(BLOCKS):
        number += 1
    distance = 2.0 * number - x
    if gap and distance > 1.2:
        return [distance, *nothing, 0.0, 0.0]
    name, extent, critical = blocks[number]
    if name == "leap":
        critical = (
            0.2 + 0.6
        )  # the step down ends at height 0, so that before it the floor is at 0.2; the pit is at -0.6
    hot = [0.0] * width
    hot[3 if name == "down" and width == 5 else ID[name]] = 1.0
    return [distance, *hot, extent, critical]


@pytest.mark.parametrize(("width", "gap"), [(5, False), (11, True)])
def test_the_engaging_block_switches_where_it_should(width: int, gap: bool) -> None:
    """The robot goes along in steps of 1 cm, off both ends."""
    options: dict[str, Any] = {"onehot_width": width, "walk_in_gap": gap}
    track = track_of(*BLOCKS, **options)
    kinds = set()
    for step in range(-60, 1100):
        x = 0.01 * step + 0.005
        found = place_of(track, [x, 0.0, 0.4]).engaging()[0].tolist()
        assert found == pytest.approx(engaged(x, 0.0, width, gap), abs=1e-9), x
        assert sum(found[1 : 1 + width]) == 1.0
        kinds.add(found.index(1.0, 1) - 1)
    assert kinds == ({0, 2, 3, 4} if width == 5 else {0, 2, 3, 4, 6})
    assert place_of(track, [3.0, 0.95, 0.4]).engaging()[0].tolist() == engaged(3.0, 0.95, width, gap)


def _next(place: Place) -> torch.Tensor:
    return (place.number + 1).clamp(max=place.track.blocks)


def _without_extent(place: Place) -> torch.Tensor:
    return place.number + ((place.along > 0.8) & (place.number < place.track.blocks))


@pytest.mark.parametrize("twin", [_next, _without_extent])
def test_a_block_too_early_is_found(twin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Place, "engaged", twin)
    with pytest.raises(AssertionError):
        test_the_engaging_block_switches_where_it_should(5, False)


def test_what_is_told_is_a_copy() -> None:
    track = track_of(*BLOCKS)
    place_of(track, [3.0, 0.0, 0.3]).engaging().fill_(7.0)
    assert track.kind[0].tolist() == [0.0, *(ID[name] for name, _, _ in BLOCKS)]


def test_floors_follow_steps_ramps_and_stairs() -> None:
    track = track_of(("jump", 0.2, 0.1), ("slope", 1.0, 0.2), ("stairs_down", 0.3, -0.05), ("down", 0.3, -0.3))
    rise = math.tan(0.2)
    floors = np.array([0.0, 0.0, 0.1, 0.1 + rise, 0.1 + rise - 0.25])
    lowest = min(*floors, 0.1 + rise - 0.25 - 0.3)
    np.testing.assert_allclose(track.floor[0], floors - lowest, atol=1e-12)
    x = LIKE.new_tensor([[[1.0, 0.0], [4.5, 0.0], [5.9, 0.0], [6.1, 0.0], [7.9, 0.0], [8.1, 0.0]]])
    wanted = [0.0, 0.1 + rise / 2, 0.1 + rise, 0.05 + rise, 0.1 + rise - 0.25, 0.1 + rise - 0.55]
    np.testing.assert_allclose(track.ground(slice(None), x)[0], np.array(wanted) - lowest, atol=1e-12)


@pytest.mark.parametrize(
    ("block", "point", "depth"),
    [
        (("crawl", 0.4, 0.30), (0.1, 0.0, 0.34), 0.04),
        (("crawl", 0.4, 0.30), (0.5, 0.0, 0.34), 0.0),  # behind the bar
        (("hurdle", 0.2, 0.15), (0.1, 0.0, 0.05), 0.10),
        (("jump", 0.2, 0.15), (0.1, 0.0, 0.05), 0.10),
        (("tilt", 0.5, 0.30), (0.1, -0.2, 0.05), 0.05),
        (("leap", 0.5, 0.0), (0.1, 0.0, 0.15), 0.05),
        (("down", 0.3, -0.2), (-0.1, 0.0, -0.03), 0.03),
        (("down", 0.3, -0.2), (0.1, 0.0, -0.03), 0.0),  # behind the edge there is room
        (("slope", 1.0, 0.2), (0.1, 0.0, -0.5), 0.0),
    ],
)
def test_how_deep_points_are_inside(
    block: tuple[str, float, float], point: tuple[float, float, float], depth: float
) -> None:
    """Heights count from the floor before the obstacle, wherever that is: here 0.25 m higher."""
    track = track_of(("jump", 0.2, 0.25), block)
    floor = float(track.floor[0, 2])
    assert floor == pytest.approx(0.25)
    x, y, z = point
    where = [2 * BLOCK + x, y, floor + z]
    place = place_of(track, [2 * BLOCK, 0.0, floor + 0.3], [where])
    assert float(place.penetration()) == pytest.approx(depth, abs=1e-9)
    if depth:  # the twin: the height of the floor is not subtracted
        track.floor -= floor
        other = float(place_of(track, [2 * BLOCK, 0.0, floor + 0.3], [where]).penetration())
        assert block[0] == "tilt" or abs(other - depth) > 0.01


def test_terms_of_tracks() -> None:
    track = track_of(("crawl", 0.4, 0.30), ("tilt", 0.5, 0.3))
    place = place_of(track, [BLOCK + 0.1, 0.0, 0.3], [[BLOCK + 0.1, 0.0, 0.34], [BLOCK + 0.1, 0.0, 0.2]])
    assert float(TERMS["penetrate_depth"](frame_of(place=place))) == pytest.approx(0.04004)
    assert float(TERMS["penetrate_volume"](frame_of(place=place))) == pytest.approx(1.001)
    rolled = {"gravity": [0.0, -0.5, -math.sqrt(0.75)]}
    assert float(TERMS["tilt_cond"](frame_of(place=place, **rolled))) == pytest.approx(-math.pi / 6)
    between = place_of(track, [2 * BLOCK + 0.2, 0.0, 0.3])
    assert float(TERMS["tilt_cond"](frame_of(place=between, **rolled))) == pytest.approx(math.pi / 6)
    with pytest.raises(ValueError, match="only tracks have obstacles"):
        TERMS["penetrate_depth"](frame_of())


def test_limits_follow_the_block_under_the_robot() -> None:
    track = track_of(("tilt", 0.5, 0.3), ("leap", 0.3, 0.0), ("crawl", 0.4, 0.3))
    endings = ["trunk", "links", "tilt", "height"]

    def ends(
        x: float, roll: float = 0.0, pitch: float = 0.0, height: float = 0.3, force: float = 0.0, link: float = 0.0
    ) -> bool:
        # in the base frame down is (sin pitch, -cos pitch sin roll, -cos pitch cos roll)
        down = [math.sin(pitch), -math.cos(pitch) * math.sin(roll), -math.cos(pitch) * math.cos(roll)]
        changes = {"gravity": down, "height": height, "trunk_force": force, "link_force": [link, *[0.0] * 7]}
        return bool(fallen(frame_of(place=place_of(track, [x, 0.0, height]), **changes), endings))

    assert not ends(3.0, roll=1.4) and ends(5.0, roll=0.5) and ends(1.0, roll=0.9)  # noqa: PT018
    assert ends(7.0, pitch=0.8)
    assert not ends(5.0, pitch=0.8)
    assert ends(7.0, height=0.07)
    assert ends(5.0, height=0.1)
    assert not ends(7.0, height=0.1)
    assert ends(5.0, force=2.0)
    assert not ends(7.0, force=2.0)
    assert ends(5.0, link=2.0)
    assert not ends(7.0, link=2.0)
    assert not ends(5.0, link=0.5)
    assert not ends(5.0, height=0.3)
    large = dataclasses.replace(frame_of().robot, fall_height=0.36)  # three times as high
    for x, lowest in ((5.0, 0.36), (7.0, 0.24)):
        for height in (lowest - 0.01, lowest + 0.01):
            frame = dataclasses.replace(frame_of(place=place_of(track, [x, 0.0, height]), height=height), robot=large)
            assert bool(fallen(frame, endings)) == (height < lowest)
    assert bool(place_of(track, [4.1, 0.0, -0.3]).has_fallen_in())
    assert bool(place_of(track, [8.3, 0.0, 0.3]).is_past())
    assert not bool(place_of(track, [8.2, 0.0, 0.3]).is_past())


def test_hard_is_what_the_table_says() -> None:
    for name, each in OBSTACLES.items():
        track = Track(TerrainConfig(kind="track", obstacles=[name], blocks=2), LIKE)
        for level, wanted in ((0.0, each.easy), (9.0, each.hard)):
            drawn = track.draw(LIKE.new_full((1, track.draws), 0.75), LIKE.new_zeros(1), LIKE.new_tensor([level]))
            which = "extent" if name == "leap" else "critical"
            assert drawn[which][0].tolist() == pytest.approx([wanted] * 2), name
    assert PIT == -0.6
