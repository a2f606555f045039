"""Terrain in MuJoCo: boxes are where scans say, robots stand on them, cameras see them; levels and states."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from gaitway.envs.check import check_env
from gaitway.envs.legged.terrain.bank import FieldBank
from gaitway.envs.legged.terrain.obstacles import OBSTACLES
from gaitway.envs.legged.terrain.tile_shapes import CELL, TILES
from gaitway.envs.legged.terrain.tiles import Tiles
from gaitway.envs.legged.terrain.track import BLOCK, Track
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.registry import make_env
from gaitway.envs.tasks.legged import task as task_module
from gaitway.envs.tasks.legged.making import make_legged
from gaitway.envs.tasks.legged.task import LeggedTask

NOMINAL: dict[str, Any] = {"randomise": {"enabled": False}, "noise": 0.0, "pushes": {"kick_seconds": None}}
EVERYTHING: dict[str, Any] = {
    "pushes": {"kick_seconds": [0.08, 0.3]},
    "randomise": {"enabled": True, "delay": 2},
    "latency": {"most": 3, "seconds": 0.06},
    "episode_seconds": 0.2,
}
TRACKS = ["tilt", "crawl", "jump", "leap", "hurdle", "down", "slope", "stairs_up", "stairs_down"]
ALL_OF_THEM = {"kind": "track", "obstacles": TRACKS, "blocks": 5}
TERRAIN_IDS = ["pup12/velocity_rough", "pup12/field_lite", "pup12/field", *(
    f"pup12/field_{name}" for name in ["walk", "tilt", "crawl", "jump", "leap", "hurdle", "down", "slope", "stairs"]
)]  # fmt: skip


def made(id: str, num_envs: int = 2, seed: int = 0, **options: Any) -> tuple[MujocoBatchEnv, LeggedTask]:
    task = make_legged(id, options)
    return MujocoBatchEnv(task, num_envs, seed=seed, num_threads=1), task


def zeros(env: MujocoBatchEnv) -> torch.Tensor:
    return torch.zeros(env.num_envs, *env.spec.action.shape)


def from_above(task: LeggedTask, row: int, points: np.ndarray) -> np.ndarray:
    """What vertical rays from 5 m hit [P], by MuJoCo's own `mj_ray` on the model of one instance."""
    model = task.batch.get_model(row)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    group, geom = np.array([1, 0, 0, 0, 0, 0], dtype=np.uint8), np.zeros(1, dtype=np.int32)
    found = []
    for x, y in points:
        distance = mujoco.mj_ray(model, data, np.array([x, y, 5.0]), np.array([0.0, 0.0, -1.0]), group, 1, -1, geom)
        found.append(5.0 - distance)
    return np.array(found)


@pytest.mark.parametrize("lite", [False, True])
def test_tracks_are_where_their_tables_say(lite: bool) -> None:
    """What a ray from above hits is what a scan shows, on every kind of obstacle, up and down."""
    kinds = [name for name in TRACKS if not lite or OBSTACLES[name].lite]
    env, task = made("pup12/field", 4, terrain={**ALL_OF_THEM, "obstacles": kinds, "lite": lite}, **NOMINAL)
    track = task._around.track
    assert track is not None
    generator = np.random.default_rng(0)
    met = set()
    for row in range(4):
        points = np.stack((generator.uniform(-1.3, 13.3, 300), generator.uniform(-1.05, 1.05, 300)), 1)
        shown = track.top(torch.tensor([row]), torch.from_numpy(points)[None])[0].numpy()
        np.testing.assert_allclose(shown, from_above(task, row, points), atol=1e-6)
        met |= set(task.layout["kind"][row])
    assert len(met) >= 7
    env.close()


def test_the_ground_leaves_out_what_hangs_above_it() -> None:
    _env, task = made("pup12/field_crawl", 1, terrain={"level": 9}, **NOMINAL)
    track = task._around.track
    assert track is not None
    under = torch.tensor([[[BLOCK + 0.02, 0.0]]], dtype=torch.float64)
    assert float(track.ground(slice(None), under)) == pytest.approx(0.0)
    assert float(track.top(slice(None), under)) == pytest.approx(0.24 + 0.3)


def test_tiles_are_where_their_cells_say() -> None:
    _env, task = made("pup12/velocity_rough", 1, **NOMINAL)
    tiles = task._around.terrain
    assert isinstance(tiles, Tiles)
    generator = np.random.default_rng(0)
    points = generator.uniform((0.0, 0.0), (80.0, 8.0 * len(TILES)), (700, 2))
    local = points % 8.0
    inside = ((local > 0.05) & (local < 7.95)).all(1)  # ramps end a little beyond their tile
    away = (np.abs(points / CELL - np.round(points / CELL)) > 1e-3).all(1)
    points = points[inside & away]
    shown = tiles.ground(slice(None), torch.from_numpy(points)[None])[0].numpy()
    found = from_above(task, 0, points)
    rough = (points[:, 1] // 8).astype(int) == list(TILES).index("rough")
    assert rough.sum() > 50
    np.testing.assert_allclose(shown[~rough], found[~rough], atol=1e-6)
    np.testing.assert_allclose(shown[rough], found[rough], atol=1e-5)
    assert np.unique(np.round(shown, 3)).size > 60
    twin = tiles.ground(slice(None), torch.from_numpy(points[:, ::-1].copy())[None])[0].numpy()  # x and y swapped
    assert np.abs(twin - found).max() > 0.1


BANK: dict[str, Any] = {"terrain": {"kind": "fields", "fields": 2}}


def test_every_instance_walks_on_the_field_that_it_chose() -> None:
    """What a ray from above hits is what a scan shows, within 1e-5 m; that of another instance it is not."""
    env, task = made("pup12/velocity_rough", 4, **NOMINAL, **BANK)
    assert isinstance(task._around.terrain, FieldBank)
    env.load_scenario({"level": np.array([0.0, 9.0, 9.0, 4.0]), "variant": np.array([1.0, 0.0, 1.0, 1.0])})
    assert task._around.terrain.numbers(slice(None)).tolist() == [1, 18, 19, 9]
    points = np.random.default_rng(0).uniform(-4.3, 4.3, (300, 2))
    where = torch.from_numpy(points)[None].expand(4, -1, -1)
    shown = task._around.terrain.top(slice(None), where).numpy()
    for row in range(4):
        np.testing.assert_allclose(shown[row], from_above(task, row, points), atol=1e-5)
        assert np.abs(shown[row] - shown[row - 1]).max() > 0.01
    for _ in range(40):
        step = env.step(zeros(env))
    assert not step.terminated.any()
    ground = task._around.terrain.ground(slice(None), torch.from_numpy(task.qpos[:, None, :2].copy()))[:, 0].numpy()
    # on their platforms, 0.02, 0.05, 0.05 and 0.02 + 0.03 * 4 / 9 m high
    np.testing.assert_allclose(ground, [0.02, 0.05, 0.05, 0.02 + 0.03 * 4 / 9], atol=1e-6)
    np.testing.assert_allclose(task.qpos[:, 2] - ground, 0.263, atol=0.01)
    other, twin = made("pup12/velocity_rough", 4, seed=7, **NOMINAL, **BANK)
    other.load_state_dict(env.state_dict())  # fields are part of what is restored
    np.testing.assert_array_equal(twin.batch.expand("geom_dataid"), task.batch.expand("geom_dataid"))
    assert torch.equal(env.step(zeros(env)).obs["policy"], other.step(zeros(other)).obs["policy"])
    with pytest.raises(ValueError, match="scenario field 'variant' has 2"):
        env.load_scenario({"variant": np.full(4, 2.0)})


def test_fields_are_drawn_anew_and_keep_the_contract() -> None:
    _env, task = made("pup12/velocity_rough", 40, **NOMINAL, **BANK)
    assert set(task.layout["variant"]) == {0.0, 1.0}
    assert set(task.layout["level"]) == {0.0, 1.0, 2.0}
    build = lambda num_envs, seed: make_env("pup12/velocity_rough", num_envs, seed, num_threads=1, **BANK, **EVERYTHING)  # noqa: E731
    report = check_env(build, steps=12)
    assert report.ok, str(report)


def _rest_heights(write: bool) -> tuple[np.ndarray, np.ndarray]:
    """Heights of robots that stand on raised floors after 0.6 s, and heights of these floors."""
    options = {**NOMINAL, "start": {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 3.0}}
    env, task = made("pup12/field_jump", 4, endings=[], **options)
    if not write:
        task.batch = _WithoutConstants(task.batch)  # type: ignore[assignment]
    track = task._around.track
    assert track is not None
    heights = np.array([[h, 0.0, 0.0] for h in (0.05, 0.15, 0.3, 0.4)])
    env.load_scenario({"critical": heights, "extent": np.full((4, 3), 0.2)})
    floor = track.ground(slice(None), torch.from_numpy(task.qpos[:, None, :2].copy()))[:, 0].numpy()
    task.qpos[:, 2] = floor + 0.29
    for _ in range(60):
        env.step(zeros(env))
    rest = task.qpos[:, 2].copy()
    env.close()
    return rest, floor


class _WithoutConstants:
    """A batch whose `set_const` does nothing."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return (lambda *args: None) if name == "set_const" else getattr(self._batch, name)


def test_robots_stand_on_boxes_that_were_moved() -> None:
    rest, floor = _rest_heights(write=True)
    np.testing.assert_allclose(floor, [0.05, 0.15, 0.3, 0.4])
    np.testing.assert_allclose(rest - floor, 0.263, atol=0.01)


def test_without_new_constants_they_would_not() -> None:
    """The twin: bounding volumes stay where the boxes were."""
    rest, floor = _rest_heights(write=False)
    assert (np.abs(rest - floor - 0.263) > 0.02).any()


def test_stored_states_bring_their_boxes_along() -> None:
    env, task = made("pup12/field_jump", 3, **NOMINAL)
    other, twin = made("pup12/field_jump", 3, seed=7, **NOMINAL)
    assert not np.array_equal(task.layout["extent"], twin.layout["extent"])
    other.load_state_dict(env.state_dict())
    for name in ("geom_pos", "geom_size", "geom_quat"):
        np.testing.assert_array_equal(twin.batch.expand(name), task.batch.expand(name))
    for _ in range(5):
        action = torch.rand(3, 12, generator=torch.Generator().manual_seed(0))
        one, two = env.step(action), other.step(action)
    assert torch.equal(one.obs["policy"], two.obs["policy"])


SHORT = ["pup12/velocity_rough", "pup12/field_lite", "pup12/field"]
LONG = [pytest.param(id, marks=pytest.mark.long) for id in TERRAIN_IDS if id not in SHORT]


@pytest.mark.parametrize("id", [*SHORT, *LONG])
def test_the_contract_holds(id: str) -> None:
    """Batch sizes, seeds, stored states and scenarios bit for bit: levels, boxes, images and noise."""
    report = check_env(lambda num_envs, seed: make_env(id, num_envs, seed, num_threads=1, **EVERYTHING), steps=14)
    assert report.ok, str(report)


@pytest.mark.parametrize("id", TERRAIN_IDS)
def test_nothing_escapes(id: str) -> None:
    """Random actions: everything is finite, nobody is below the ground or beyond the walls."""
    env, task = made(id, 8, episode_seconds=0.5)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        step = env.step(2.0 * torch.rand(8, 12, generator=generator) - 1.0)
        assert all(torch.isfinite(value.float()).all() for value in (*step.obs.values(), step.reward))
        assert not step.metrics["physics_error"].any()
        assert (task.qpos[:, 2] > -0.6).all()
    env.close()


def before_a_bar() -> tuple[MujocoBatchEnv, LeggedTask]:
    """A level robot whose camera is 1 m before the first bar."""
    options = {**NOMINAL, "observations": {"depth": ["forward_depth"]}, "endings": []}
    options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 0.73}
    return made("pup12/field_crawl", 1, terrain={"level": 9}, **options)


def the_camera_sees_depth(env: MujocoBatchEnv, task: LeggedTask) -> None:
    """Bars 1 m ahead of a level camera: depth along its axis, in every column alike; misses are far."""
    obs = env.load_scenario({"critical": np.full((1, 3), 0.05), "camera": np.zeros((1, 4))})
    image = (obs["depth"][0, 0].numpy() + 0.5) * 2.0
    assert image.shape == (24, 32)
    height = task.qpos[0, 2] + 0.03
    focus = 16 / np.tan(np.radians(43.5))
    at_one_metre = height - (np.arange(24) + 0.5 - 12) / focus
    across = (at_one_metre > 0.05) & (at_one_metre < 0.35)
    assert 5 < across.sum() < 20
    inner = image[across][:, 8:24]  # the outer columns see the side walls
    np.testing.assert_allclose(inner, 1.0, atol=1e-6)
    assert image[0, 16] == pytest.approx(2.0)
    env.close()


def test_the_camera_sees_depth_along_its_axis() -> None:
    the_camera_sees_depth(*before_a_bar())


def test_distances_along_rays_are_found() -> None:
    """The twin: at column 8 they are sqrt(1 + (7.5 / 16.86)^2) = 1.094 m."""
    env, task = before_a_bar()
    camera = task._around.camera  # type: ignore[union-attr]
    assert camera is not None
    camera._forward.fill_(1.0)
    with pytest.raises(AssertionError, match="Mismatched elements"):
        the_camera_sees_depth(env, task)


def the_camera_never_sees_the_robot() -> None:
    """Front legs that are stretched forwards, into the view of a camera that looks down a little, change no pixel."""
    images = []
    for legs in ((0.0, 0.9, -1.8), (0.0, -0.68, -0.88)):  # the pose; feet 0.26 m before the camera and 0.2 m below
        env, task = before_a_bar()
        qpos = task.qpos.copy()
        qpos[:, task.view.positions] = np.tile(legs, 4)
        scene = {"critical": np.full((1, 3), 0.05), "camera": np.array([[0.0, 0.0, 0.0, 0.3]]), "qpos": qpos}
        images.append((env.load_scenario(scene)["depth"][0, 0].numpy() + 0.5) * 2.0)
        env.close()
    np.testing.assert_array_equal(images[0], images[1])


def test_the_camera_never_sees_the_robot() -> None:
    the_camera_never_sees_the_robot()


def test_rays_that_see_every_group_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "TERRAIN_GROUP", np.ones(6, dtype=np.uint8))
    with pytest.raises(AssertionError, match="Mismatched elements"):
        the_camera_never_sees_the_robot()


def test_images_are_held_and_taken_in_turns() -> None:
    env, _task = made("pup12/field", 5, terrain={"depth": {"type": "uint8"}})
    assert env.spec.group("depth").dtype == "uint8"
    last = env.reset(0)["depth"].clone()
    turns = []
    for _ in range(10):
        now = env.step(0.5 * torch.ones(5, 12)).obs["depth"].clone()
        assert now.dtype == torch.uint8
        turns.append((now != last).flatten(1).any(1))
        last = now
    changed = torch.stack(turns)
    assert changed[:5].sum(0).tolist() == [1] * 5  # once in five steps each
    assert changed[:5].sum(1).tolist() == [1] * 5  # one of five in each step
    assert torch.equal(changed[:5], changed[5:])


def test_virtual_obstacles_are_seen_and_touch_nothing() -> None:
    def forces(virtual: bool) -> tuple[float, torch.Tensor, float]:
        options = {**NOMINAL, "observations": {"policy": ["field_teacher"], "depth": ["forward_depth"]}, "endings": []}
        options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 2.1}
        env, task = made("pup12/field_crawl", 1, terrain={"virtual": virtual}, **options)
        env.load_scenario({"critical": np.full((1, 3), 0.2), "extent": np.full((1, 3), 0.5)})
        image = env._buffers.obs["depth"].copy()
        env.step(zeros(env))
        frame = task._logic.frame
        assert frame is not None
        assert frame.place is not None
        return float(frame.trunk_force), torch.from_numpy(image), float(frame.place.penetration().sum())

    solid, ghost = forces(False), forces(True)
    assert solid[0] > 1.0
    assert ghost[0] == 0.0
    assert torch.equal(solid[1], ghost[1])
    assert ghost[2] > 0.1


@pytest.mark.parametrize(("kind", "extent", "critical"), [("jump", 0.3, 0.3), ("leap", 0.6, 0.0), ("hurdle", 0.2, 0.3)])
def test_robots_stand_in_virtual_steps_gaps_and_hurdles(kind: str, extent: float, critical: float) -> None:
    """Their ground is level and all of one piece, what is seen is not; the twin falls into a solid gap."""
    inside = 2.0 + extent / 2
    options = {**NOMINAL, "observations": {"policy": ["field_teacher", "height_scan"]}}
    options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": inside}
    env, task = made("pup12/field_jump", 2, terrain={"obstacles": [kind], "virtual": True}, **options)
    env.load_scenario({"critical": np.full((2, 3), critical), "extent": np.full((2, 3), extent)})
    for _ in range(50):
        step = env.step(zeros(env))
        assert not step.terminated.any()
    np.testing.assert_allclose(task.qpos[:, 2], 0.263, atol=0.01)
    frame = task._logic.frame
    assert frame is not None
    assert frame.place is not None
    np.testing.assert_allclose(frame.height, task.qpos[:, 2])
    assert (frame.place.penetration().sum(1) > 0.2).all()
    track = task._around.track
    assert track is not None
    points = np.random.default_rng(0).uniform((-0.9, -0.75), (8.9, 0.75), (400, 2))
    shown = track.top(torch.tensor([0]), torch.from_numpy(points)[None])[0].numpy()
    np.testing.assert_allclose(shown, from_above(task, 0, points), atol=1e-6)
    assert np.unique(np.round(shown, 6)).tolist() == sorted({0.0, -0.6 if kind == "leap" else critical})
    if kind == "leap":  # feet are 0.38 m apart: the gap is wider
        solid, other = made("pup12/field_jump", 2, terrain={"obstacles": [kind]}, **options)
        solid.load_scenario({"extent": np.full((2, 3), extent)})
        assert any(solid.step(zeros(solid)).terminated.all() for _ in range(50))
        assert other.model.ngeom == task.model.ngeom - 4  # without the four boxes that fill gaps


def test_a_gap_opens_when_it_becomes_solid() -> None:
    options = {**NOMINAL, "terrain": {"obstacles": ["jump", "leap"], "virtual_first": True}, "endings": []}
    options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 2.5}
    env, task = made("pup12/field_jump", 2, **options)
    gaps = {"kind": np.full((2, 3), 4.0), "critical": np.zeros((2, 3)), "extent": np.full((2, 3), 1.0)}
    env.load_scenario({**gaps, "solid": np.array([0.0, 1.0])})
    for _ in range(40):
        env.step(zeros(env))
    assert task.qpos[0, 2] == pytest.approx(0.263, abs=0.01)
    assert task.qpos[1, 2] < -0.2


@pytest.mark.parametrize("constants", [True, False])
def test_bits_of_contacts_count_from_the_next_step_on(constants: bool) -> None:
    """A bar that becomes solid, or virtual, where it stands. Without new constants it does so too (MuJoCo 3.17, 708 N
    either way): bits of geoms are read in every step, and their bounding volumes stay. Forgotten constants show where
    boxes move, as in `test_without_new_constants_they_would_not`."""
    options = {**NOMINAL, "terrain": {"virtual_first": True}, "endings": []}
    options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 2.1}
    for solid in (0.0, 1.0):
        env, task = made("pup12/field_crawl", 1, **options)
        bars = {"critical": np.full((1, 3), 0.2), "extent": np.full((1, 3), 0.5), "level": np.full(1, 9.0)}
        env.load_scenario(bars | {"solid": np.array([1.0 - solid])})
        if not constants:
            task.batch = _WithoutConstants(task.batch)  # type: ignore[assignment]
        task.layout["solid"][:] = solid
        task.restore()
        env.step(zeros(env))
        frame = task._logic.frame
        assert frame is not None
        assert (float(frame.trunk_force) > 1.0) == bool(solid)


def test_obstacles_are_virtual_first() -> None:
    """Row 0 meets a virtual bar and row 1 a solid one, in one batch; evaluations have solid ones."""
    options = {**NOMINAL, "terrain": {"virtual_first": True}, "endings": [], "episode_seconds": 0.04}
    options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 2.1}
    env, task = made("pup12/field_crawl", 2, **options)
    assert task.layout["solid"].tolist() == [0.0, 0.0]
    bars = {"critical": np.full((2, 3), 0.2), "extent": np.full((2, 3), 0.5), "level": np.full(2, 9.0)}
    env.load_scenario(bars | {"solid": np.array([0.0, 1.0])})
    state = env.state_dict()
    step = env.step(zeros(env))
    frame = task._logic.frame
    assert frame is not None
    assert frame.trunk_force[0] == 0.0
    assert frame.trunk_force[1] > 1.0
    assert step.metrics["solid"].tolist() == [0.0, 1.0]
    env.load_state_dict(state)  # contacts are part of what is restored
    assert torch.equal(env.step(zeros(env)).reward, step.reward)
    task.qpos[:, 0] = 8.0  # both have passed; the first one has not touched anything, and goes on with solid ones
    task.memory["penetrated"][0] = 0.0
    env.step(zeros(env))
    assert task.layout["solid"].tolist() == [1.0, 1.0]
    assert task.layout["level"][0] <= 2.0  # from the easiest levels on
    judge = MujocoBatchEnv(make_legged("pup12/field_crawl", options), 2, purpose="evaluation", num_threads=1)
    assert judge.task.layout["solid"].tolist() == [1.0, 1.0]


def test_whoever_reaches_into_virtual_obstacles_stays_with_them() -> None:
    env, task = made(
        "pup12/field_crawl", 2, **NOMINAL, terrain={"virtual_first": True}, endings=[], episode_seconds=0.02
    )
    bars = {"critical": np.full((2, 3), 0.2), "extent": np.full((2, 3), 0.5), "level": np.array([9.0, 3.0])}
    env.load_scenario(bars)
    task.qpos[:, 0] = 8.0
    task.memory["penetrated"][:] = 0.1 * 1.5  # a tenth of a metre deep, all the way through three bars
    env.step(zeros(env))
    assert task.layout["solid"].tolist() == [0.0, 0.0]
    assert task.layout["level"].tolist() == [9.0, 3.0]


def test_goals_lie_behind_the_next_obstacle() -> None:
    """One robot looks along the track, one to the left: it turns back, and walks when the goal is ahead."""
    options = {**NOMINAL, "commands": {"sampler": "goal", "x": [0.0, 0.8], "y": [-0.3, 0.3]}}
    options["start"] = {"joints": 0.0, "velocity": 0.0, "xy": 0.0, "yaw": 0.0, "lean": 0.0, "ahead": 1.0}
    env, task = made("pup12/field_walk", 2, **options)
    env.load_scenario({"extent": np.zeros((2, 3))})
    shown = task.memory["command"].copy()
    # at x = 1 the obstacle at 2 m is engaged (0.8 m of the block are behind), and its goal is at 3 m: 2 m ahead
    np.testing.assert_allclose(shown, [[0.8, 0.0, 0.0]] * 2, atol=0.02)
    task.qpos[1, 3:7] = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]  # to the left: the goal is to the right
    env.step(zeros(env))
    np.testing.assert_allclose(task.memory["command"][0, 0], 0.8)
    np.testing.assert_allclose(task.memory["command"][1], [0.0, -0.3, -1.0])
    with pytest.raises(ValueError, match="only tracks have goals"):
        make_legged("pup12/velocity", {"commands": {"sampler": "goal"}})


def test_late_images_are_those_of_earlier_steps() -> None:
    """The same robots with and without delay: at most 10 steps, and more than 9, are 10."""
    seen = {"depth": ["forward_depth"]}
    common = {**NOMINAL, "observations": seen, "endings": []}
    now, _ = made("pup12/field_crawl", 3, **common)
    late, task = made("pup12/field_crawl", 3, **common, terrain={"depth": {"delay": [0.19, 0.2]}})
    past = [now.reset(0)["depth"].clone()]
    first = late.reset(0)["depth"].clone()
    assert torch.equal(first, past[0])
    for number in range(1, 30):
        past.append(now.step(zeros(now)).obs["depth"].clone())
        found = late.step(zeros(late)).obs["depth"]
        assert torch.equal(found, past[max(number - 10, 0)]), number
        if number == 14:
            state = late.state_dict()
    late.load_state_dict(state)
    assert torch.equal(late.step(zeros(late)).obs["depth"], past[5])
    assert task.memory["depth_image"].shape == (3, 3, 1, 24, 32)


def test_levels_belong_to_rows_and_move() -> None:
    env, task = made("pup12/field_walk", 6, seed=1, episode_seconds=0.1, **NOMINAL)
    levels = task.layout["level"].copy()
    assert set(levels) <= {0.0, 1.0, 2.0}
    task.memory["asked"][:] = 2.0
    for number in range(5):
        if number == 4:  # the last step of these episodes: the even rows have passed two blocks and a half
            task.qpos[::2, 0] = 5.5
            task.memory["asked"][1] = 0.0  # was told to stand: keeps its level
        env.step(zeros(env))
    wanted = levels + np.array([1, 0, 1, -1, 1, -1])
    np.testing.assert_array_equal(task.layout["level"], np.maximum(wanted, 0.0))
    state = env.state_dict()
    assert torch.equal(state["memory"]["next_level"], torch.from_numpy(task.layout["level"]))
    env.reset(1)
    np.testing.assert_array_equal(task.layout["level"], levels)


def test_evaluations_have_levels_of_their_own() -> None:
    task = make_legged("pup12/field_walk", {})
    env = MujocoBatchEnv(task, 40, purpose="evaluation", num_threads=1)
    assert len(set(task.layout["level"])) >= 8
    env.close()
    _, fixed = made("pup12/field_walk", 3, terrain={"level": 7})
    assert set(fixed.layout["level"]) == {7.0}


def test_the_end_of_a_track_is_a_success() -> None:
    env, task = made("pup12/field_walk", 2, **NOMINAL)
    task.qpos[0, 0] = 8.4
    step = env.step(zeros(env))
    assert step.truncated.tolist() == [True, False]
    assert not step.terminated.any()
    assert step.metrics["success"].tolist() == [1.0, 0.0]
    assert step.metrics["passed_walk_episode"].tolist() == [3.0, 0.0]
    task.qpos[1, 1] = 1.2  # beside the track
    assert env.step(zeros(env)).terminated.tolist() == [False, True]


def test_the_end_of_a_track_may_terminate_with_a_bonus() -> None:
    """A success, not a fall: nothing is paid for a termination, and the level goes up."""
    # weights times 0.02 s: 1 for the finish, -2 for a fall
    rewards = [{"name": "finish", "weight": 50.0}, {"name": "termination", "weight": -100.0}]
    ends = {"endings": ["trunk", "tilt", "height", "finish"]}
    for more, terminated in (({}, False), (ends, True)):
        env, task = made("pup12/field_walk", 2, rewards=rewards, **NOMINAL, **more)
        level = float(task.layout["level"][0])
        task.qpos[0, 0] = 8.4
        task.qpos[1, 1] = 1.2  # beside the track
        step = env.step(zeros(env))
        assert step.terminated.tolist() == [terminated, True]
        assert step.truncated.tolist() == [not terminated, False]
        assert step.reward.tolist() == pytest.approx([1.0, -2.0])
        assert step.metrics["success"].tolist() == [1.0, 0.0]
        assert step.metrics["fell"].tolist() == [0.0, 1.0]
        assert step.metrics["falls_episode"].tolist() == [0.0, 1.0]
        assert task.layout["level"][0] == level + 1
    with pytest.raises(ValueError, match="endings lists finish, and only tracks have an end"):
        make_legged("pup12/velocity", ends)


def test_the_furthest_place_counts_as_traversed() -> None:
    # 8 m of track: at 3 m, then at 5 m, then back at 2 m; the end of the way would say 0.25
    env, task = made("pup12/field_walk", 1, endings=[], **NOMINAL)
    told = []
    for x in (3.0, 5.0, 2.0, 7.99):
        task.qpos[0, 0], task.qvel[0, :] = x, 0.0
        told.append(float(env.step(zeros(env)).metrics["traverse"]))
    assert told == pytest.approx([0.375, 0.625, 0.625, 1.0], abs=0.01)
    env.reset()
    assert float(env.step(zeros(env)).metrics["traverse"]) < 0.1  # of this episode alone


def test_levels_are_told_by_kind_of_tile() -> None:
    env, task = made("pup12/velocity_rough", 4, **NOMINAL, terrain={"tiles": ["rough", "gap", "discrete"]})
    task.layout["level"][:] = [0.0, 2.0, 9.0, 5.0]  # instances 0 and 3 are on the first kind
    found = env.call("levels")
    assert {name: found[f"rough_{name}"] for name in ("mean", "min", "max")} == {"mean": 2.5, "min": 0.0, "max": 5.0}
    assert found["gap_max"] == 2.0
    assert found["discrete_min"] == 9.0
    assert made("pup12/field_walk", 2)[0].call("levels").keys() == {"track_mean", "track_min", "track_max"}
    with pytest.raises(ValueError, match="a plane has no levels"):
        made("pup12/velocity", 1)[0].call("levels")


def test_the_kind_of_an_obstacle_has_a_name_of_its_own() -> None:
    """A mutex selects by it."""
    env, _ = made("pup12/field_lite", 2)
    parts = env.spec.group("policy").components
    begin = {part.name: sum(each.size for each in parts[:number]) for number, part in enumerate(parts)}
    assert [(part.name, part.size) for part in parts if part.name.startswith("engaging")] == [
        ("engaging_distance", 1), ("engaging_kind", 5), ("engaging_size", 2)
    ]  # fmt: skip
    kind = env.reset()["policy"][:, begin["engaging_kind"] :][:, :5]
    assert kind.sum(1).tolist() == [1.0, 1.0]
    assert kind.max(1).values.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"terrain": {"level": 10}}, "terrain.level is 10; use an integer from 0 to 9"),
        ({"terrain": {"obstacles": ["jmup"]}}, "obstacles has 'jmup' .did you mean 'jump'"),
        ({"terrain": {"obstacles": []}}, "obstacles of the terrain is empty"),
        ({"terrain": {"obstacles": ["stairs_up"], "onehot_width": 5}}, "onehot_width=5 has no place for 'stairs_up'"),
        ({"terrain": {"obstacles": ["tilt"], "lite": True}}, "a lite track has no 'tilt'"),
        ({"terrain": {"obstacles": ["down"], "virtual": True}}, "'down' has nothing that a robot on its ground could"),
        ({"terrain": {"obstacles": ["slope"], "virtual_first": True}}, "'slope' has nothing that a robot on its"),
        ({"terrain": {"level": 3, "virtual_first": True}}, "virtual_first needs levels that rise"),
        ({"terrain": {"kind": "flat"}}, "only tracks have"),
        ({"terrain": {"kind": "tiles"}, "rewards": []}, "lists engaging_block, and the terrain has"),
        ({"robot": "pup4"}, "pup4 moves in a plane"),
        ({"observations": {"policy": ["policy", "forward_depth"]}}, "give the image a group of its own"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, KeyError), match=words):
        make_legged("pup12/field_walk", options)


def test_scenarios_have_levels_and_kinds_that_exist() -> None:
    env, task = made("pup12/field_walk", 2)
    with pytest.raises(ValueError, match="scenario field 'level' has 10; use whole numbers"):
        env.load_scenario({"level": np.full(2, 10.0)})
    with pytest.raises(ValueError, match="scenario field 'kind' has 7"):
        env.load_scenario({"kind": np.full((2, 3), 7.0)})
    assert isinstance(task._around.terrain, Track)
