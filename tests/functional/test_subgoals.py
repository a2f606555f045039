"""Goals as displacements: rewards by hand, stretches against a loop, relabelling against enumeration in float64."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.functional.soft_losses import squashed_action, squashed_log_prob
from gaitway.functional.subgoals import REWARDS, best_candidate, candidate_goals, first_segment, subgoal_reward


def test_rewards_by_hand():
    # |before| = 5, |after| = 0.05 and 2
    before, after = torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.tensor([[0.03, 0.04], [0.0, -2.0]])
    expected = {
        "distance": [-0.05, -2.0],
        "potential": [4.95, 3.0],
        "potential2": [5 - 0.9 * 0.05, 5 - 0.9 * 2.0],
        "potential3": [5 - 0.9 * 0.05 + 1.0, 5 - 0.9 * 2.0],
    }
    assert set(expected) == set(REWARDS)
    for kind, values in expected.items():
        assert subgoal_reward(kind, before, after, 0.9).tolist() == pytest.approx(values)
    with pytest.raises(ValueError, match="no reward of goals is called 'potential9'"):
        subgoal_reward("potential9", before, after, 0.9)


@pytest.mark.parametrize("interval", [1, 2, 5])
def test_the_first_stretch_equals_a_loop(interval):
    generator = torch.Generator().manual_seed(interval)
    steps, batch = 2 * interval - 1, 200
    done = torch.rand(steps, batch, generator=generator) < 0.2
    phase, time = torch.zeros(steps, batch, dtype=torch.int64), torch.randint(0, 50, (batch,), generator=generator)
    for t in range(steps):
        phase[t] = time % interval
        time = torch.where(done[t], 0, time + 1)
    rows, belongs = first_segment(phase, done, interval)
    assert rows.shape == belongs.shape == (interval, batch)
    lengths = set()
    for b in range(batch):
        start = next(t for t in range(interval) if phase[t, b] == 0)
        expected = [start]
        while len(expected) < interval and not done[expected[-1], b]:
            assert phase[expected[-1] + 1, b] == len(expected)
            expected.append(expected[-1] + 1)
        assert rows[:, b][belongs[:, b]].tolist() == expected
        lengths.add(len(expected))
    assert lengths == set(range(1, interval + 1))


def test_rows_that_only_reset_belong_to_no_stretch():
    # c = 3: an episode that ends with phase 2 and one that ends early, each followed by a row that only resets; the
    # third ends in the midst of its stretch; in the fourth one is whole before the end; in the last nobody says why
    rows = [[1, 2, -1, 0, 1, 2], [1, -1, 0, 1, 2, 0], [2, -1, 0, 1, -1, 0], [0, 1, 2, 0, -1, 0], [2, 0, -1, 0, 1, 2]]
    phase, done = torch.tensor(rows).mT, torch.zeros(6, 5, dtype=torch.bool)
    done[1, 0] = done[0, 1] = done[0, 2] = done[3, 2] = done[3, 3] = True
    rows, belongs = first_segment(phase, done, 3)
    assert [rows[:, b][belongs[:, b]].tolist() for b in range(5)] == [[3, 4, 5], [2, 3, 4], [2, 3], [0, 1, 2], [1]]
    with pytest.raises(ValueError, match="4 rows; the first stretch of 3 steps lies within 5"):
        first_segment(phase[:4], done[:4], 3)


def test_candidates_by_hand():
    low, high = torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 2.0])
    stored, achieved = torch.tensor([[5.0, 5.0]]), torch.tensor([[0.5, -3.0]])
    found = candidate_goals(stored, achieved, torch.tensor([[[1.0, 2.0]], [[-1.0, 0.0]]]), low, high)
    # half of half the range is 0.5 and 1: the first draw is (1.0, -1.0), the second (0.0, -3.0)
    assert found[:, 0].tolist() == [[5.0, 5.0], [0.5, -2.0], [1.0, -1.0], [0.0, -2.0]]


def test_the_best_candidate_equals_enumeration():
    generator = torch.Generator().manual_seed(0)
    candidates = torch.randn(10, 30, 3, generator=generator)
    density = torch.randn(10, 5, 30, generator=generator)
    belongs = (torch.rand(5, 30, generator=generator) < 0.8).int().cumprod(0).bool()
    belongs[0] = True
    found = best_candidate(candidates, density, belongs)
    broken = best_candidate(candidates, density, torch.ones_like(belongs))
    for b in range(30):
        totals = [sum(float(density[k, t, b]) for t in range(5) if belongs[t, b]) for k in range(10)]
        assert found[b].tolist() == candidates[totals.index(max(totals)), b].tolist()
    assert not torch.equal(found, broken), "steps after the end would decide otherwise"


def test_the_density_of_a_given_action_is_that_of_the_one_drawn():
    generator = torch.Generator().manual_seed(0)
    output, noise = torch.randn(50, 6, generator=generator), torch.randn(50, 3, generator=generator)
    action, log_prob = squashed_action(output, noise, (-5.0, 2.0))
    inside = (action.abs() < 0.999).all(-1)  # float32 forgets how far an action saturates
    assert 30 < inside.sum() < 50
    found = squashed_log_prob(output, action, (-5.0, 2.0))
    assert_close(found[inside], log_prob[inside], atol=2e-3, rtol=1e-3)
    exact, exact_log_prob = squashed_action(output.double(), noise.double(), (-5.0, 2.0))
    known = (exact.abs() < 1 - 1e-7).all(-1)
    density = squashed_log_prob(output.double(), exact, (-5.0, 2.0))
    assert_close(density[known], exact_log_prob[known], atol=1e-6, rtol=1e-6)
    edge = squashed_log_prob(torch.zeros(1, 2), torch.ones(1, 1), (-5.0, 2.0))
    assert torch.isfinite(edge).all()
