"""What the ids of legged tasks mean, as plain options of `LeggedConfig`."""

from __future__ import annotations

from typing import Any

Options = dict[str, Any]


def _terms(**weights: float) -> list[Options]:
    return [{"name": name, "weight": weight} for name, weight in weights.items()]


CRITIC = {"policy": ["policy"], "critic": ["critic"]}
CONTROL_DT = 0.02

FLAT = _terms(
    tracking_lin_vel=1.0,
    tracking_ang_vel=0.5,
    lin_vel_z=-2.0,
    ang_vel_xy=-0.05,
    orientation=-5.0,
    base_height=-10.0,
    pose=0.5,
    torques=-2e-4,
    energy=-1e-3,
    dof_acc=-2.5e-7,
    action_rate=-0.01,
    feet_air_time=1.0,
    feet_slip=-0.1,
    feet_clearance=-0.5,
    feet_height=-0.2,
    collision=-1.0,
    stand_still=-0.5,
    dof_pos_limits=-10.0,
    termination=-2.0 / CONTROL_DT,
)
WALK = _terms(
    tracking_lin_vel=1.5,
    tracking_ang_vel=0.75,
    lin_vel_z=-1.0,
    ang_vel_xy=-0.05,
    orientation=-1.0,
    base_height=-10.0,
    torques=-2e-5,
    action_rate=-0.01,
    feet_air_time=0.5,
    dof_pos_limits=-1.0,
    termination=-0.2 / CONTROL_DT,
)
"""Few and small penalties: with those of `FLAT` a robot that begins from nothing earns most by standing still."""
GAIT_TRACKING: list[Options] = [
    {"name": "tracking_lin_vel", "weight": 1.5, "options": {"sigma": 0.06}},
    {"name": "tracking_ang_vel", "weight": 0.75},
]
GAIT_PARAMS: list[Options] = [*GAIT_TRACKING, *_terms(action_rate=-0.015, termination=-3.0)]
GAIT_RESIDUAL: list[Options] = [
    *GAIT_TRACKING,
    *_terms(lin_vel_z=-0.5, ang_vel_xy=-0.05, orientation=-1.0, action_rate=-0.01, action_smooth=-0.005),
    *_terms(feet_slip=-0.05, collision=-1.0, termination=-3.0),
]
BIPED = _terms(
    tracking_lin_vel=1.0,
    tracking_ang_vel=0.5,
    alive=0.5,
    orientation=-1.0,
    torques=-1e-5,
    action_rate=-0.01,
    air_time_biped=0.8,
    termination=-2.0 / 0.025,
)
AMP: list[Options] = _terms(
    tracking_lin_vel=1.5, tracking_ang_vel=0.5, action_rate=-0.01, dof_pos_limits=-1.0, termination=-2.0 / CONTROL_DT
)
RECOVERY: list[Options] = [
    *_terms(upright=1.0, rise=1.0, posture=1.0, stillness=1.0, action_rate=-1e-3, action_smooth=-1e-3),
    *_terms(dof_pos_limits=-0.1, torques=-1e-5, dof_acc=-2.5e-7, dof_speed=-0.1),
]

ROUGH: list[Options] = _terms(
    tracking_lin_vel=1.0,
    tracking_ang_vel=0.5,
    lin_vel_z=-2.0,
    ang_vel_xy=-0.05,
    orientation=-0.5,
    torques=-2e-4,
    energy=-5e-4,
    dof_acc=-2.5e-7,
    action_rate=-0.01,
    feet_air_time=1.0,
    feet_slip=-0.1,
    feet_force=-0.01,
    stumble=-0.5,
    collision=-1.0,
    stand_still=-0.5,
    dof_pos_limits=-10.0,
    termination=-2.0 / CONTROL_DT,
)

NOMINAL: Options = {"enabled": False}
GAIT_COMMANDS: Options = {"x": [-0.5, 1.0], "y": [-0.3, 0.3], "turn": [-0.8, 0.8], "seconds": None, "stand": 0.0}
GAIT_DOMAIN: Options = {"friction": [0.6, 1.0]}
KICKS: Options = {"kick_seconds": [4.0, 10.0]}
SHORT_KICKS: Options = {"kick_seconds": [1.5, 4.0]}
"""For episodes of 5 s."""

GAIT_RESIDUAL_TASK: Options = {
    "action": "gait_residual",
    "observations": {"policy": ["policy", "phase"], "critic": ["critic", "phase"]},
    "commands": GAIT_COMMANDS,
    "rewards": GAIT_RESIDUAL,
    "episode_seconds": 5.0,
    "randomise": GAIT_DOMAIN,
    "pushes": SHORT_KICKS,
}

FIELD_ENDINGS = ["trunk", "tilt", "height"]
"""On a track limits follow the block under the robot, and leaving it ends an episode too."""


def _field_terms(energy: float = -1e-5, penetration: float = -1e-2, **more: float) -> list[Options]:
    """Forwards along a track, gently and without touching what is in the way."""
    return _terms(
        alive=2.0,
        world_vel_l2norm=-1.0,
        tracking_ang_vel=0.05,
        torques=-1e-5,
        energy_substeps=energy,
        exceed_dof_pos=-0.4,
        exceed_torque=-0.1,
        collision=-0.1,
        penetrate_depth=penetration,
        penetrate_volume=penetration,
        lin_pos_y=-0.1,
        yaw_abs=-0.1,
        **more,
    )


def _field(obstacles: list[str], x: tuple[float, float], rewards: list[Options] | None = None, **more: Any) -> Options:
    """A track of three obstacles of these kinds, to be passed at x m/s."""
    terrain = {"kind": "track", "obstacles": obstacles, **more.pop("terrain", {})}
    blocks = terrain.get("blocks", 3)
    return {
        "action_scale": 0.8,
        "action_limit": 1.0,
        "observations": {"policy": ["field_teacher"]},
        "rewards": rewards or _field_terms(),
        "endings": FIELD_ENDINGS,
        "commands": {"sampler": "field", "x": list(x), "seconds": None, "stand": 0.0},
        "episode_seconds": 5.0 * (blocks + 1),
        "start": {"ahead": 0.4, "xy": 0.2, "yaw": 0.1, "lean": 0.1, "joints": 0.1, "velocity": 0.1},
        "terrain": terrain,
        **more,
    }


STAIRS = ["stairs_up", "stairs_down"]
ALL_OBSTACLES = ["tilt", "crawl", "jump", "leap", "hurdle", "down", "slope", *STAIRS]
FIELDS: dict[str, Options] = {
    "pup12/field_walk": _field(["walk"], (0.3, 1.0)),
    "pup12/field_tilt": _field(["tilt"], (0.3, 0.6), _field_terms(penetration=-2e-3, tilt_cond=8e-3)),
    "pup12/field_crawl": _field(["crawl"], (0.3, 0.8), _field_terms(penetration=-6e-2)),
    "pup12/field_jump": _field(["jump"], (0.8, 1.5), _field_terms(energy=-1e-6)),
    "pup12/field_leap": _field(["leap"], (1.0, 1.5), _field_terms(energy=-1e-6)),
    "pup12/field_hurdle": _field(["hurdle"], (0.6, 1.0)),
    "pup12/field_down": _field(["down"], (0.4, 1.0), _field_terms(energy=-1e-6, penetration=-2e-3, feet_force=-0.01)),
    "pup12/field_slope": _field(["slope"], (0.3, 1.0)),
    "pup12/field_stairs": _field(STAIRS, (0.6, 1.0)),
    "pup12/field_lite": _field(
        ["walk", "crawl", "jump", "leap", "down"],
        (0.4, 0.8),
        terrain={"lite": True, "onehot_width": 5},
        randomise=NOMINAL,
    ),
    "pup12/field": _field(
        ALL_OBSTACLES,
        (0.4, 1.0),
        observations={"policy": ["field_teacher"], "student": ["field_student"], "depth": ["forward_depth"]},
        terrain={"blocks": 5},
    ),
}

AMP_TASK: Options = {
    "action_limit": 2.0,
    "observations": {**CRITIC, "amp": ["amp"]},
    "commands": {"x": [-0.3, 0.8], "y": [-0.1, 0.1], "turn": [-0.5, 0.5], "seconds": None, "stand": 0.0},
    "rewards": AMP,
    "endings": ["trunk", "links", "tilt", "height"],
    "episode_seconds": 10.0,
    "randomise": NOMINAL,
}

PRESETS: dict[str, Options] = {
    "pup12/amp_trot": AMP_TASK,
    "pup12/amp_gaits": AMP_TASK,
    "pup12/gait_params": {
        "action": "gait_params",
        "observations": {"policy": ["gait"]},
        "noise": 0.0,
        "commands": GAIT_COMMANDS,
        "rewards": GAIT_PARAMS,
        "episode_seconds": 5.0,
        "randomise": NOMINAL,
    },
    "pup12/gait_residual": GAIT_RESIDUAL_TASK,
    "pup12/blind": {
        **GAIT_RESIDUAL_TASK,
        "randomise": {"friction": [0.2, 1.25], "payload": [-1.0, 3.0]},
    },
    "pup12/velocity": {"rewards": WALK, "pushes": KICKS},
    "pup12/velocity_rough": {
        "rewards": ROUGH,
        "clip_negative": True,
        "pushes": KICKS,
        "observations": {"policy": ["policy", "height_scan"], "critic": ["critic", "height_scan"]},
        "terrain": {"kind": "tiles"},
    },
    **FIELDS,
    "pup12/recovery": {
        "action": "joint_delta",
        "action_limit": 1.0,
        "rewards": RECOVERY,
        "endings": [],
        "episode_seconds": 6.0,
        "commands": {"stand": 1.0, "seconds": None},
        "start": {"tumbled": True, "velocity": 0.0},
    },
    "pup4/velocity": {
        "robot": "pup4",
        "rewards": [term for term in FLAT if term["name"] not in ("tracking_ang_vel", "pose")],
        "clip_negative": True,
        "commands": {"x": [-1.0, 1.0]},
        "randomise": NOMINAL,
    },
    "walker/velocity": {
        "robot": "walker",
        "rewards": [term for term in BIPED if term["name"] != "tracking_ang_vel"],
        "commands": {"x": [0.0, 2.0]},
        "endings": ["tilt", "height"],
        "randomise": NOMINAL,
        "start": {"joints": 0.05, "velocity": 0.1},
    },
    "humanoid/velocity": {
        "robot": "humanoid",
        "action_limit": 1.0,
        "rewards": BIPED,
        "commands": {"x": [0.0, 1.0], "y": [-0.3, 0.3], "turn": [-0.5, 0.5]},
        "endings": ["tilt", "height"],
        "randomise": NOMINAL,
        "start": {"joints": 0.05, "velocity": 0.1},
    },
    "legged:velocity": {
        "rewards": [term for term in WALK if term["name"] != "torques"],
        "pushes": KICKS,
        "randomise": {"payload": None, "com": None},
    },
}
DESCRIPTIONS = {
    "pup12/amp_trot": "The quadruped pup12 moves as told, and as clips of a trot do; a motion prior compares them",
    "pup12/amp_gaits": "The quadruped pup12 moves as told, and as clips of trot, pace and bound do",
    "pup12/gait_params": "The quadruped pup12 steers a trot by six numbers, to move as told",
    "pup12/gait_residual": "The quadruped pup12 corrects the joints of a trot, to move as told, and is kicked",
    "pup12/blind": "The quadruped pup12 corrects the joints of a trot, with slippery feet and loads that it cannot see",
    "pup12/velocity": "The quadruped pup12 moves as told; its actions are targets of joints",
    "pup12/velocity_rough": "The quadruped pup12 moves as told on slopes, stairs, blocks, gaps and rough ground",
    "pup12/field_lite": "The quadruped pup12 passes low bars, steps and gaps that simple gaits can pass",
    "pup12/field_walk": "The quadruped pup12 walks along a track without obstacles",
    "pup12/field_tilt": "The quadruped pup12 squeezes through between walls",
    "pup12/field_crawl": "The quadruped pup12 crawls under bars",
    "pup12/field_jump": "The quadruped pup12 jumps onto steps",
    "pup12/field_leap": "The quadruped pup12 leaps over gaps",
    "pup12/field_hurdle": "The quadruped pup12 steps over hurdles",
    "pup12/field_down": "The quadruped pup12 jumps down from steps",
    "pup12/field_slope": "The quadruped pup12 walks up and down ramps",
    "pup12/field_stairs": "The quadruped pup12 climbs stairs, up and down",
    "pup12/field": "The quadruped pup12 passes five obstacles of any kind; students see depth images",
    "pup12/recovery": "The quadruped pup12 gets up, however it has fallen",
    "pup4/velocity": "The planar pup4 moves forwards and backwards as told",
    "walker/velocity": "The planar Walker with position control walks as fast as told",
    "humanoid/velocity": "The Humanoid with position control walks as told",
    "legged:velocity": "A robot of yours, or of gaitway[robots] (option robot), moves as told",
}
