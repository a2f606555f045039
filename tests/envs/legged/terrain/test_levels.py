"""Levels of terrain, and images of depth, as functions of numbers."""

from __future__ import annotations

import pytest
import torch

from gaitway.envs.legged.frame import Frame
from gaitway.envs.legged.terrain.config import DepthConfig, TerrainConfig
from gaitway.envs.legged.terrain.depth import FAR, DepthCamera
from gaitway.envs.legged.terrain.levels import UNKNOWN, first_level, graduated, next_level
from gaitway.envs.legged.terrain.surroundings import Surroundings
from gaitway.envs.legged.terrain.tiles import Tiles
from gaitway.envs.legged.terrain.track import Track
from tests.envs.legged_cases import frame_of

LIKE = torch.zeros(0, dtype=torch.float64)


def numbers(*values: float) -> torch.Tensor:
    return LIKE.new_tensor(values)


def test_levels_go_up_and_down_and_up_wins() -> None:
    up, down = torch.tensor([True, False, True, False, True]), torch.tensor([False, True, True, True, False])
    assert next_level(numbers(3, 3, 3, 0, 9), up, down).tolist() == [4, 2, 4, 0, 10]


def test_whoever_passed_the_hardest_virtual_level_begins_anew() -> None:
    level, solid = graduated(numbers(10, 10, 4, 9), numbers(0, 1, 0, 0))
    assert level.tolist() == [UNKNOWN, 10, 4, 9]
    assert solid.tolist() == [1, 1, 0, 0]


def test_where_levels_begin() -> None:
    config, uniform = TerrainConfig(kind="tiles"), numbers(0.0, 0.5, 0.99, 0.35, 0.99)
    planned = numbers(UNKNOWN, UNKNOWN, UNKNOWN, 10, 7)
    assert first_level(config, True, planned, uniform).tolist() == [0, 1, 2, 3, 7]  # beyond the top: any
    assert first_level(config, False, planned, uniform).tolist() == [0, 5, 9, 3, 9]
    assert first_level(TerrainConfig(kind="tiles", level=4), True, planned, uniform).tolist() == [4] * 5


def test_tiles_ask_for_half_a_tile_or_half_of_the_command() -> None:
    """Progress, distance asked for: far; too little; enough; told to stand; little was asked."""
    tiles = Tiles(TerrainConfig(kind="tiles", tiles=["gap"]), LIKE)
    layout = {"level": LIKE.new_zeros(5), "tile": LIKE.new_zeros(5)}
    tiles.attach(layout)
    memory = {"progress": numbers(4.5, 1.0, 3.0, 0.0, 0.1), "asked": numbers(9.0, 6.0, 5.0, 0.0, 0.9)}
    middle = torch.cat((tiles.origin(layout), LIKE.new_zeros(5, 1)), 1)
    up, down = tiles.achieved(memory, middle, torch.zeros(5, dtype=torch.bool))
    assert up.tolist() == [True, False, False, False, False]
    assert down.tolist() == [False, True, False, False, False]


@pytest.mark.parametrize("kind", ["tiles", "fields"])
def test_who_crosses_its_border_upright_has_passed(kind: str) -> None:
    """From 0.3 m ahead of the middle the border is 3.7 m away: upright; after a fall; within it; strayed over it."""
    terrain = Surroundings(
        TerrainConfig(kind=kind, **({"tiles": ["gap"]} if kind == "tiles" else {})), None, (), LIKE
    ).terrain
    layout = {name: LIKE.new_zeros(4, *shape) for name, shape in terrain.layout_shapes().items()}
    terrain.attach(layout)
    memory = {"progress": numbers(3.71, 3.71, 3.6, 1.0), "asked": numbers(3.8, 3.8, 3.8, 6.0)}
    position = torch.cat((terrain.origin(layout), LIKE.new_zeros(4, 1)), 1)
    position[:, 0] += numbers(4.01, 4.01, 3.9, 4.01)
    up, down = terrain.achieved(memory, position, torch.tensor([False, True, False, False]))
    assert up.tolist() == [True, False, False, False]
    assert down.tolist() == [False, False, False, True]


def test_tracks_ask_for_a_block_and_a_half_or_for_the_whole_of_a_shorter_one() -> None:
    """Blocks of 2 m, a flat one first: 1.5 more end at 5 m, the end of a track of one obstacle is at 4 m."""
    memory, far = {"asked": numbers(9.0, 9.0, 9.0, 9.0)}, torch.tensor([[3.9], [4.3], [4.9], [5.1]], dtype=LIKE.dtype)
    fell = torch.zeros(4, dtype=torch.bool)
    for blocks, rise in ((1, [False, True, True, True]), (3, [False, False, False, True])):
        up, down = Track(TerrainConfig(kind="track", blocks=blocks), LIKE).achieved(memory, far, fell)
        assert up.tolist() == rise
        assert down.tolist() == [True, False, False, False]


def levels_follow_what_was_asked_for_in_every_step(around: Surroundings) -> None:
    """6 s of episodes: told to stand for 3 s, then to go 1 m/s, at 0.6 m/s; the same at 0.4 m/s; told to stand."""
    memory = {name: LIKE.new_zeros(3) for name in ("progress", "asked", "next_level")}
    layout = {name: LIKE.new_zeros(3, *shape) for name, shape in around.layout_shapes().items()}
    layout["level"] += 4.0
    around.attach(memory, layout, trains=True)
    frame = frame_of()
    for step in range(300):
        goes = float(step >= 150)
        frame.command, frame.yaw_vel = LIKE.new_zeros(3, 3), LIKE.new_zeros(3, 3)
        frame.command[:2, 0], frame.yaw_vel[:, 0] = goes, goes * numbers(0.6, 0.4, 0.0)
        frame.steps = torch.full((3,), step + 1)
        around.count(frame)
    frame.position = torch.cat((around.terrain.origin(layout), LIKE.new_zeros(3, 1)), 1)
    frame.terminated = torch.zeros(3, dtype=torch.bool)
    around.move_levels(torch.ones(3, dtype=torch.bool), frame)
    # 3 m were asked for, half of it is 1.5 m: 1.8 m stay, 1.2 m go down, who stands as told stays
    assert memory["next_level"].tolist() == [4, 3, 4]


def test_levels_follow_what_was_asked_for_in_every_step() -> None:
    config = TerrainConfig(kind="tiles", tiles=["gap"])
    levels_follow_what_was_asked_for_in_every_step(Surroundings(config, None, (), LIKE))


def test_the_last_command_times_the_whole_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(TerrainConfig(kind="tiles", tiles=["gap"]), None, (), LIKE)
    right = around.count

    def count(frame: Frame) -> dict[str, torch.Tensor]:
        found = right(frame)
        around._memory["asked"].copy_(frame.command[:, 0].abs() * frame.steps * frame.dt)
        return found

    monkeypatch.setattr(around, "count", count)
    with pytest.raises(AssertionError):
        levels_follow_what_was_asked_for_in_every_step(around)


def test_images_know_far_noise_dropped_pixels_and_stripes() -> None:
    camera = DepthCamera(DepthConfig(dropped=0.5, striped=1.0), LIKE)
    pixels = camera.draws - 2
    uniform = torch.full((1, camera.draws), 0.75, dtype=torch.float64)  # the middle of what is not dropped: no error
    uniform[0, :100] = 0.25
    uniform[0, -1] = 0.0  # the stripe is at the left
    image = (camera.image(torch.full((1, pixels), 0.5, dtype=torch.float64), uniform)[0, 0] + 0.5) * FAR
    assert bool((image.flatten()[:100] == FAR).all())
    assert bool((image[:, :3] == FAR).all())
    assert float(image[12, 16]) < 0.5  # along the axis, not along the ray
    missed = camera.image(torch.full((1, pixels), -1.0, dtype=torch.float64), None)
    assert float(missed.min()) == 0.5
    whole = DepthCamera(DepthConfig(type="uint8"), LIKE).image(torch.full((1, pixels), -1.0, dtype=torch.float64), None)
    assert whole.dtype == torch.uint8
    assert int(whole.min()) == 255
