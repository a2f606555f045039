"""The batch environment: buffers, ends, restarts, determinism, stored state and contained faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import mujoco
import numpy as np
import pytest
import torch
from mujoco.batch import Batch

from gaitway.core.seeding import instance_generator
from gaitway.envs.batch_task import BatchTask
from gaitway.envs.check import check_env
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.spec import ActionSpec, Component, ObservationGroup
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.gym_v5.runners import asset_spec
from gaitway.envs.vec_env import Step


def make(id: str = "Hopper-v5", num_envs: int = 4, **keywords: Any) -> MujocoBatchEnv:
    options = keywords.pop("options", {})
    return MujocoBatchEnv(NATIVE_TASKS[id](**options), num_envs, **keywords)


def actions(env: MujocoBatchEnv, steps: int, seed: int = 0) -> torch.Tensor:
    size = len(env.spec.action.names)
    return torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, (steps, env.num_envs, size)).astype(np.float32))


def copied(step: Step) -> dict[str, torch.Tensor]:
    """Everything in a step, flat, safe from later calls."""
    parts = {"reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
    parts |= {f"obs/{name}": value for name, value in step.obs.items()}
    parts |= {f"final_obs/{name}": value for name, value in step.final_obs.items()}
    parts |= {f"metric/{name}": value for name, value in step.metrics.items()}
    return {name: value.clone() for name, value in parts.items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], rows: Any = slice(None)) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name][rows], b[name][rows]), name


def test_shapes_and_types() -> None:
    env = make("HalfCheetah-v5", 3)
    step = env.step(torch.zeros(3, 6))
    assert env.spec.group_names == ["policy"]
    assert step.obs["policy"].shape == (3, 17)
    assert step.obs["policy"].dtype == step.reward.dtype == torch.float32
    assert step.terminated.dtype == step.truncated.dtype == torch.bool
    assert set(step.metrics) == set(env.spec.metrics)
    assert all(metric.shape == (3,) for metric in step.metrics.values())
    assert env.spec.control_dt == pytest.approx(0.05)
    double = make("HalfCheetah-v5", 3, dtype=torch.float64)
    assert double.spec.groups[0].dtype == "float64"
    assert double.step(torch.zeros(3, 6)).reward.dtype == torch.float64


def test_float32_is_the_float64_result_cast() -> None:
    single, double = make(num_envs=3), make(num_envs=3, dtype=torch.float64)
    for action in actions(single, 30):
        a, b = copied(single.step(action)), copied(double.step(action))
        assert_same(a, {name: value.to(a[name].dtype) for name, value in b.items()})


@pytest.mark.parametrize("id", ["Hopper-v5", "Ant-v5", "walker/run"])
def test_independent_of_threads_and_batch_size(id: str) -> None:
    envs = [make(id, 5, seed=7, num_threads=threads) for threads in (1, 2)]
    small = make(id, 2, seed=7)
    ended = 0
    for action in actions(envs[0], 60):
        first, second = (copied(env.step(action)) for env in envs)
        assert_same(first, second)
        assert_same({name: value[:2] for name, value in first.items()}, copied(small.step(action[:2])))
        ended += int((first["terminated"] | first["truncated"])[:2].sum())
    assert ended > 0  # restarts were compared as well


def test_draws_follow_seed_instance_and_episode() -> None:
    env = make("HalfCheetah-v5", 3, seed=11, dtype=torch.float64)
    task = NATIVE_TASKS["HalfCheetah-v5"]()

    def expected(words: tuple[int, int], episode: int, purpose: str = "train") -> torch.Tensor:
        return torch.from_numpy(task.draw(instance_generator(words, episode, purpose))["qpos"])

    assert torch.equal(env.scenario()["qpos"][2], expected((11, 2), 0))
    env.reset()
    assert torch.equal(env.scenario()["qpos"][1], expected((11, 1), 1))
    env.reset([4, 9, 4])
    assert torch.equal(env.scenario()["qpos"][1], expected((9, 0), 0))
    assert torch.equal(env.scenario()["qpos"][0], env.scenario()["qpos"][2])
    evaluation = make("HalfCheetah-v5", 1, seed=11, purpose="evaluation")
    assert torch.equal(evaluation.scenario()["qpos"][0], expected((11, 0), 0, "evaluation"))
    assert not torch.equal(expected((11, 0), 0, "evaluation"), expected((11, 0), 0))


def test_truncation_at_the_time_limit_and_final_observation() -> None:
    env = make("HalfCheetah-v5", 3, seed=1, dtype=torch.float64, options={"max_episode_steps": 4})
    free = make("HalfCheetah-v5", 3, seed=1, dtype=torch.float64, options={"max_episode_steps": 0})
    env.set_elapsed(torch.tensor([0, 2, 0]))
    for index, action in enumerate(actions(env, 4)):
        step, endless = copied(env.step(action)), copied(free.step(action))
        assert step["truncated"].tolist() == [index == 3, index == 1, index == 3]
        assert not step["terminated"].any()
        ended = step["truncated"]
        if index <= 1:
            assert torch.equal(step["final_obs/policy"], endless["final_obs/policy"])  # the state really reached
        assert torch.equal(step["obs/policy"][~ended], step["final_obs/policy"][~ended])
        assert not torch.equal(step["obs/policy"][1], step["final_obs/policy"][1]) or not ended[1]
    assert env.elapsed.tolist() == [0, 2, 0]
    assert env.elapsed.dtype == torch.int64


def test_restart_is_a_fresh_start() -> None:
    # After an end the physics row must be the one a new environment has: time, warm start and controls included.
    env = make("HalfCheetah-v5", 2, seed=3, options={"max_episode_steps": 5})
    for action in actions(env, 5):
        env.step(action)
    fresh = make("HalfCheetah-v5", 2, seed=3, options={"max_episode_steps": 5})
    fresh.reset()
    assert torch.equal(env.state_dict()["physics"], fresh.state_dict()["physics"])


def test_termination_wins_over_truncation() -> None:
    env = make("InvertedPendulum-v5", 2, options={"max_episode_steps": 1})
    qpos = torch.tensor([[0.0, 0.5], [0.0, 0.0]], dtype=torch.float64)
    env.load_scenario({"qpos": qpos, "qvel": torch.zeros(2, 2)})
    step = env.step(torch.zeros(2, 1))
    assert step.terminated.tolist() == [True, False]
    assert step.truncated.tolist() == [False, True]


def test_outputs_stay_until_the_call_after_the_next() -> None:
    env = make("HalfCheetah-v5", 2)
    steps = list(actions(env, 3))
    first = env.step(steps[0])
    before = copied(first)
    second = env.step(steps[1])
    assert_same(before, copied(first))
    assert first.obs["policy"].data_ptr() != second.obs["policy"].data_ptr()
    assert first.obs["policy"].data_ptr() != first.final_obs["policy"].data_ptr()
    third = env.step(steps[2])
    assert third.obs["policy"].data_ptr() == first.obs["policy"].data_ptr()  # two sets, no allocation
    second.obs["policy"].fill_(99.0)
    second.final_obs["policy"].fill_(99.0)
    assert not (env.step(steps[0]).obs["policy"] == 99.0).any()


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("HalfCheetah-v5", {}),
        ("Hopper-v5", {}),
        ("Ant-v5", {}),
        ("Humanoid-v5", {"exact_contact_forces": True}),
        ("Reacher-v5", {}),
        ("walker/walk", {}),
    ],
)
def test_state_round_trip_mid_episode(id: str, options: dict[str, Any]) -> None:
    env = make(id, 3, seed=2, options=options)
    plan = actions(env, 60)
    for action in plan[:20]:
        env.step(action)
    state = env.state_dict()
    expected = [copied(env.step(action)) for action in plan[20:]]
    other = make(id, 3, seed=99, options=options, num_threads=1)
    for action in plan[:7]:
        other.step(action)
    obs = other.load_state_dict(state)
    assert torch.equal(obs["policy"], state["obs"]["policy"])
    for action, numbers in zip(plan[20:], expected, strict=True):
        assert_same(numbers, copied(other.step(action)))


def test_state_that_does_not_fit_is_refused() -> None:
    state = make("HalfCheetah-v5", 3).state_dict()
    with pytest.raises(ValueError, match="same number of instances"):
        make("HalfCheetah-v5", 2).load_state_dict(state)
    with pytest.raises(ValueError, match="belongs to 'HalfCheetah-v5'"):
        make("Swimmer-v5", 3).load_state_dict(state)


def test_scenario_round_trip() -> None:
    env = make("HalfCheetah-v5", 2, seed=4, dtype=torch.float64)
    plan = actions(env, 12)
    for action in plan[:6]:
        env.step(action)
    scenario = env.scenario()
    assert scenario["qpos"].dtype == torch.float64
    other = make("HalfCheetah-v5", 2, dtype=torch.float64)
    obs = other.load_scenario(scenario)
    assert other.elapsed.tolist() == [0, 0]
    assert torch.equal(obs["policy"][:, :8], scenario["qpos"][:, 1:])
    again = env.load_scenario({name: value.numpy() for name, value in scenario.items()})
    assert torch.equal(obs["policy"], again["policy"])
    for action in plan[6:]:
        assert_same(copied(env.step(action)), copied(other.step(action)))


def test_scenario_keeps_what_it_does_not_name() -> None:
    env = make("HalfCheetah-v5", 2, seed=4)
    drawn = env.scenario()
    for action in actions(env, 3):
        env.step(action)
    env.load_scenario({"qpos": drawn["qpos"] + 0.01})
    assert torch.equal(env.scenario()["qvel"], drawn["qvel"])
    assert torch.equal(env.scenario()["qpos"], drawn["qpos"] + 0.01)


def test_scenario_errors_name_the_known_fields() -> None:
    env = make("HalfCheetah-v5", 2)
    before = env.scenario()
    with pytest.raises(KeyError, match=r"'position'.*'qpos', 'qvel'"):
        env.load_scenario({"position": torch.zeros(2, 9)})
    with pytest.raises(ValueError, match=r"\[2, 8\].*\[2, 9\].*'qvel'"):
        env.load_scenario({"qpos": torch.zeros(2, 8)})
    with pytest.raises(ValueError, match="instance 1 is not finite"):
        env.load_scenario({"qpos": torch.tensor([[0.0] * 9, [float("nan")] * 9])})
    assert torch.equal(before["qpos"], env.scenario()["qpos"])


@pytest.mark.parametrize("value", [float("nan"), 1e200])
@pytest.mark.parametrize(("id", "options"), [("HalfCheetah-v5", {}), ("Ant-v5", {"exact_contact_forces": True})])
def test_fault_ends_that_instance_only(
    id: str, options: dict[str, Any], value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings to a file here
    env, twin = make(id, 4, seed=5, options=options), make(id, 4, seed=5, options=options)
    others = [0, 1, 3]
    for index, action in enumerate(actions(env, 12)):
        last_obs = env.state_dict()["obs"]["policy"]
        if index == 6:
            env.task.qvel[2, 0] = value
        step, expected = copied(env.step(action)), copied(twin.step(action))
        assert_same(step, expected, others)
        assert all(torch.isfinite(tensor).all() for tensor in step.values())
        if index != 6:
            assert not step["metric/physics_error"].any()
            continue
        assert step["metric/physics_error"].tolist() == [0, 0, 1, 0]
        assert step["terminated"][2]
        assert not step["truncated"][2]
        assert step["reward"][2] == env.task.fault_reward == 0.0
        assert step["metric/speed"][2] == 0.0
        assert torch.equal(step["final_obs/policy"][2], last_obs[2])
        assert env.elapsed.tolist() == [7, 7, 0, 7]


def test_fault_reward_is_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = make("HalfCheetah-v5", 2)
    env.task.fault_reward = -1.0
    env.task.qpos[0, 3] = float("inf")
    assert env.step(torch.zeros(2, 6)).reward[0] == -1.0


def test_simulation_error_is_contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # An arena too small for a contact: the instance on the floor raises inside MuJoCo, the ones in the air do not.
    task = NATIVE_TASKS["HalfCheetah-v5"]()
    spec = asset_spec("half_cheetah.xml")
    spec.memory = 3000
    with pytest.warns(UserWarning, match="settotalmass"):
        task.model = spec.compile()
    env = MujocoBatchEnv(task, 3, num_threads=2)
    qpos = torch.zeros(3, 9, dtype=torch.float64)
    qpos[:, 1] = torch.tensor([1.0, -0.2, 1.0])
    env.load_scenario({"qpos": qpos, "qvel": torch.zeros(3, 9)})
    step = env.step(torch.zeros(3, 6))
    assert step.metrics["physics_error"].tolist() == [0, 1, 0]
    assert step.terminated.tolist() == [False, True, False]
    assert env.elapsed.tolist() == [1, 0, 1]
    # free fall from rest, semi-implicit Euler: 0.05 s at 9.81 m/s^2 in five steps of 0.01 s -> 15 * 9.81 * 0.01^2
    assert float(env.scenario()["qpos"][0, 1]) == pytest.approx(1.0 - 15 * 9.81 * 1e-4, abs=1e-3)


def test_silent_nan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("HalfCheetah-v5", 3)
    move = env.task.advance

    def break_after_step() -> None:
        move()
        env.task.qvel[1, 4] = float("nan")  # no warning counter rises

    monkeypatch.setattr(env.task, "advance", break_after_step)
    step = env.step(torch.zeros(3, 6))
    assert step.metrics["physics_error"].tolist() == [0, 1, 0]
    assert torch.isfinite(step.obs["policy"]).all()
    assert torch.isfinite(step.reward).all()
    monkeypatch.undo()
    assert not env.step(torch.zeros(3, 6)).metrics["physics_error"].any()


def test_actions_are_checked_before_anything_moves() -> None:
    env = make("HalfCheetah-v5", 2)
    before = env.state_dict()["physics"]
    bad = torch.zeros(2, 6)
    bad[1, 3] = float("nan")
    with pytest.raises(ValueError, match=r"instance 1 is nan in 'fthigh'"):
        env.step(bad)
    with pytest.raises(ValueError, match=r"shape \[2, 5\]"):
        env.step(torch.zeros(2, 5))
    with pytest.raises(ValueError, match="floating point"):
        env.step(torch.zeros(2, 6, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        env.step(np.zeros((2, 6)))  # type: ignore[arg-type]
    assert torch.equal(before, env.state_dict()["physics"])
    env.step(torch.zeros(2, 6, dtype=torch.bfloat16))
    env.step(torch.zeros(2, 6, requires_grad=True))
    env.step(torch.full((2, 6), 1e18))  # MuJoCo clips
    assert torch.isfinite(env.scenario()["qpos"]).all()


def test_controls_clip_but_costs_do_not() -> None:
    env = make("HalfCheetah-v5", 2, dtype=torch.float64)
    start = env.scenario()
    start = {name: value[:1].expand(2, -1).clone() for name, value in start.items()}
    env.load_scenario(start)
    action = torch.ones(2, 6, dtype=torch.float64)
    action[1] = 3.0
    step = env.step(action)
    assert torch.equal(step.obs["policy"][0], step.obs["policy"][1])
    assert step.metrics["reward_ctrl"].tolist() == pytest.approx([-0.1 * 6, -0.1 * 6 * 9])


def test_ages() -> None:
    env = make("HalfCheetah-v5", 2, options={"max_episode_steps": 10})
    with pytest.raises(ValueError, match=r"0\.\.9"):
        env.set_elapsed(torch.tensor([0, 10]))
    with pytest.raises(ValueError, match="2 integers"):
        env.set_elapsed(torch.zeros(2))
    env.set_elapsed(torch.tensor([9, 0]))
    assert env.step(torch.zeros(2, 6)).truncated.tolist() == [True, False]


def test_a_task_serves_one_environment() -> None:
    task = NATIVE_TASKS["HalfCheetah-v5"]()
    MujocoBatchEnv(task, 1)
    with pytest.raises(ValueError, match="already belongs"):
        MujocoBatchEnv(task, 1)


def test_close() -> None:
    with make("HalfCheetah-v5", 1) as env:
        obs = env.reset(0)
    env.close()
    assert torch.isfinite(obs["policy"]).all()
    with pytest.raises(RuntimeError, match="closed"):
        env.step(torch.zeros(1, 6))
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


def test_constructor_errors() -> None:
    task = NATIVE_TASKS["HalfCheetah-v5"]()
    with pytest.raises(ValueError, match="num_envs is 0"):
        MujocoBatchEnv(task, 0)
    with pytest.raises(ValueError, match="float32 or"):
        MujocoBatchEnv(task, 1, dtype=torch.float16)
    with pytest.raises(ValueError, match="purpose is 'test'"):
        MujocoBatchEnv(task, 1, purpose="test")


def test_picture_shows_the_instance_asked_for() -> None:
    from gaitway.envs.pictures.render import rendering_problem

    if rendering_problem() is not None:
        pytest.skip(str(rendering_problem()))
    env = make("walker/stand", 2)
    qpos = torch.zeros(2, 9, dtype=torch.float64)
    qpos[:, 0] = 1.3
    qpos[1, 3:] = torch.tensor([0.9, -1.5, 0.3, 0.1, -0.2, 0.0])
    env.load_scenario({"qpos": qpos, "qvel": torch.zeros(2, 9)})
    first, second = env.render(0, 64, 48), env.render(1, 64, 48)
    assert first.shape == (48, 64, 3)
    assert first.dtype == np.uint8
    assert not np.array_equal(first, second)
    again = env.render(0, 64, 48)
    # the very first frame of a context may be off by a shade
    assert np.abs(first.astype(int) - again).max() < 10 < np.abs(first.astype(int) - second).max()
    with pytest.raises(IndexError, match="instance 2"):
        env.render(2)
    env.close()


def test_a_state_with_holes_names_them() -> None:
    env = make("HalfCheetah-v5", 2)
    with pytest.raises(ValueError, match=r"lacks \['task', 'physics', 'elapsed', 'entropy', 'episode', 'layout'"):
        env.load_state_dict({})
    state = env.state_dict()
    del state["memory"]
    with pytest.raises(ValueError, match=r"lacks \['memory'\]; .* loads what its state_dict\(\) returned"):
        env.load_state_dict(state)


def test_call_reaches_the_task() -> None:
    env = MujocoBatchEnv(NATIVE_TASKS["walker/run"](), 2, num_threads=1)
    assert env.call("render_model").nq == env.task.model.nq
    assert env.call("set_elapsed", torch.tensor([3, 4])) is None
    assert env.elapsed.tolist() == [3, 4]
    with pytest.raises(AttributeError, match="neither walker/run nor its task has a method 'fly'"):
        env.call("fly")


class Cart(BatchTask):
    """A slider whose action is a place it jumps to; every second step the target it is shown moves on."""

    id, max_episode_steps = "own/cart", 5
    groups = (
        ObservationGroup("policy", (Component("x", 1, "m"), Component("target", 1, "m")), (2,)),
        ObservationGroup("picture", (Component("pixels", 4),), (4,), dtype="uint8"),
    )
    metrics = ("given", "old_target")
    action = ActionSpec("continuous", ("left", "right"), (-1.0, -1.0), (1.0, 1.0), meaning="difference")
    frame_skip = 1
    layout_shapes: ClassVar = {"row": ()}
    draws_in_steps = True

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(
            '<mujoco><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><geom size="0.1"/></body></worldbody>'
            '<actuator><position joint="x" kp="10"/></actuator></mujoco>'
        )

    def attach(self, batch: Batch) -> None:
        super().attach(batch)
        self.memory["target"] = np.zeros(batch.nsim)

    def draw_many(self, generators: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {"qpos": np.zeros((len(rows), 1)), "qvel": np.zeros((len(rows), 1)), "row": rows.astype(float)}

    def start(self, rows: Any) -> None:
        self.memory["target"][rows] = 0.0

    def actuate(self, action: np.ndarray) -> None:
        self.ctrl[:, 0] = action[:, 1] - action[:, 0]

    def outcome(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, metrics: Any) -> None:
        reward[:] = metrics["old_target"][:] = self.memory["target"]
        metrics["given"][:] = action[:, 0]

    def go_on(self, ended: np.ndarray) -> None:
        self.memory["target"][~ended] += 1.0 + self.numbers.of_step("target", 1)[:, 0].numpy()[~ended]

    def observe(self, rows: Any, out: Any) -> None:
        out["policy"][:, 0] = self.qpos[rows, 0]
        out["policy"][:, 1] = self.memory["target"][rows]
        out["picture"][:] = 200


def test_a_task_has_actions_of_its_own_and_draws_for_rows_it_knows() -> None:
    env = MujocoBatchEnv(Cart(), 3)
    assert env.spec.action.names == ("left", "right")
    assert env.spec.action.meaning == "difference"
    assert env.task.layout["row"].tolist() == [0.0, 1.0, 2.0]
    step = env.step(torch.tensor([[1.0, 0.25]] * 3))
    assert env.task.ctrl[:, 0].tolist() == [-0.75] * 3
    assert step.metrics["given"].tolist() == [1.0] * 3


def test_what_changes_after_the_reward_is_seen_by_those_who_go_on() -> None:
    env = MujocoBatchEnv(Cart(), 2)
    env.set_elapsed(torch.tensor([0, 4]))  # the second one ends in this step
    step = env.step(torch.zeros(2, 2))
    assert step.reward.tolist() == [0.0, 0.0]  # judged by the old target
    assert 1.0 <= float(step.obs["policy"][0, 1]) < 2.0
    assert torch.equal(step.obs["policy"][0], step.final_obs["policy"][0])
    assert step.final_obs["policy"][1, 1] == 0.0  # an ended row keeps what it was told
    assert env.step(torch.zeros(2, 2)).reward.tolist()[0] == step.obs["policy"][0, 1]


def test_groups_that_are_no_floats_keep_their_type() -> None:
    env = MujocoBatchEnv(Cart(), 2, dtype=torch.float64)
    step = env.step(torch.zeros(2, 2))
    assert [group.dtype for group in env.spec.groups] == ["float64", "uint8"]
    assert step.obs["picture"].dtype == torch.uint8
    assert step.obs["picture"].tolist() == [[200] * 4] * 2
    assert step.final_obs["policy"].dtype == torch.float64


def test_numbers_of_steps_pass_all_checks() -> None:
    report = check_env(lambda num_envs, seed: MujocoBatchEnv(Cart(), num_envs, seed=seed), steps=30)
    assert report.ok, str(report)
