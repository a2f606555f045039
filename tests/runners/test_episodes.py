"""Episode statistics by hand, over rollouts that cut episodes anywhere."""

import pytest
import torch

from gaitway.core.workspace import Workspace
from gaitway.runners import episodes
from gaitway.runners.episodes import EpisodeStatistics
from gaitway.runners.suspicions import faulty


def rollout(reward, terminated, truncated=None, **more):
    reward = torch.as_tensor(reward)
    terminated = torch.as_tensor(terminated, dtype=torch.bool)
    truncated = torch.zeros_like(terminated) if truncated is None else torch.tensor(truncated, dtype=torch.bool)
    tensors = {"env/reward": reward, "env/terminated": terminated, "env/truncated": truncated}
    return Workspace.packed(tensors | {name.replace("__", "/"): value for name, value in more.items()})


def test_episodes_cross_rollouts():
    statistics = EpisodeStatistics(2)
    # column 0 ends at rows 1 and 2, column 1 goes on into the next rollout
    statistics.add(rollout([[1.0, 1.0], [2.0, 1.0], [5.0, 1.0]], [[0, 0], [1, 0], [1, 0]]))
    assert list(statistics.returns) == [3.0, 5.0]
    assert list(statistics.lengths) == [2, 1]
    statistics.add(rollout([[10.0, 1.0], [0.0, 7.0]], [[0, 1], [0, 0]]))
    assert list(statistics.returns) == [3.0, 5.0, 4.0]
    assert list(statistics.lengths) == [2, 1, 4]
    assert statistics.running_return.tolist() == [10.0, 7.0]
    assert statistics.finished == 3


def test_faults_are_counted_and_spoken_of():
    statistics = EpisodeStatistics(2)
    fault = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    ws = rollout([[1.0, 0.0], [1.0, 0.0]], [[0, 1], [0, 1]], env__metric__physics_error=fault)
    for _ in range(6):
        statistics.add(ws)
    assert (statistics.faults, statistics.steps) == (12, 24)
    other = EpisodeStatistics(2)
    other.load_state_dict(statistics.state_dict())
    assert (other.faults, other.steps) == (12, 24)
    assert "failed in 12 of 24 steps, more than 1 in 10,000" in faulty(12, 24, "pup12/velocity")
    assert faulty(9, 24, "pup12/velocity") is None  # too few to know
    assert faulty(12, 120_000, "pup12/velocity") is None  # one in ten thousand
    assert faulty(13, 120_000, "pup12/velocity") is not None


def test_reset_rows_do_not_count():
    statistics = EpisodeStatistics(1)
    valid = torch.tensor([[True], [True], [False], [True]])
    ws = rollout([[1.0], [1.0], [9.0], [4.0]], [[0], [1], [0], [1]], env__valid=valid)
    statistics.add(ws)
    assert list(statistics.returns) == [2.0, 4.0]
    assert list(statistics.lengths) == [2, 1]


def test_metrics_average_and_events_count_per_episode():
    statistics = EpisodeStatistics(2)
    fell = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    speed = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    ws = rollout(
        [[1.0, 1.0], [1.0, 1.0]], [[0, 0], [1, 0]], [[0, 0], [0, 1]], env__metric__fell=fell, env__metric__speed=speed
    )
    statistics.add(ws)
    metrics = statistics.metrics(ws)
    assert metrics["env/fell"] == 0.5
    assert metrics["env/speed"] == 3.0
    assert metrics["train/return"] == 2.0
    assert metrics["train/episodes"] == 2


def test_state_round_trip():
    statistics = EpisodeStatistics(2)
    statistics.add(rollout([[1.0, 1.0], [2.0, 1.0]], [[0, 0], [1, 0]]))
    twin = EpisodeStatistics(2)
    twin.load_state_dict(statistics.state_dict())
    for each in (statistics, twin):
        each.add(rollout([[1.0, 1.0]], [[1, 1]]))
    assert list(twin.returns) == list(statistics.returns) == [3.0, 1.0, 3.0]


def test_an_event_in_the_midst_of_an_episode_counts_whatever_rollout_it_fell_into():
    statistics = EpisodeStatistics(2, events=("door", "is_success"))
    # column 0: the door opens in row 0, the episode ends a rollout later; column 1: never, and ends in row 1
    first = rollout([[1.0, 1.0]] * 2, [[0, 0], [0, 1]], env__metric__door=torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    statistics.add(first)
    assert statistics.metrics(first)["env/door"] == 0.0
    twin = EpisodeStatistics(2, events=("door", "is_success"))
    twin.load_state_dict(statistics.state_dict())
    second = rollout([[1.0, 1.0]] * 3, [[0, 0], [1, 0], [0, 1]], env__metric__door=torch.zeros(3, 2))
    for each in (statistics, twin):
        each.add(second)
        assert each.metrics(second)["env/door"] == 0.5  # of the two episodes that ended
    statistics.add(second)
    assert statistics.metrics(second)["env/door"] == 0.0  # the door of the episode before is forgotten


def test_events_on_reset_rows_do_not_count():
    statistics = EpisodeStatistics(1, events=("door",))
    valid = torch.tensor([[True], [False], [True]])
    door = torch.tensor([[0.0], [1.0], [0.0]])
    ws = rollout([[0.0]] * 3, [[1], [0], [1]], env__valid=valid, env__metric__door=door)
    statistics.add(ws)
    assert statistics.metrics(ws)["env/door"] == 0.0


# --- On a GPU, whose sizes are not known at once ---------------------------------------------------------------------


def drawn_rollouts(resets, seed=0, num_envs=5):
    """Rollouts with no, few and many ends; with `resets` the row behind an end only resets."""
    generator = torch.Generator().manual_seed(seed)
    was_end = torch.zeros(num_envs, dtype=torch.bool)
    for rows, share in ((4, 0.0), (7, 0.2), (1, 0.9), (6, 0.6), (3, 0.0), (8, 0.3)):
        done, valid = torch.rand(rows, num_envs, generator=generator) < share, torch.ones(rows, num_envs).bool()
        for row in range(rows if resets else 0):
            valid[row] = ~was_end
            done[row] &= valid[row]
            was_end = done[row]
        reward, speed, tilt = torch.randn(3, rows, num_envs, generator=generator)
        more = {"env__metric__fell": (torch.rand(rows, num_envs, generator=generator) < 0.2).float()}
        more |= {"env__metric__physics_error": (torch.rand(rows, num_envs, generator=generator) < 0.1).float()}
        more |= {"env__metric__speed": speed, "env__metric__tilt_episode": tilt}
        yield rollout(reward, done, **more, **({"env__valid": valid} if resets else {}))


def followed(rollouts, window):
    """Statistics of all rollouts, and what they said of each."""
    statistics = EpisodeStatistics(5, window)
    said = []
    for ws in rollouts:
        statistics.add(ws)
        said.append(statistics.metrics(ws) | {"running": statistics.state_dict()})
    return statistics, said


def plain(value):
    """The same with lists in the place of tensors, so that it can be compared."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("window", [1, 3, 100])
@pytest.mark.parametrize("resets", [False, True])
def test_a_gpu_follows_the_same_episodes(monkeypatch, resets, window):
    rollouts = list(drawn_rollouts(resets))
    expected, said = followed(rollouts, window)
    assert expected.finished > window or window == 100
    monkeypatch.setattr(episodes, "_tells_sizes", lambda values: False)
    found, told = followed(rollouts, window)
    assert plain(found.state_dict()) == plain(expected.state_dict())
    assert plain({"told": dict(enumerate(told))}) == plain({"told": dict(enumerate(said))})


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("resets", [False, True])
def test_episodes_are_those_of_a_walk_through_the_steps(monkeypatch, resets, known):
    monkeypatch.setattr(episodes, "_tells_sizes", lambda values: known)
    rollouts = list(drawn_rollouts(resets))
    found, said = followed(rollouts, 7)
    returns, lengths, running = [], [], [[0.0, 0, 0.0] for _ in range(5)]
    for ws, numbers in zip(rollouts, said, strict=True):
        fallen = []
        for row in range(ws.T):
            for column, episode in enumerate(running):
                if not resets or ws["env/valid"][row, column]:
                    episode[0] += float(ws["env/reward"][row, column])
                    episode[1] += 1
                    episode[2] = max(episode[2], float(ws["env/metric/fell"][row, column]))
                if ws["env/done"][row, column]:
                    returns.append(episode[0])
                    lengths.append(episode[1])
                    fallen.append(episode[2])
                    running[column] = [0.0, 0, 0.0]
        assert numbers.get("env/fell") == (pytest.approx(sum(fallen) / len(fallen)) if fallen else None)
    assert list(found.returns) == pytest.approx(returns[-7:], abs=1e-6)
    assert list(found.lengths) == lengths[-7:]
    assert found.finished == len(returns) > 7
    assert found.running_return.tolist() == pytest.approx([episode[0] for episode in running], abs=1e-6)
    assert found.running_length.tolist() == [episode[1] for episode in running]
    assert found.running_events["fell"].tolist() == [episode[2] for episode in running]
