"""Episodes: laid one after the other, side by side, and as transitions."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.data.episodes import Episodes, load_episodes


def episodes(*lengths: int, first: int = 0, terminated: bool = True) -> Episodes:
    """Episodes whose steps are numbered on; the observation reached at the end is 1000 + the number of the step."""
    observations, number = [], first
    for length in lengths:
        observations += [*range(number, number + length), 1000 + number + length - 1]
        number += length
    steps = torch.arange(first, number)
    ends = torch.zeros(len(steps), dtype=torch.bool)
    ends[torch.tensor(lengths, dtype=torch.int64).cumsum(0) - 1] = True
    return Episodes(
        {
            "env/obs/policy": torch.tensor(observations, dtype=torch.float32).view(-1, 1).expand(-1, 2),
            "action": -steps.float().view(-1, 1),
            "env/reward": 10.0 * steps,
            "env/terminated": ends & terminated,
            "env/truncated": torch.zeros_like(ends),
            "skill": steps,
        },
        lengths,
    )


def test_transitions():
    fields = episodes(2, 3).transitions()
    assert fields["obs/policy"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert fields["next_obs/policy"][:, 1].tolist() == [1, 1001, 3, 4, 1004]
    assert fields["action"].tolist() == [[0], [-1], [-2], [-3], [-4]]
    assert fields["reward"].tolist() == [0, 10, 20, 30, 40]
    assert fields["terminated"].tolist() == [False, True, False, False, True]
    assert fields["truncated"].tolist() == [False] * 5
    assert fields["skill"].tolist() == [0, 1, 2, 3, 4]


def test_there_and_back():
    before = episodes(2, 1, 4)
    after = Episodes.from_transitions(before.transitions(), before.lengths)
    assert after.lengths == before.lengths
    assert after.variables.keys() == before.variables.keys()
    for name, value in before.variables.items():
        assert torch.equal(after.variables[name], value), name


def test_side_by_side():
    ws = episodes(2, 3).workspace()
    assert (ws.T, ws.B) == (3, 2)
    assert ws["env/valid"].tolist() == [[True, True], [True, True], [False, True]]
    # behind its end an episode shows what it reached, and zeros
    assert ws["env/obs/policy"][:, :, 0].tolist() == [[0, 2], [1, 3], [1001, 4], [1001, 1004]]
    assert ws["env/reward"].tolist() == [[0, 20], [10, 30], [0, 40]]
    assert ws["env/done"].tolist() == [[False, False], [True, False], [False, True]]
    assert ws["action"][:, :, 0].tolist() == [[0, -2], [-1, -3], [0, -4]]
    # and is a workspace of step rows like any other: padding is no experience
    fields, expected = ws.transitions(), episodes(2, 3).transitions()
    order = fields["skill"].argsort()
    for name, value in expected.items():
        assert_close(fields[name][order], value)


def test_an_episode_that_was_cut_off_counts_as_truncated():
    cut = episodes(2, 3, terminated=False)
    assert cut.variables["env/truncated"].tolist() == [False, True, False, False, True]
    whole = episodes(2, 3)
    both = Episodes({**whole.variables, "env/truncated": whole.variables["env/terminated"].clone()}, whole.lengths)
    assert not both.variables["env/truncated"].any()  # never both: termination wins


def test_select_and_cat():
    chosen = episodes(2, 3, 1).select([2, 0])
    assert chosen.lengths == (1, 2)
    assert chosen.variables["skill"].tolist() == [5, 0, 1]
    assert chosen.variables["env/obs/policy"][:, 0].tolist() == [5, 1005, 0, 1, 1001]
    assert (chosen.num_steps, len(chosen)) == (3, 2)
    joined = Episodes.cat([episodes(2), episodes(3, 1, first=2)])
    for name, value in episodes(2, 3, 1).variables.items():
        assert torch.equal(joined.variables[name], value)
    assert episodes(2, 3).select([]).num_steps == 0
    assert load_episodes(joined).lengths == (2, 3, 1)


def test_what_is_refused():
    with pytest.raises(IndexError, match=r"no episode 2; they are 0\.\.1"):
        episodes(2, 3).select([2])
    with pytest.raises(ValueError, match="no steps"):
        episodes(2, 0)
    good = dict(episodes(2).variables)
    with pytest.raises(ValueError, match=r"'skill' has 1 rows; 1 episodes of 2 steps take 2"):
        Episodes({**good, "skill": torch.zeros(1)}, (2,))
    del good["action"]
    with pytest.raises(ValueError, match="no 'action'"):
        Episodes(good, (2,))
    other = Episodes({**episodes(2).variables, "more": torch.zeros(2)}, (2,))
    with pytest.raises(ValueError, match="differ in variables \\['more'\\]"):
        Episodes.cat([episodes(2), other])
    for empty in (lambda: Episodes.cat([]), lambda: episodes(2).select([]).workspace()):
        with pytest.raises(ValueError, match="at least one"):
            empty()
