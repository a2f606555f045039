"""The moving generator draws what `instance_generator` draws; its keys are those of NumPy's SeedSequence."""

from __future__ import annotations

import numpy as np
import pytest

from gaitway.core.seeding import EpisodeStreams
from gaitway.envs.episode_generator import BLOCK, MANY, PATIENCE, EpisodeGenerator, philox_keys


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


def test_prepared_streams_are_those_of_the_rule() -> None:
    streams = EpisodeStreams(MANY + 2, "evaluation")
    streams.restart(11)
    generator = EpisodeGenerator(streams)
    for episode in (0, 1, PATIENCE - 1, PATIENCE):
        streams.episode[:] = episode
        streams.episode[1] += 3
        generator.prepare(range(MANY + 1))
        streams.episode[0] += 1  # moved on since: what was prepared is of no use
        for instance in range(MANY + 2):
            assert generator.at(instance).random() == streams.generator(instance).random()


@pytest.mark.parametrize("purpose", ["train", "evaluation"])
def test_streams_begin_where_those_of_the_rule_begin(purpose: str) -> None:
    streams = EpisodeStreams(3, purpose)
    streams.restart([5, 2**40, 0])
    generator = EpisodeGenerator(streams)
    for episode in (0, 1, PATIENCE, PATIENCE + 1, PATIENCE + BLOCK - 1, PATIENCE + BLOCK, 3, PATIENCE, 5000):
        streams.episode[:] = episode
        for instance in (2, 0, 1):
            expected = streams.generator(instance)
            found = generator.at(instance)
            # a mixture, because integers of 32 bits leave half a word behind for the next ones
            assert found.integers(2, size=3).tolist() == expected.integers(2, size=3).tolist()
            assert found.uniform(-1, 1, 5).tolist() == expected.uniform(-1, 1, 5).tolist()
            assert found.standard_normal() == expected.standard_normal()
            assert generator.at(instance).integers(2**31) == streams.generator(instance).integers(2**31)


def test_other_seeds_are_forgotten_with() -> None:
    streams = EpisodeStreams(1, "train")
    streams.restart(5)
    generator = EpisodeGenerator(streams)
    streams.episode[:] = PATIENCE
    before = generator.at(0).random()
    streams.restart(6)
    streams.episode[:] = PATIENCE
    assert generator.at(0).random() == before, "keys are kept until somebody says so"
    generator.forget()
    assert generator.at(0).random() == streams.generator(0).random() != before
