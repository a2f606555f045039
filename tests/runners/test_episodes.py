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
