"""The logic of legged tasks as a recording needs it: by masks, in float32, without looking at a value."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from host_reads import HostReadError, NoHostReads, probe

from gaitway.envs.episode_numbers import ALL, EpisodeNumbers
from gaitway.envs.legged.frame import Bodies, Physics, Substeps
from gaitway.envs.legged.logic import LeggedLogic
from gaitway.envs.tasks import NATIVE_TASKS
from gaitway.envs.tasks.legged.ground import surroundings
from gaitway.envs.tasks.legged.task import LeggedTask

COUNT = 5
TASKS = ("pup12/velocity", "pup12/velocity_rough", "pup12/gait_params", "pup12/field_leap", "pup4/velocity")


def attached(task: LeggedTask, dtype: torch.dtype, looks: bool | None = None) -> LeggedLogic:
    """Logic of `task` for COUNT robots without a simulator, all in episode 0 of seed 3."""
    like = torch.zeros(0, dtype=dtype)
    logic = task.logic_on(like, surroundings(task.config, like))
    entropy = torch.stack((torch.full((COUNT,), 3), torch.arange(COUNT)), 1)
    episode, elapsed = torch.zeros(COUNT, dtype=torch.int64), torch.zeros(COUNT, dtype=torch.int64)
    numbers = EpisodeNumbers(entropy, episode, elapsed, "train", dtype=dtype, looks=looks)
    numbers.begin()
    shapes = logic.memory_shapes() | {name: shape for name, (shape, _) in logic.lasting_shapes().items()}
    memory = {name: like.new_zeros(COUNT, *shape) for name, shape in shapes.items()}
    memory |= {name: like.new_zeros(shape) for name, shape in logic.shared_shapes(numbers.trains).items()}
    layout = {name: like.new_zeros(COUNT, *shape) for name, shape in logic.layout_shapes().items()}
    logic.attach(memory, layout, numbers)
    logic.forget()
    return logic


def physics_of(task: LeggedTask, logic: LeggedLogic, drawn: dict[str, torch.Tensor]) -> Physics:
    """A state that a simulator could have, with feet somewhere and forces on some of them."""
    generator, model = torch.Generator().manual_seed(0), task.model
    like = drawn["qpos"]
    sensors = torch.rand(COUNT, model.nsensordata, generator=generator, dtype=torch.float64).to(like)
    found = Physics(like.clone(), drawn["qvel"].clone(), sensors, 0.1 * sensors[:, : model.nu])
    if logic.around is not None and logic.around.track is not None:
        places = torch.rand(COUNT, model.nbody, 3, generator=generator, dtype=torch.float64).to(like)
        turns = torch.zeros(COUNT, model.nbody, 4).to(like)
        turns[..., 0] = 1.0
        found.bodies = Bodies(places, turns, torch.cat((places, places), -1), places[:, 0])
    return found


def a_step(logic: LeggedLogic, physics: Physics, action: torch.Tensor, ended: torch.Tensor) -> dict[str, torch.Tensor]:
    """Everything that a recorded step calls, in its order."""
    target = logic.act(action, physics)
    reward, terminated, metrics = logic.judge(physics, Substeps(*[physics.torque[:, None].expand(-1, 4, -1)] * 3))
    logic.is_over()
    change = logic.go_on(ended, physics)
    seen = logic.observe(ALL, physics)
    drawn = logic.draw(ALL, logic.numbers.places())
    for name, target_layout in logic.layout.items():
        mask = ended.view(-1, *(1,) * (target_layout.dim() - 1))
        target_layout.copy_(torch.where(mask, drawn[name], target_layout))
    logic.place(ALL)
    logic.begin(ALL, ended)
    logic.note_start(ALL, physics, ended)
    new = logic.observe(ALL, physics, is_new=True)
    found = {"target": target, "reward": reward, "terminated": terminated, **drawn, **logic.memory}
    found |= {f"seen/{name}": value for name, value in seen.items()} | {f"metric/{k}": v for k, v in metrics.items()}
    found |= {f"new/{name}": value for name, value in new.items()}
    return found if change is None else {**found, "change": change}


LATE: dict[str, Any] = {"latency": {"least": 1, "most": 4, "seconds": 0.02, "delay_action_obs": True}}


@pytest.mark.parametrize(("id", "options"), [*((id, {}) for id in TASKS), ("pup12/velocity_rough", LATE)])
def test_a_step_looks_at_no_value_and_float32_says_what_float64_says(id: str, options: dict[str, Any]) -> None:
    task = NATIVE_TASKS[id](**options)
    assert isinstance(task, LeggedTask)
    found = {}
    ended = torch.arange(COUNT) % 2 == 0
    action = torch.rand(COUNT, task.action.shape[0], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        logic = attached(task, dtype, looks=False)
        drawn = logic.draw(ALL, logic.numbers.places())
        for name, target in logic.layout.items():
            target.copy_(drawn[name])
        logic.place(ALL)
        logic.begin(ALL)
        physics = physics_of(task, logic, drawn)
        logic.note_start(ALL, physics)
        given = action.to(dtype)
        with NoHostReads():
            said = a_step(logic, physics, given, ended)
        assert all(value.dtype == dtype for value in said.values() if value.is_floating_point())
        found[dtype] = {name: value.double() for name, value in said.items()}
    for name, exact in found[torch.float64].items():
        near = found[torch.float32][name]
        assert torch.equal(torch.isfinite(near), torch.isfinite(exact)), name
        scale = exact[torch.isfinite(exact)].abs().max().clamp(min=1.0) if exact.isfinite().any() else 1.0
        apart = ((near - exact).nan_to_num(posinf=0.0, neginf=0.0) / scale).abs().max()
        assert apart < 2e-5, (name, float(apart))


def test_starts_by_a_mask_are_those_by_rows() -> None:
    task = NATIVE_TASKS["pup12/velocity"](pushes={"push_seconds": [1.0, 2.0]}, **LATE)
    assert isinstance(task, LeggedTask)
    rows = torch.tensor([1, 3])
    mask = torch.zeros(COUNT, dtype=torch.bool)
    mask[rows] = True
    memories = []
    for by_mask in (False, True):
        logic = attached(task, torch.float64)
        for part in logic.memory.values():
            part.fill_(7.0)
        drawn = logic.draw(ALL, logic.numbers.places())
        physics = physics_of(task, logic, drawn)
        if by_mask:
            logic.begin(ALL, mask)
            logic.note_start(ALL, physics, mask)
        else:
            logic.begin(rows)
            logic.note_start(rows, physics.rows(rows))
        memories.append({name: value.clone() for name, value in logic.memory.items()})
    for name, value in memories[0].items():
        assert torch.equal(value, memories[1][name]), name
        assert (value[0] == 7.0).all()
    assert any((value[1] != 7.0).any() for value in memories[0].values())


def test_frames_are_seen_late_by_masks_as_they_are_by_rows() -> None:
    """Six steps of both simulators' orders on the same states, in which some episodes end: the same observations."""
    task = NATIVE_TASKS["pup12/velocity"](**LATE)
    assert isinstance(task, LeggedTask)
    action = torch.zeros(COUNT, 12, dtype=torch.float64)
    runs: list[list[torch.Tensor]] = []
    for by_mask in (False, True):
        logic, shown = attached(task, torch.float64), []
        drawn = logic.draw(ALL, logic.numbers.places())
        for name, target in logic.layout.items():
            target.copy_(drawn[name])
        physics = physics_of(task, logic, drawn)
        logic.begin(ALL)
        logic.note_start(ALL, physics)
        for step in range(6):
            ended = torch.arange(COUNT) % 3 == step % 3
            logic.act(action + step, physics)
            physics.qvel.add_(0.1)  # the next state
            logic.judge(physics)
            logic.numbers.elapsed.add_(1)
            logic.go_on(ended, physics)
            final = logic.observe(ALL, physics)["policy"]
            physics.qvel[ended] = float(step)  # the first state
            logic.numbers.elapsed.masked_fill_(ended, 0)
            if by_mask:
                logic.begin(ALL, ended)
                logic.note_start(ALL, physics, ended)
                new = logic.observe(ALL, physics, is_new=True)["policy"][ended]
            else:
                rows = ended.nonzero()[:, 0]
                logic.begin(rows)
                logic.note_start(rows, physics.rows(rows))
                new = logic.observe(rows, physics.rows(rows), is_new=True)["policy"]
            shown += [final, new]
        runs.append([*shown, *logic.memory.values()])
    assert len(torch.unique(logic.memory["latency_steps"])) > 1
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "name", ["item", "branch", "nonzero", "mask", "constant", "list", "equal", "repeats", "inverse"]
)
def test_the_guard_finds_each_way_of_looking(name: str) -> None:
    with pytest.raises(HostReadError):
        probe(name)


def test_numbers_are_equal_in_both_types() -> None:
    entropy = torch.tensor([[3, 0], [2**40, 1]])
    zeros = torch.zeros(2, dtype=torch.int64)
    double, single = (
        EpisodeNumbers(entropy, zeros, zeros, "train", dtype=dtype, looks=False)
        for dtype in (torch.float64, torch.float32)
    )
    assert torch.equal(double.begin(), single.begin())
    assert torch.equal(double.of_step("a", 64), single.of_step("a", 64).double())
    assert torch.equal(double.places(), single.places().double())
    assert math.floor(float(single.places()[1])) == (2**40 + 1) % 2**24
