"""Episode statistics by hand, over rollouts that cut episodes anywhere."""

import torch

from gaitway.core.workspace import Workspace
from gaitway.runners.episodes import EpisodeStatistics


def rollout(reward, terminated, truncated=None, **more):
    reward = torch.tensor(reward)
    terminated = torch.tensor(terminated, dtype=torch.bool)
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
