"""Numbers of steps and episodes: each depends on its own place alone."""

from __future__ import annotations

import torch

from gaitway.core.seeding import EpisodeStreams
from gaitway.envs.episode_numbers import EpisodeNumbers


def numbers_of(count: int, seed: int = 0, purpose: str = "train", episode: int = 3, step: int = 5) -> EpisodeNumbers:
    streams = EpisodeStreams(count, purpose)
    streams.restart(seed)
    streams.episode[:] = episode
    arrays = {name: torch.from_numpy(array) for name, array in streams.arrays().items()}
    numbers = EpisodeNumbers(**arrays, elapsed=torch.full((count,), step), purpose=purpose)
    numbers.begin()
    return numbers


def test_rows_are_those_of_other_batches() -> None:
    many, few = numbers_of(16), numbers_of(5)
    assert torch.equal(many.of_step("noise", 8)[:5], few.of_step("noise", 8))
    rows = torch.tensor([1, 4])
    assert torch.equal(many.of_step("noise", 8, rows), few.of_step("noise", 8)[rows])
    assert torch.equal(many.of_episode("start", 8, rows), few.of_episode("start", 8)[rows])


def test_every_part_of_the_place_matters() -> None:
    drawn = [
        numbers_of(4).of_step("noise", 8),
        numbers_of(4).of_step("push", 8),
        numbers_of(4).of_episode("noise", 8),
        numbers_of(4, seed=1).of_step("noise", 8),
        numbers_of(4, purpose="evaluation").of_step("noise", 8),
        numbers_of(4, episode=4).of_step("noise", 8),
        numbers_of(4, step=6).of_step("noise", 8),
    ]
    flat = torch.stack(drawn).flatten()
    assert len(flat.unique()) == len(flat)  # 224 numbers of 24 bits: two equal ones have a chance of 0.0015


def test_words_bring_an_episode_back() -> None:
    words = numbers_of(4).begin()
    assert words.dtype == torch.float64
    other = numbers_of(4, seed=9, episode=0)
    other.follow(words)
    assert torch.equal(other.of_step("noise", 8), numbers_of(4).of_step("noise", 8))


def test_an_episode_keeps_its_numbers() -> None:
    assert torch.equal(numbers_of(4, step=6).of_episode("start", 3), numbers_of(4, step=900).of_episode("start", 3))


def test_what_was_drawn_last_is_not_kept_for_others() -> None:
    """Other seeds, words, rows or streams are other numbers, also right after another question."""
    numbers = numbers_of(4)
    first, words = numbers.of_episode("start", 3), numbers.begin().clone()
    assert torch.equal(numbers.of_episode("start", 3), first)
    assert torch.equal(numbers.of_episode("start", 3, torch.tensor([2])), first[2:3])
    assert not torch.equal(numbers.of_episode("model", 3), first)
    numbers._entropy += 1
    reseeded = numbers.begin()
    assert not torch.equal(reseeded, words)
    assert not torch.equal(numbers.of_episode("start", 3), first)
    numbers.follow(words)
    assert torch.equal(numbers.of_episode("start", 3), first)
