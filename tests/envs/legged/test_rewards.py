"""Every reward term on a frame made by hand: its value, and what it adds with its weight and the time step 0.02."""

from __future__ import annotations

import dataclasses
import math
import sys
from typing import Any

import pytest
import torch
from legged_cases import at, frame_of, pup12

from gaitway.core.config import to_config
from gaitway.core.user_code import UserCodeError
from gaitway.envs.legged.frame import SOFT, Frame, RobotTensors, Substeps, base_state, norm
from gaitway.envs.legged.presets import FLAT
from gaitway.envs.legged.rewards import TERMS, TRACK_TERMS, Rewards, RewardTerm
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.legged.making import make_legged

WEIGHTS = {term["name"]: term["weight"] for term in FLAT}
ROLL_30 = {"gravity": [0.0, -math.sin(math.radians(30.0)), -math.cos(math.radians(30.0))]}
LANDED = [True, False, False, False]


def foot(*vector: float) -> list[list[float]]:
    """A vector of the first foot, zeros for the others."""
    return [list(vector), [0.0] * 3, [0.0] * 3, [0.0] * 3]


def substeps(**parts: list[float]) -> Substeps:
    """Four substeps in which the first joint has these numbers, the others the default pose and nothing else."""
    _, robot = pup12()
    made = {name: torch.zeros(1, 4, 12, dtype=torch.float64) for name in ("q", "qd", "torque")}
    made["q"] += robot.pose
    for name, values in parts.items():
        made[name][0, :, 0] = torch.tensor(values, dtype=torch.float64)
    return Substeps(**made)


HIP_OFF = [0.5, 0.9, -1.8, *[0.0, 0.9, -1.8] * 3]
OFF = [value + 0.1 for value in [0.0, 0.9, -1.8] * 4]
BEYOND = [0.824, 0.9, -1.8, *[0.0, 0.9, -1.8] * 3]  # the hip's soft limit is 0.9 * 0.86 = 0.774
STRETCHED = [0.0, 0.9, -0.927, *[0.0, 0.9, -1.8] * 3]  # a calf's is -1.85 + 0.9 * 0.97 = -0.977
BENT = {"action": at(12, 0, 1.0), "last_action": at(12, 0, 0.5), "older_action": at(12, 0, 0.5)}
SWUNG = [0.0, 0.5, 0.6, 0.7]
ONE_LEG = {"contact": LANDED, "contact_time": [0.3, 0, 0, 0], "air_time": SWUNG, "command": [1.0, 0, 0]}
ROWS: list[tuple[str, dict[str, Any], float, float | None]] = [
    ("tracking_lin_vel", {"command": [1.0, 0.0, 0.0], "yaw_vel": [0.5, 0.0, 0.0]}, math.exp(-1.0), 7.3576e-3),
    ("tracking_ang_vel", {"command": [0.0, 0.0, 1.0], "turn": 0.75}, math.exp(-0.25), 7.7880e-3),
    ("lin_vel_z", {"lin_vel": [0.0, 0.0, 0.3]}, 0.09, -3.6e-3),
    ("ang_vel_xy", {"ang_vel": [0.3, 0.4, 0.0]}, 0.25, -2.5e-4),
    ("orientation", ROLL_30, 0.25, -0.025),
    ("torques", {"torque": [2.0] * 12}, 48.0, -1.92e-4),
    ("energy", {"torque": at(12, 3, -2.0), "qd": at(12, 3, 3.0)}, 6.0, -1.2e-4),
    ("energy", {"torque": [2.0, -2.0, *[0.0] * 10], "qd": [1.0, 1.0, *[0.0] * 10]}, 4.0, None),
    ("energy_substeps", {"substeps": substeps(torque=[1.0, 2.0, 3.0, 4.0], qd=[1.0] * 4)}, 7.5, None),
    ("dof_acc", {"qd": at(12, 0, 1.0)}, 2500.0, -1.25e-5),
    ("action_rate", {"action": [0.5] * 12}, 3.0, -6e-4),
    ("action_smooth", BENT, 0.25, None),
    ("action_smooth", {"action": at(12, 0, 1.0), "steps": 2}, 0.0, None),
    ("feet_air_time", {"air_time": [0.4, 0, 0, 0], "first_contact": LANDED, "command": [1.0, 0, 0]}, 0.2, 4e-3),
    ("feet_air_time", {"air_time": [0.4, 0, 0, 0], "first_contact": LANDED, "command": [0.0, 0, 1.0]}, 0.0, 0.0),
    ("feet_slip", {"foot_velocity": foot(0.3, 0.4, 9.0), "contact": LANDED}, 0.25, None),
    ("feet_clearance", {"foot_velocity": foot(0.25, 0.0, 9.0), "foot_height": [0.04, 0.08, 0.08, 0.08]}, 0.02, None),
    ("feet_height", {"peak": [0.06, 0, 0, 0], "first_contact": LANDED, "command": [1.0, 0, 0]}, 0.0625, None),
    ("feet_force", {"foot_force": foot(0.0, 0.0, 170.0)}, 20.0, None),
    ("stumble", {"foot_force": foot(6.0, 0.0, 1.0)}, 1.0, None),
    ("stumble", {"foot_force": foot(4.0, 0.0, 1.0)}, 0.0, None),
    ("collision", {"link_force": [0.2, 0.0, 5.0, 0.05, 0.0, 0.0, 0.0, 0.0]}, 2.0, -0.04),
    ("stand_still", {"q": OFF}, 1.2, -0.012),
    ("stand_still", {"q": OFF, "command": [0.0, 0.0, 0.5]}, 0.0, 0.0),
    ("pose", {"q": HIP_OFF}, math.exp(-0.25), 7.788e-3),
    ("dof_pos_limits", {"q": BEYOND}, 0.05, -0.01),
    ("dof_pos_limits", {"q": STRETCHED}, 0.05, -0.01),
    ("exceed_torque", {"substeps": substeps(), "ctrl": at(12, 0, 0.5)}, 4 * 8.67, None),
    ("exceed_dof_pos", {"substeps": substeps(q=[0.7, 0.8, 0.8, 0.9])}, 0.75, None),
    ("world_vel_l2norm", {"command": [1.0, 0.0, 0.0], "velocity": [0.4, 0.8, 0.0]}, 1.0, None),
    ("lin_pos_y", {"position": [3.0, -0.2, 0.3]}, 0.2, None),
    ("yaw_abs", {"yaw": -0.1}, 0.1, None),
    ("base_height", {"height": 0.25}, 4e-4, -10 * 4e-4 * 0.02),
    ("alive", {}, 1.0, None),
    ("air_time_biped", ONE_LEG, 0.3, None),
    ("upright", {"gravity": [0.0, 0.0, 1.0]}, math.exp(-8.0), None),
    ("rise", {"height": 0.1}, math.exp(0.1) - 1.0, None),
    ("rise", {"height": 0.5}, math.exp(0.26) - 1.0, None),
    ("posture", {"q": OFF}, math.exp(-0.5 * 0.12), None),
    ("posture", {"gravity": [1.0, 0.0, 0.0]}, 0.0, None),
    ("stillness", {"action": [0.5] * 12}, math.exp(-1.5), None),
    ("dof_speed", {"qd": at(12, 5, -2 * math.pi - 2.0)}, 4.0, None),
    ("termination", {"terminated": True}, 1.0, -2.0),
]  # fmt: skip


def prepared(changes: dict[str, Any]) -> dict[str, Any]:
    """`exceed_torque` of the table has a target for the first joint alone."""
    if "ctrl" in changes:
        _, robot = pup12()
        changes = {**changes, "ctrl": robot.pose[None] + torch.tensor([changes["ctrl"]], dtype=torch.float64)}
    return changes


@pytest.mark.parametrize(("name", "changes", "value", "added"), ROWS)
def test_terms(name: str, changes: dict[str, Any], value: float, added: float | None) -> None:
    found = TERMS[name](frame_of(**prepared(changes)))
    assert found.shape == (1,)
    assert float(found) == pytest.approx(value, rel=1e-6, abs=1e-12)
    if added is not None:
        total, parts = Rewards([RewardTerm(name=name, weight=WEIGHTS[name])], False)(frame_of(**prepared(changes)))
        assert float(total) == float(parts) == pytest.approx(added, rel=1e-4, abs=1e-12)


def _of_each_bound(robot: RobotTensors) -> torch.Tensor:
    return SOFT * robot.high


TWINS: dict[str, tuple[str, Any]] = {
    "energy": ("gaitway.envs.legged.rewards.TERMS", lambda frame: (frame.torque * frame.qd).sum(1).abs()),
    "dof_pos_limits": ("gaitway.envs.legged.frame.RobotTensors.soft_high", property(_of_each_bound)),
    "feet_air_time": ("gaitway.envs.legged.frame.Frame.moving", lambda frame: norm(frame.command[:, :2]) < 0.1),
    "action_rate": ("gaitway.envs.legged.frame.Frame.dt", property(lambda frame: 1.0, lambda frame, dt: None)),
}
"""Terms, and what must change one of their rows: abs of the sum, a factor on each bound, a threshold's sign, no dt."""


@pytest.mark.parametrize("name", TWINS)
def test_broken_terms_do_not_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, twin = TWINS[name]
    if target.endswith("TERMS"):
        monkeypatch.setitem(TERMS, name, twin)
    else:
        monkeypatch.setattr(target, twin, raising=False)
    with pytest.raises(AssertionError):
        all_rows_hold(name)


def all_rows_hold(name: str) -> None:
    for row in ROWS:
        if row[0] == name:
            test_terms(*row)


def test_every_term_is_in_the_table() -> None:
    assert {row[0] for row in ROWS} | set(TRACK_TERMS) == set(TERMS)  # those of tracks: terrain/test_blocks.py


def test_a_negative_sum_counts_as_nothing_before_the_termination() -> None:
    terms = [RewardTerm(name="lin_vel_z", weight=-1.0), RewardTerm(name="termination", weight=-100.0)]
    frame = frame_of(lin_vel=[0.0, 0.0, math.sqrt(0.5)], terminated=True)  # -0.01 and -2
    assert float(Rewards(terms, clip_negative=True)(frame)[0]) == pytest.approx(-2.0)
    assert float(Rewards(terms, clip_negative=False)(frame)[0]) == pytest.approx(-2.01)


def test_a_list_without_terms_pays_nothing() -> None:
    """Style alone, from a motion prior, may be all that a robot earns."""
    total, parts = Rewards([], clip_negative=True)(frame_of(terminated=True))
    assert total.tolist() == [0.0]
    assert parts.shape == (1, 0)
    with MujocoBatchEnv(make_legged("pup12/velocity", {"rewards": []}), 2) as env:
        assert env.step(torch.zeros(2, 12)).reward.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["energy_substeps", "exceed_dof_pos", "exceed_torque"])
def test_substeps_that_were_not_recorded_are_named(name: str) -> None:
    """A term of the user's may call one of ours."""
    with pytest.raises(ValueError, match=r"list one of .*'exceed_torque'.* with a small weight"):
        TERMS[name](frame_of())


def test_velocities_are_followed_in_the_yaw_frame() -> None:
    """A robot that pitches and goes level at the commanded speed gets everything; in the body frame it would not."""
    view, robot = pup12()
    qpos, qvel = robot.home[None].clone(), torch.zeros(1, 18, dtype=torch.float64)
    half = math.radians(20.0) / 2
    qpos[0, 3:7] = torch.tensor([math.cos(half), 0.0, math.sin(half), 0.0])
    qvel[0, 0] = 1.0
    frame = dataclasses.replace(frame_of(command=[1.0, 0.0, 0.0]), **base_state(robot, qpos, qvel))
    assert float(TERMS["tracking_lin_vel"](frame)) == pytest.approx(1.0)
    assert float(TERMS["tracking_lin_vel"](frame, frame_of="body")) < 0.99
    assert view.is_planar is False


def on_the_host(frame: Frame, message: str) -> torch.Tensor:
    raise TypeError(message)


@pytest.mark.parametrize(
    "message",
    [
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
        "CUDA error: operation not permitted when stream is capturing",
    ],
)
def test_a_term_that_needs_the_host_is_named(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}:on_the_host"
    monkeypatch.setitem(sys.modules, __name__, sys.modules[on_the_host.__module__])
    rewards = Rewards([RewardTerm(name=name, weight=1.0, options={"message": message})], False)
    with pytest.raises(UserCodeError, match=f"the reward term '{name}' needs values on the CPU, .* functions of torch"):
        rewards(frame_of())
    other = Rewards([RewardTerm(name=name, weight=1.0, options={"message": "a mistake of another kind"})], False)
    with pytest.raises(TypeError, match="a mistake of another kind"):
        other(frame_of())


def quiet(frame: Frame, share: float, above: float = 0.0) -> Any:
    return -share * (frame.torque.abs() - above).clamp(min=0.0).sum(1)


def summed(frame: Frame) -> Any:
    return frame.torque.sum()


def alone(frame: Frame) -> Any:
    return 0


def own(function: Any, **options: Any) -> list[RewardTerm]:
    return [RewardTerm(name=f"{__name__}:{function.__name__}", weight=2.0, options=options)]


def ours(name: str, **options: Any) -> list[RewardTerm]:
    return [RewardTerm(name="alive", weight=0.0), RewardTerm(name=name, weight=1.0, options=options)]


def test_a_term_of_ones_own_has_its_options() -> None:
    rewards = Rewards(own(quiet, share=0.5, above=1), False)
    # torques of 3 and 0.5: 2 x -0.5 x (3 - 1) x 0.02
    total, _ = rewards(frame_of(torque=[3.0, 0.5, *[0.0] * 10]))
    assert float(total) == pytest.approx(-0.04)
    assert rewards.names == ("quiet",)


OWN, OURS = r"env.options.rewards\[0\]", r"env.options.rewards\[1\].options"


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (own(quiet, share=0.5, abov=1.0), rf"{OWN}: .*:quiet has no option 'abov' .did you mean 'above'"),
        (own(quiet), rf"{OWN}: .* needs share; write \{{name: .*:quiet, options: \{{share: ...\}}\}}"),
        (own(quiet, share="loud"), rf"{OWN}.options.share is the text 'loud'; expected a number"),
        (own(quiet, share=0.5, frame=1), "has no option 'frame'; it has above, share"),
        (ours("dof_speed", above=-1.0), rf"{OURS}.above is -1; use a number >= 0"),
        (ours("tracking_lin_vel", sigma=0.0), rf"{OURS}.sigma is 0; use a number > 0"),
        (ours("tracking_lin_vel", frame_of="world"), f"{OURS}.frame_of is 'world'; the choices are 'yaw', 'body'"),
        (ours("torques", above=1.0), "torques has no option 'above'; it has none"),
    ],
)
def test_options_are_judged_by_the_signature_of_a_term(terms: list[RewardTerm], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        Rewards(terms, False)


@pytest.mark.parametrize(
    ("function", "gives"),
    [(summed, r"a tensor \[\] for 1 robots; return a tensor .* for each, \[1\]"), (alone, "0 for 1 robots")],
)
def test_what_is_no_number_for_each_robot_is_refused_before_the_first_step(function: Any, gives: str) -> None:
    words = f"the reward term '.*:{function.__name__}' gives {gives}"
    with pytest.raises(UserCodeError, match=words):
        Rewards([*own(function), RewardTerm(name="exceed_torque", weight=1.0)], False).try_own(frame_of())
    task = make_legged("pup12/velocity", {"rewards": to_config(own(function))})
    with pytest.raises(UserCodeError, match=words):
        MujocoBatchEnv(task, 1, num_threads=1)


def test_mistakes_in_the_list_are_named() -> None:
    with pytest.raises(ValueError, match=r"no reward term 'torqes' .did you mean 'torques'"):
        Rewards([RewardTerm(name="torqes", weight=1.0)], False)
    with pytest.raises(ValueError, match="names 'alive' twice"):
        Rewards([RewardTerm(name="alive", weight=1.0)] * 2, False)
    assert Rewards([RewardTerm(name="alive", weight=0.0), RewardTerm(name="rise", weight=1.0)], False).names == (
        "rise",
    )
    with pytest.raises(ValueError, match="the substeps of this step were not recorded"):
        TERMS["exceed_torque"](frame_of())
