"""Proprioception that is seen late: which frame, how long, what is never late, and nothing from before an episode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gaitway.envs.legged.latency import FRAMES, LEFT, STEPS, Latency, LatencyConfig
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.tasks.legged.making import make_legged

PLAIN: dict[str, Any] = {"noise": 0.0, "episode_seconds": 0.2, "commands": {"seconds": [0.04, 0.1]}, "endings": []}
LATE = ("ang_vel", "projected_gravity", "dof_pos", "dof_vel")


def attached(count: int, **options: Any) -> tuple[Latency, dict[str, torch.Tensor]]:
    """Of `count` robots with one joint."""
    latency = Latency(LatencyConfig(**options), {"dof_pos": 1, "foot_contact": 4}, dt=0.02)
    memory = {name: torch.zeros(count, *shape) for name, shape in latency.shapes().items()}
    latency.attach(memory)
    return latency, memory


def measured(count: int, value: float) -> dict[str, torch.Tensor]:
    return {"dof_pos": torch.full((count, 1), value), "foot_contact": torch.ones(count, 4)}


def frames_are_as_old_as_the_delay(latency: Latency, memory: dict[str, torch.Tensor]) -> None:
    """Step t measures t + 1; an episode begins with 1, and the last one ended with 9."""
    everybody = slice(None)
    memory[STEPS].copy_(torch.tensor([0.0, 1.0, 3.0]))
    memory[FRAMES].fill_(9.0)
    latency.refill(everybody, measured(3, 1.0), None)
    shown = [latency.seen(everybody)["dof_pos"][:, 0].tolist()]
    for step in range(1, 5):
        latency.take(measured(3, step + 1.0))
        shown.append(latency.seen(everybody)["dof_pos"][:, 0].tolist())
    # max(t - delay, 0) + 1 for delays of 0, 1 and 3
    assert shown == [[1, 1, 1], [2, 1, 1], [3, 2, 1], [4, 3, 1], [5, 4, 2]]


def test_frames_are_as_old_as_the_delay() -> None:
    latency, memory = attached(3, most=3, history=4)
    assert memory[FRAMES].shape == (3, 4, 1)  # contacts are nothing that is late
    frames_are_as_old_as_the_delay(latency, memory)


def test_a_ring_that_is_not_refilled_shows_another_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    latency, memory = attached(3, most=3, history=4)
    monkeypatch.setattr(latency, "refill", lambda rows, values, where: memory[FRAMES][:, 0].fill_(1.0))
    with pytest.raises(AssertionError):
        frames_are_as_old_as_the_delay(latency, memory)


def test_a_ring_that_is_read_from_its_other_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    latency, memory = attached(3, most=3, history=4)
    right = latency.seen

    def turned(rows: slice) -> dict[str, torch.Tensor]:
        memory[FRAMES].copy_(memory[FRAMES].flip(1))
        found = right(rows)
        memory[FRAMES].copy_(memory[FRAMES].flip(1))
        return found

    monkeypatch.setattr(latency, "seen", turned)
    with pytest.raises(AssertionError):
        frames_are_as_old_as_the_delay(latency, memory)


def test_delays_are_whole_steps_between_their_limits() -> None:
    latency, _ = attached(1, least=2, most=5)
    # 4 choices of a quarter each: floor(4 u) + 2
    uniform = torch.tensor([[0.0], [0.24], [0.25], [0.6], [0.99], [1.0 - 2**-24]])
    first = latency.first(uniform)
    assert first[STEPS].tolist() == [2.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    assert first[LEFT].tolist() == [100.0] * 6  # 2 s of 0.02 s


def test_other_delays_come_after_their_time_to_those_that_go_on() -> None:
    latency, memory = attached(2, most=4, seconds=0.06)
    for name, value in latency.first(torch.tensor([[0.1], [0.1]])).items():
        memory[name].copy_(value)
    goes_on, seen = torch.tensor([True, False]), []
    for number in range(1, 8):
        latency.redraw(goes_on, torch.full((2, 1), number / 10))
        seen.append(memory[STEPS].tolist())
    # 0.06 s are 3 steps: floor(5 u) of u = 0.3 in the third, of 0.6 in the sixth
    assert [row[0] for row in seen] == [0, 0, 1, 1, 1, 3, 3]
    assert [row[1] for row in seen] == [0] * 7


def test_a_delay_may_last_for_the_episode() -> None:
    latency, memory = attached(1, most=4, seconds=None)
    assert latency.step_draws == 0
    before = memory[STEPS].clone()
    latency.redraw(torch.tensor([True]), torch.zeros(1, 0))
    assert torch.equal(memory[STEPS], before)


# in a task


def made(**options: Any) -> tuple[MujocoBatchEnv, Any]:
    task = make_legged("pup12/velocity", {**PLAIN, **options})
    return MujocoBatchEnv(task, 3, seed=4, num_threads=1), task


def shows_what_was_seen_three_steps_ago(env: MujocoBatchEnv, late: tuple[str, ...]) -> None:
    """Two episodes of 10 steps beside the same ones without a delay: of each leaf of the policy, whether it is late."""
    plain, _ = made()
    groups = {
        leaf.name: plain.spec.group("policy").columns(leaf.name) for leaf in plain.spec.group("policy").components
    }
    generator = torch.Generator().manual_seed(0)
    past = [{name: value.clone() for name, value in plain.reset(4).items()}]
    first = env.reset(4)
    assert torch.equal(first["policy"], past[0]["policy"])
    for _ in range(20):
        action = torch.randn(3, 12, generator=generator)
        one, two = plain.step(action), env.step(action)
        assert torch.equal(one.reward, two.reward)
        assert torch.equal(one.final_obs["critic"], two.final_obs["critic"])
        past.append({name: value.clone() for name, value in one.final_obs.items()})
        old = past[max(len(past) - 4, 0)]["policy"]
        for name, columns in groups.items():
            expected = old if name.startswith(late) else one.final_obs["policy"]
            torch.testing.assert_close(
                two.final_obs["policy"][:, columns], expected[:, columns], rtol=0, atol=0, msg=name
            )
        if bool(one.truncated.any()):
            assert torch.equal(two.obs["policy"], one.obs["policy"])  # nothing older than the episode
            past = [{name: value.clone() for name, value in one.obs.items()}]


THREE = {"least": 3, "most": 3}


def test_policies_see_late_what_is_measured_and_at_once_what_they_know() -> None:
    env, _ = made(latency=THREE)
    assert env.spec.facts["legged"]["latency"] == {"leaves": list(LATE), "least": 3, "most": 3, "seconds": 2.0}
    shows_what_was_seen_three_steps_ago(env, LATE)


def test_commands_and_actions_are_late_if_asked_for() -> None:
    env, _ = made(latency={**THREE, "delay_action_obs": True})
    shows_what_was_seen_three_steps_ago(env, (*LATE, "commands", "last_actions"))


@pytest.mark.parametrize("missing", ["refill", "take"])
def test_a_task_that_forgets_its_ring_is_found(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env, task = made(latency=THREE)
    monkeypatch.setattr(task._logic.latency, missing, lambda *given: None)
    with pytest.raises(AssertionError):
        shows_what_was_seen_three_steps_ago(env, LATE)


def test_the_delay_can_be_shown() -> None:
    observations = {"policy": ["dof_pos"], "critic": ["dof_pos_true", "observation_latency"]}
    env, task = made(latency={"most": 7, "seconds": 0.02}, observations=observations)
    found = []
    for _ in range(9):
        seen = env.step(torch.zeros(3, 12)).obs["critic"][:, -1]
        assert seen.tolist() == task.memory[STEPS].tolist()
        found += seen.tolist()
    assert set(found) <= set(range(8))
    assert len(set(found)) > 4
    at_once, _ = made(observations=observations)
    assert at_once.step(torch.zeros(3, 12)).obs["critic"][:, -1].tolist() == [0.0] * 3
    assert "latency" not in at_once.spec.facts["legged"]
