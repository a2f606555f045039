"""The moving generator draws what `instance_generator` draws; its keys are those of NumPy's SeedSequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gaitway.core.seeding import EpisodeStreams
from gaitway.envs import episode_generator
from gaitway.envs.episode_generator import BLOCK, EpisodeGenerator, philox_keys


@pytest.mark.parametrize("spawn_key", [(), (1,), (3, 2**40)])
@pytest.mark.parametrize("entropy", [(0, 0), (7, 2), (2**32 - 1, 2**31), (2**32, 1), (2**63 + 5, 2**33)])
def test_keys_are_numpys(entropy: tuple[int, int], spawn_key: tuple[int, ...]) -> None:
    episodes = np.array([0, 1, 8, 1000, 2**31, 2**32 - 1])
    keys = philox_keys(np.tile(np.array(entropy, dtype=np.uint64), (len(episodes), 1)), episodes, spawn_key)
    assert keys.dtype == np.uint64
    for episode, key in zip(episodes.tolist(), keys, strict=True):
        sequence = np.random.SeedSequence([*entropy, episode], spawn_key=spawn_key)
        assert key.tolist() == sequence.generate_state(2, np.uint64).tolist()


def test_keys_of_seeds_of_different_lengths_together() -> None:
    entropy = np.array([(5, 0), (2**40, 1), (7, 2**33), (2**63, 2**32), (2**32 - 1, 9)], dtype=np.uint64)
    episodes = np.array([3, 1, 4, 1, 5])
    for row, episode, key in zip(entropy.tolist(), episodes.tolist(), philox_keys(entropy, episodes), strict=True):
        assert key.tolist() == np.random.SeedSequence([*row, episode]).generate_state(2, np.uint64).tolist()


def test_keys_are_hashed_for_all_that_soon_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counted(entropy: np.ndarray, episodes: np.ndarray, spawn_key: Sequence[int] = ()) -> np.ndarray:
        hashed.append(len(episodes))
        return philox_keys(entropy, episodes, spawn_key)

    monkeypatch.setattr(episode_generator, "philox_keys", counted)
    streams = EpisodeStreams(10, "train")
    generators = EpisodeGenerator(streams)
    for round in range(3 * BLOCK):
        streams.episode[9] += 5 * (round == 1)  # from here on it is five episodes ahead of the others
        assert sum(1 for _ in generators.each(np.arange(10))) == 10
        streams.episode += 1
    assert hashed == 4 * [10 * BLOCK]  # not once for 9 and once for the others every time


@pytest.mark.parametrize("purpose", ["train", "evaluation"])
def test_streams_begin_where_those_of_the_rule_begin(purpose: str) -> None:
    streams = EpisodeStreams(4, purpose)
    streams.restart([5, 2**40, 0, 7])
    generators = EpisodeGenerator(streams)
    instances = np.array([2, 0, 1])
    for episode in (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3, 5000):
        streams.episode[:] = episode
        streams.episode[1] += 3
        for instance, found in zip(instances.tolist(), generators.each(instances), strict=True):
            expected = streams.generator(instance)
            # a mixture, because integers of 32 bits leave half a word behind for the next ones
            assert found.integers(2, size=3).tolist() == expected.integers(2, size=3).tolist()
            assert found.uniform(-1, 1, 5).tolist() == expected.uniform(-1, 1, 5).tolist()
            assert found.standard_normal() == expected.standard_normal()
            assert found.integers(2**31) == expected.integers(2**31)


def test_other_seeds_are_forgotten_with() -> None:
    streams = EpisodeStreams(2, "train")
    streams.restart([5, 9])
    generators = EpisodeGenerator(streams)
    instances = np.arange(2)

    def numbers() -> list[float]:
        return [generator.random() for generator in generators.each(instances)]

    generators.forget()
    before = numbers()
    streams.restart([6, 9])
    assert numbers() == before, "keys are kept until somebody says so"
    generators.forget()
    assert numbers() == [streams.generator(instance).random() for instance in (0, 1)]
    assert numbers()[0] != before[0]
    assert numbers()[1] == before[1]
