"""The memory of a replay: said before the run, refused when it is not there."""

import pytest

from gaitway.runners import capacity
from gaitway.runners.capacity import check_instances, check_replay, in_words, two_digits


def bytes_of(size):
    return 200 * size + 4_000


def test_the_line_says_how_many_how_much_and_where(monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: 10**9)
    assert check_replay(bytes_of, 1_000_000, "cpu") == "replay: 1,000,000 transitions, 200 MB on cpu"


def test_too_large_a_replay_is_refused_with_a_number_that_fits(monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: 100_000_000)
    with pytest.raises(
        ValueError, match=r"replay_size is 1,000,000 transitions, which take 200 MB on cpu, where 100 MB"
    ):
        check_replay(bytes_of, 1_000_000, "cpu")
    with pytest.raises(ValueError, match=r"use algorithm.replay_size=440000$"):  # (0.9 * 1e8 - 4e3) / 200 = 449 980
        check_replay(bytes_of, 1_000_000, "cpu")
    assert "88 MB" in check_replay(bytes_of, 440_000, "cpu")


def test_instances_on_a_device_are_counted_with_what_is_learnt_from_them(monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: {"cpu": 10**12, "cuda": 10**9}[device])
    check_instances(100_000, 10_000)
    with pytest.raises(
        ValueError, match=r"take 1.0 GB on cuda with their rollout, where 1.0 GB .*num_envs=9000 or less"
    ):
        check_instances(100_000, 10_000, "cuda", " on cuda with their rollout")


def test_a_machine_that_does_not_tell_is_trusted(monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: None)
    assert "200 TB" in check_replay(bytes_of, 10**12, "cpu")


@pytest.mark.parametrize(
    ("count", "words"),
    [(5, "5 bytes"), (1_000, "1.0 kB"), (204_400_000, "204 MB"), (999_600_000, "1.0 GB"), (5 * 10**15, "5.0 PB")],
)
def test_bytes_in_words(count, words):
    assert in_words(count) == words


def test_numbers_that_are_easy_to_type():
    assert [two_digits(number) for number in (0, 7, 58, 587, 58_731)] == [0, 7, 58, 580, 58_000]
