"""Windows of decisions against a loop over rows, and what ends them one by one."""

import math

import pytest
import torch

from gaitway.functional.decisions import decision_windows


def column(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)[:, None]


def flags(*rows, steps):
    return torch.tensor([[row in rows] for row in range(steps)])


def windows(phase, reward, terminated=(), truncated=(), interval=3, gamma=0.5):
    steps = len(reward)
    found = decision_windows(
        column(*phase, dtype=torch.int64),
        column(*reward),
        flags(*terminated, steps=steps),
        flags(*truncated, steps=steps),
        interval,
        gamma,
    )
    return {name: values[:, 0].tolist() for name, values in found.items()}


def test_a_window_reaches_to_the_next_decision():
    # rows of phase 0, 1, 2 look 3, 2, 1 steps ahead; gamma = 0.5
    found = windows([0, 1, 2, 0, 1], [1.0, 2.0, 4.0, 8.0, 16.0])
    assert found == {"length": [3, 2, 1], "reward": [1 + 1 + 1, 2 + 2, 4], "discount": [0.125, 0.25, 0.5]}


def test_a_termination_ends_it_and_stops_the_bootstrap_and_a_time_limit_only_ends_it():
    phase, reward = [0, 1, 0, 1, 2], [1.0, 2.0, 4.0, 8.0, 16.0]
    assert windows(phase, reward, terminated=[1]) == {
        "length": [2, 1, 3],
        "reward": [2, 2, 4 + 4 + 4],
        "discount": [0, 0, 0.125],
    }
    assert windows(phase, reward, truncated=[1])["discount"] == [0.25, 0.5, 0.125]
    assert windows(phase, reward)["discount"] == [0.25, 0.5, 0.125], "a row of phase 0 ends the window before it"


def test_what_lies_behind_the_end_is_never_used():
    assert windows([0, 0, 1, 2, 0], [1.0, math.nan, 0.0, 0.0, 0.0], terminated=[0])["reward"][0] == 1.0


def brute_force(phase, reward, terminated, truncated, interval, gamma):
    """The rule of the reference implementation, row by row: the least of three distances, in float64."""
    steps, batch = reward.shape
    rows = []
    for t in range(steps - interval + 1):
        for b in range(batch):
            step = [int(phase[t + j, b]) for j in range(interval)]
            ended = [bool(terminated[t + j, b] or truncated[t + j, b]) for j in range(interval)]
            scheduled = interval - 1 - step[0]
            end = next((j for j in range(interval) if ended[j]), interval)
            cut = next((j for j in range(1, interval) if step[j] == 0), interval + 1) - 1
            last = min(scheduled, end, cut)
            total = sum(gamma**j * float(reward[t + j, b]) for j in range(last + 1))
            stop = bool(terminated[t + last, b])
            rows.append((last + 1, total, 0.0 if stop else gamma ** (last + 1)))
    return [torch.tensor(values, dtype=torch.float64) for values in zip(*rows, strict=True)]


def episodes(steps, batch, interval, seed):
    """Random episodes, many of one step: phases count from each start; ends terminate or are truncated."""
    generator = torch.Generator().manual_seed(seed)
    reward = torch.randn(steps, batch, generator=generator)
    kind = torch.rand(steps, batch, generator=generator)
    terminated, truncated = kind < 0.15, (kind > 0.15) & (kind < 0.3)
    phase, time = torch.zeros(steps, batch, dtype=torch.int64), torch.zeros(batch, dtype=torch.int64)
    time += torch.randint(0, 100, (batch,), generator=generator)  # episodes are under way in the first row
    for t in range(steps):
        phase[t] = time % interval
        time = torch.where(terminated[t] | truncated[t], 0, time + 1)
    return phase, reward, terminated, truncated


@pytest.mark.parametrize("interval", [1, 2, 5])
def test_windows_equal_a_loop_over_rows(interval):
    given = episodes(60, 40, interval, seed=interval)
    found = decision_windows(*given, interval, 0.97)
    length, total, discount = brute_force(*given, interval, 0.97)
    assert (found["length"].dtype, found["reward"].dtype) == (torch.int64, torch.float32)
    assert found["length"].shape == (60 - interval + 1, 40)
    assert torch.equal(found["length"].flatten(), length.long())
    torch.testing.assert_close(found["reward"].flatten().double(), total, atol=2e-6, rtol=1e-6)
    torch.testing.assert_close(found["discount"].flatten().double(), discount, atol=1e-7, rtol=1e-6)
    assert set(length.long().tolist()) == set(range(1, interval + 1)), "the episodes must hold windows of every length"
    assert (discount == 0).any()


@pytest.mark.parametrize("twin", ["terminations are time limits", "phases are one late", "time limits are not seen"])
def test_broken_twins_differ(twin):
    phase, reward, terminated, truncated = episodes(60, 40, 5, seed=5)
    found = decision_windows(phase, reward, terminated, truncated, 5, 0.97)
    if twin == "terminations are time limits":
        truncated, terminated = truncated | terminated, torch.zeros_like(terminated)
    elif twin == "phases are one late":
        phase = (phase - 1) % 5
    else:
        phase, truncated = torch.where(phase.roll(1, 0) > phase, phase + 1, phase), torch.zeros_like(truncated)
    broken = decision_windows(phase, reward, terminated, truncated, 5, 0.97)
    assert (broken["discount"] != found["discount"]).float().mean() > 0.1


def test_bad_arguments_are_told_in_a_sentence():
    with pytest.raises(ValueError, match="interval between decisions is 0 steps; use at least 1"):
        windows([0], [1.0], interval=0)
    with pytest.raises(ValueError, match="2 rows hold no window of 3 steps"):
        windows([0, 1], [1.0, 1.0])
    with pytest.raises(ValueError, match="must be int64"):
        decision_windows(*(torch.zeros(3, 1),) * 4, 3, 0.9)
