"""`ToyEnv` itself: memory, copies, ends, and states that are not its own; the toys are tested beside them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gaitway.envs.spec import ActionSpec, Component
from gaitway.envs.toys.toy_env import Toy, ToyEnv
from gaitway.envs.toys.toys import TOYS


@pytest.fixture
def env() -> ToyEnv:
    return ToyEnv(TOYS["toy/cue"](), 2, id="toy/cue")


@pytest.mark.parametrize("fields", [{}, {"qpos": torch.zeros(2, 1)}])
def test_scenarios_name_their_fields(env: ToyEnv, fields: dict[str, Any]) -> None:
    before = env.scenario()
    with pytest.raises(KeyError, match=r"a scenario of toy/cue has the fields \['state'\]; got"):
        env.load_scenario(fields)
    with pytest.raises(KeyError, match="got"):
        env.load_scenario({**before, "speed": torch.zeros(2)})
    assert torch.equal(env.scenario()["state"], before["state"])


def test_states_name_their_entries(env: ToyEnv) -> None:
    with pytest.raises(ValueError, match=r"has the entries \['state', 'elapsed', 'entropy', 'episode'\]; got \[\]"):
        env.load_state_dict({})
    state = env.state_dict()
    assert env.load_state_dict(state)["policy"].shape == (2, 2)
    del state["episode"]
    with pytest.raises(ValueError, match=r"got \['state', 'elapsed', 'entropy'\]"):
        env.load_state_dict(state)


class Counter(Toy):
    """Counts its steps, terminates after `lengths[b]` of them, and always hands out the same arrays."""

    groups = {"policy": (Component("steps"),)}  # noqa: RUF012  read only
    action = ActionSpec("discrete", ("none",), choices=(3,), start=(-1,))
    max_episode_steps = 4
    metrics = ("steps_episode",)
    options = {}  # noqa: RUF012

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = np.array(lengths, dtype=np.float64)
        self.kept = np.zeros((len(lengths), 1))

    def draw(self, generator: np.random.Generator) -> list[float]:
        return [0.0]

    def advance(self, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self.kept[:] = state + 1
        return self.kept, action.astype(np.float64), self.kept[:, 0] == self.lengths

    def observe(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"policy": state}

    def measure(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"steps_episode": state[:, 0]}


def test_ends_by_hand() -> None:
    """Lengths 3, 4 and 9, a time limit of 4: the first falls, the second falls in its last step, the third is cut."""
    env = ToyEnv(Counter([3, 4, 9]), 3)
    rows = []
    for _ in range(5):
        step = env.step(torch.tensor([1, 0, -1]))
        rows.append([step.obs["policy"].flatten().tolist(), step.final_obs["policy"].flatten().tolist()])
        rows[-1] += [step.terminated.tolist(), step.truncated.tolist(), step.metrics["steps_episode"].tolist()]
        assert step.reward.tolist() == [1.0, 0.0, -1.0]
    no = [False] * 3
    assert rows == [
        [[1, 1, 1], [1, 1, 1], no, no, [1, 1, 1]],
        [[2, 2, 2], [2, 2, 2], no, no, [2, 2, 2]],
        [[0, 3, 3], [3, 3, 3], [True, False, False], no, [3, 3, 3]],
        [[1, 0, 0], [1, 4, 4], [False, True, False], [False, False, True], [1, 4, 4]],
        [[2, 1, 1], [2, 1, 1], no, no, [2, 1, 1]],
    ]
    assert env.elapsed.tolist() == [2, 1, 1]


def test_results_last_until_the_call_after_the_next() -> None:
    env = ToyEnv(Counter([9]), 1)
    first = env.step(torch.zeros(1, dtype=torch.int64))
    second = env.step(torch.ones(1, dtype=torch.int64))
    assert (first.obs["policy"].item(), first.reward.item()) == (1.0, 0.0)
    assert (second.obs["policy"].item(), second.reward.item()) == (2.0, 1.0)
    reset = env.reset()
    assert (second.obs["policy"].item(), second.reward.item(), reset["policy"].item()) == (2.0, 1.0, 0.0)
    assert env.step(torch.zeros(1, dtype=torch.int64)).obs["policy"].item() == 1.0
    assert reset["policy"].item() == 0.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "sent"])
def test_copies_go_on_by_themselves(copied: Callable[[ToyEnv], ToyEnv]) -> None:
    env = ToyEnv(TOYS["toy/pendulum"](), 3, 5, id="toy/pendulum")
    for _ in range(3):
        env.step(torch.ones(3, 1))
    twin, expected = copied(env), env.step(torch.ones(3, 1))
    found = twin.step(torch.ones(3, 1))
    assert torch.equal(found.obs["pos"], expected.obs["pos"])
    assert torch.equal(found.reward, expected.reward)
    env.step(torch.ones(3, 1))
    env.step(torch.ones(3, 1))
    assert twin.elapsed.tolist() == [4, 4, 4]
    assert torch.equal(twin.step(torch.zeros(3, 1)).obs["pos"], twin._buffers[0].as_step().obs["pos"])


def test_types_of_outputs() -> None:
    env = ToyEnv(TOYS["toy/pendulum"](), 2, dtype=torch.float16)
    step = env.step(torch.ones(2, 1))
    assert step.obs["vel"].dtype == step.reward.dtype == torch.float16
    with pytest.raises(ValueError, match=r"dtype is torch\.bfloat16; toys take .*float16.*float32.*float64"):
        ToyEnv(TOYS["toy/pendulum"](), 2, dtype=torch.bfloat16)
