"""Figures of evaluations, by hand."""

from __future__ import annotations

import json
import math

import pytest
import torch
from legged_cases import frame_of

from gaitway import make_env
from gaitway.envs.legged.frame import Substeps
from gaitway.envs.legged.metrics import figures, landed, measure_names, measures, touch_phases
from gaitway.envs.spec import EnvSpec, Pooled
from gaitway.runners.evaluate import EvaluationConfig, evaluate, result_names, run_episodes

NAMES = measure_names(4)


def test_roots_are_taken_of_all_episodes_together() -> None:
    # squares 0.02 in 2 steps and 0.09 in 1 step: sqrt(0.11 / 3), not (0.1 + 0.3) / 2
    table = {"a": torch.tensor([0.02, 0.09, math.nan]), "n": torch.tensor([2.0, 1.0, 5.0])}
    assert Pooled("a", "n", root=True)(table) == pytest.approx(math.sqrt(0.11 / 3))
    assert Pooled("a", "n", factor=2.0)(table) == pytest.approx(0.22 / 3)
    assert Pooled("a", "n", least=1.5)(table) == pytest.approx(0.01)  # the second episode is left out
    assert math.isnan(Pooled("a", "n")({"a": torch.zeros(2), "n": torch.zeros(2)}))


def test_angles_close_the_circle() -> None:
    # phases 0.95 and 0.05: their mean is 0, where a mean of numbers would be 0.5
    angles = 2 * math.pi * torch.tensor([0.95, 0.05, 0.0]).double()
    table = {"s": angles.sin(), "c": angles.cos()}
    found = Pooled("s", "c", angle=True)(table)
    assert min(found, 1 - found) == pytest.approx(0.0, abs=1e-7)
    assert Pooled("s", "c", angle=True)({"s": torch.ones(1), "c": torch.zeros(1)}) == pytest.approx(0.25)
    assert math.isnan(Pooled("s", "c", angle=True)({"s": torch.zeros(1), "c": torch.zeros(1)}))


def added(counts: float = 1.0, **changes) -> dict[str, float]:
    frame = frame_of(**changes)
    numbers = [torch.tensor(value).double() for value in ([[0.12, -0.16]], [-0.3], [0.01], [10.0])]
    phase = torch.zeros(1, 3, 2).double()
    found = measures(frame, *numbers, phase, torch.tensor([counts]).double())
    assert found.shape == (1, len(NAMES))
    return dict(zip(NAMES, found[0].tolist(), strict=True))


def test_less_is_better_of_errors_and_costs() -> None:
    spec = make_env("pup12/velocity", 1, num_threads=1).spec
    told = EnvSpec.from_dict(json.loads(json.dumps(spec.to_dict()))).costs
    assert {"fell", "physics_error", "velocity_error", "yaw_error", "peak_torque"} <= told
    figures = {figure for figure in spec.pooled if figure in told}
    better = {"velocity_rmsd", "velocity_rmsd_x", "velocity_rmsd_y", "yaw_rmsd", "cost_of_transport", "foot_slip"}
    assert figures == better | {"falls_per_1000_s", "slip_per_metre", "action_change_per_step", "torque_saturation"}
    assert not {"return", "stride_frequency", "duty_factor", "distance_episode", "tracking_lin_vel_episode"} & told


def test_what_a_step_adds() -> None:
    found = added(
        foot_velocity=[[0.3, 0.4, 1.0], [1.0, 0.0, 0.0], [0.0] * 3, [0.0] * 3],
        contact=[True, False, True, False],
        torque=[2.0, -3.0, 35.5, *[0.0] * 9],
        qd=[1.0, 1.0, *[0.0] * 10],
        action=[0.5] * 12,
        terminated=True,
    )
    expected = {
        **{"velocity_squares": 0.04, "x_squares": 0.0144, "y_squares": 0.0256, "yaw_squares": 0.09},
        **{"measured_steps": 1.0, "distance": 0.01, "weight_distance": 0.01 * 10 * 9.81},
        **{"joint_work": 5.0 * 0.02, "slip": 0.5, "stance_steps": 2.0, "foot_steps": 4.0, "slipped": 0.01},
        **{"action_change": math.sqrt(3.0), "saturated": 1.0, "joint_steps": 12.0, "foot_seconds": 0.08},
        **{"falls": 1.0, "seconds": 0.02},
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    early = added(0.0, terminated=True)  # the warm-up: only falls and time count
    assert {name for name, value in early.items() if value} == {"falls", "seconds"}


def test_saturation_is_that_of_every_substep() -> None:
    # a thigh of 23.7 N m is saturated in one of four substeps, a calf of 35.5 N m in two: 3 / 4 of a joint and step;
    # the last substep alone would say 0
    torque = torch.zeros(1, 4, 12).double()
    torque[0, 0, 1], torque[0, 1:3, 2] = 23.7, -35.5
    substeps = Substeps(torch.zeros_like(torque), torch.zeros_like(torque), torque)
    assert added(substeps=substeps)["saturated"] == pytest.approx(0.75)
    assert added(torque=torque[0, -1].tolist())["saturated"] == 0.0


def test_t_metric_cost_of_transport_falls_and_slip() -> None:
    # two joints of 2 N m at 3 rad/s, 10 kg at 1.5 m/s: 12 W / (10 * 9.81 * 1.5 N m/s) = 0.0815
    figure = figures(4)
    table = {f"{name}_episode": torch.zeros(2).double() for name in NAMES}
    table["joint_work_episode"] = torch.tensor([12.0, 30.0]).double()
    # who came 0.4 m is left out, though with its load it weighs twice as much
    table["distance_episode"] = torch.tensor([1.5, 0.4]).double()
    table["weight_distance_episode"] = torch.tensor([10 * 9.81 * 1.5, 20 * 9.81 * 0.4]).double()
    assert figure["cost_of_transport"](table) == pytest.approx(0.0815, abs=5e-5)
    table["distance_episode"] = torch.tensor([0.4, 0.4]).double()
    assert math.isnan(figure["cost_of_transport"](table))
    table |= {"falls_episode": torch.ones(2), "seconds_episode": torch.tensor([100.0, 400.0])}
    assert figure["falls_per_1000_s"](table) == pytest.approx(4.0)
    table |= {
        "velocity_squares_episode": torch.tensor([0.9, 1.8]),
        "measured_steps_episode": torch.tensor([10.0, 20.0]),
    }
    assert figure["velocity_rmsd"](table) == pytest.approx(0.3)
    table |= {"slip_episode": torch.tensor([3.0, 1.0]), "stance_steps_episode": torch.tensor([6.0, 2.0])}
    assert figure["foot_slip"](table) == pytest.approx(0.5)


def test_t_metric_work_is_counted_joint_by_joint() -> None:
    """T-METRIC: two joints of 2 N m at 3 rad/s give 12 W whatever their signs; twins let them pay for each other."""
    for torque, qd in (((2.0, 2.0), (3.0, 3.0)), ((2.0, -2.0), (3.0, 3.0)), ((2.0, 2.0), (3.0, -3.0))):
        work = added(torque=[*torque, *[0.0] * 10], qd=[*qd, *[0.0] * 10])["joint_work"] / 0.02
        assert work == pytest.approx(12.0)
        twins = {abs(sum(torque) * sum(qd)), abs(sum(a * b for a, b in zip(torque, qd, strict=True)))}
        assert twins != {12.0}


def test_phases_of_a_trot_by_its_touch_downs() -> None:
    # strides of 20 steps: feet 0 and 3 land at 0, 1 and 2 half a stride later
    clock, period = torch.zeros(1).double(), torch.zeros(1).double()
    sums = torch.zeros(3, 2).double()
    for step in range(100):
        now = torch.tensor([[step % 20 == 0, step % 20 == 10, step % 20 == 10, step % 20 == 0]])
        clock, period, phase = touch_phases(clock, period, now, 0.02)
        sums += phase[0]
    assert period.item() == pytest.approx(0.4)
    found = [math.atan2(sine, cosine) / (2 * math.pi) % 1.0 for sine, cosine in sums.tolist()]
    assert found[:2] == pytest.approx([0.5, 0.5], abs=1e-9)
    assert min(found[2], 1 - found[2]) == pytest.approx(0.0, abs=1e-9)
    brief = frame_of(first_contact=[True] * 4, air_time=[0.02, 0.05, 0.1, 0.0])
    assert landed(brief)[0].tolist() == [False, True, True, False]  # who was hardly in the air did not step


def frequency_of(contact: torch.Tensor) -> float:
    """Where the autocorrelation of contacts [T, B, F] of 50 Hz peaks, for strides of 0.2 to 1 s."""
    centred = contact - contact.mean(0)
    count = len(centred)
    shared = [(centred[lag:] * centred[: count - lag]).sum() for lag in range(10, 51)]
    return 50.0 / (10 + int(torch.stack(shared).argmax()))


def test_the_autocorrelation_knows_a_stride() -> None:
    stance = (torch.arange(200) % 20 < 12).double()[:, None, None]  # strides of 20 steps of 0.02 s
    assert frequency_of(stance) == 2.5


def test_the_gait_of_the_open_loop_is_told_as_it_is() -> None:
    env = make_env("pup12/gait_params", 4, num_threads=1, commands={"fixed": [0.6, 0.0, 0.0]})

    class Still:
        def __call__(self, obs):
            return torch.zeros(4, 6)

        def reset(self, mask=None):
            """Nothing is remembered."""

    logic, contacts = env.task._logic, []
    judge = logic.judge

    def judged(*args):
        told = judge(*args)
        contacts.append(logic.frame.contact.clone())
        return told

    logic.judge = judged
    table = run_episodes(env, Still(), 4)
    steady = torch.stack(contacts)[50:].double()  # [200, 4, 4], after the warm-up
    found = {name: figure(table) for name, figure in env.spec.pooled.items()}
    assert found["stride_frequency"] == pytest.approx(2.5, abs=0.25)
    assert found["stride_frequency"] == pytest.approx(frequency_of(steady), rel=0.06)
    assert [found[f"stride_phase_{foot}"] for foot in (1, 2)] == pytest.approx([0.5, 0.5], abs=0.06)
    assert min(found["stride_phase_3"], 1 - found["stride_phase_3"]) < 0.06
    assert 0.5 < found["duty_factor"] < 0.75
    assert found["falls_per_1000_s"] == 0.0
    assert 0.2 < found["cost_of_transport"] < 1.5
    assert found["velocity_rmsd"] == pytest.approx(math.hypot(found["velocity_rmsd_x"], found["velocity_rmsd_y"]))


def test_evaluations_tell_figures_and_not_the_sums_that_they_are_made_of() -> None:
    env = make_env("pup12/field_crawl", 2, num_threads=1, purpose="evaluation", episode_seconds=0.4)
    config = EvaluationConfig(episodes=2, stochastic=False)

    class Still:
        def __call__(self, obs):
            return torch.zeros(2, 12)

        def reset(self, mask=None):
            """Nothing is remembered."""

    found = evaluate(env, lambda stochastic: Still(), config)
    assert {"velocity_rmsd", "stride_phase_1", "passed_crawl", "traverse", "torques_episode"} <= set(found)
    assert not {"velocity_squares_episode", "phase_sine_1_episode", "met_crawl_episode"} & set(found)
    assert set(found) == set(result_names(env.spec, config))
    assert env.spec.ingredients < set(run_episodes(env, Still(), 2))  # who wants them has them
