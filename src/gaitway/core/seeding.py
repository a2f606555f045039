"""Randomness is passed: one seed, named streams, all of them storable.

Environments draw from `instance_generator`, a stream per (seed, instance, episode), so that what an instance draws does
not depend on the batch size, the thread count or when other instances end. Everything else draws from a
`torch.Generator` made by `stream`.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from gaitway.core.ranges import WholeNumber, refusal

PURPOSES = {"train": (), "evaluation": (1,)}
BRANCHES = 1000
"""Added to the number of a branch, so that none is a purpose."""


class SeedFrom(int):
    """A seed of instances that are counted from `first` on: those that one of several processes has."""

    first: int

    def __new__(cls, seed: int, first: int) -> SeedFrom:
        made = super().__new__(cls, check_seed(seed))
        made.first = first
        return made

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.first


class SharedStream(torch.Generator):
    """A generator that all processes of a run have alike; each draws for all instances and takes its own (`fill`)."""

    rank: int
    size: int


def fill(out: torch.Tensor, generator: torch.Generator | None, how: str = "normal_", *limits: float) -> torch.Tensor:
    """Draw `out` [B, ...], a row per instance, by its method `how`; with a `SharedStream` those rows of what all
    processes draw that are this one's, so that instances get the numbers they get in one process."""
    if not isinstance(generator, SharedStream):
        return getattr(out, how)(*limits, generator=generator)
    whole = out.new_empty((len(out) * generator.size, *out.shape[1:]))
    getattr(whole, how)(*limits, generator=generator)
    return out.copy_(whole[generator.rank * len(out) : (generator.rank + 1) * len(out)])


def check_seed(seed: int) -> int:
    """A non-negative integer of 63 bits; True and False are refused because they are usually a mistake."""
    sentence = refusal(WholeNumber, seed, "the seed")
    if sentence is not None:
        raise ValueError(sentence)
    return int(seed)


def instance_seeds(seed: int | Sequence[int], num_envs: int) -> np.ndarray:
    """Entropy `[B, 2]` of each instance: an integer s gives (s, i), a list gives (s_i, 0)."""
    if isinstance(seed, int | np.integer):
        first = seed.first if isinstance(seed, SeedFrom) else 0
        return np.array([[check_seed(seed), first + index] for index in range(num_envs)], dtype=np.uint64)
    seeds = [check_seed(value) for value in seed]
    if len(seeds) != num_envs:
        raise ValueError(f"{len(seeds)} seeds for {num_envs} instances; pass one integer or one seed per instance")
    return np.array([[value, 0] for value in seeds], dtype=np.uint64)


def instance_generator(
    entropy: Sequence[int] | np.ndarray, episode: int, purpose: str = "train", branch: int | None = None
) -> np.random.Generator:
    """The stream of one instance (a row of `instance_seeds`) in one episode, or a `branch` of it for somebody else."""
    words = [int(entropy[0]), int(entropy[1]), int(episode)]
    key = PURPOSES[purpose] if branch is None else (*PURPOSES[purpose], BRANCHES + branch)
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(words, spawn_key=key)))


class EpisodeStreams:
    """The streams of all instances of an environment: which seed each one has, and in which episode it is."""

    def __init__(self, num_envs: int, purpose: str) -> None:
        if purpose not in PURPOSES:
            raise ValueError(f"purpose is {purpose!r}; use one of {sorted(PURPOSES)}")
        self.purpose = purpose
        self.entropy = np.zeros((num_envs, 2), dtype=np.uint64)
        self.episode = np.zeros(num_envs, dtype=np.int64)

    def restart(self, seed: int | Sequence[int] | None) -> None:
        """Episode 0 of new streams, or with None the next episode of the present ones."""
        if seed is None:
            self.episode += 1
        else:
            self.entropy[:] = instance_seeds(seed, len(self.episode))
            self.episode[:] = 0

    def generator(self, instance: int, branch: int | None = None) -> np.random.Generator:
        """What the present episode of an instance draws from, from its beginning, or a branch of that."""
        return instance_generator(self.entropy[instance], int(self.episode[instance]), self.purpose, branch)

    def arrays(self) -> dict[str, np.ndarray]:
        """What must be stored and put back, as live views."""
        return {"entropy": self.entropy.view(np.int64), "episode": self.episode}  # int64: files know it better


def named_sequence(seed: int, name: str) -> np.random.SeedSequence:
    """The entropy of a named stream; `np.random.default_rng` takes it as it is."""
    return np.random.SeedSequence(check_seed(seed), spawn_key=(zlib.crc32(name.encode()),))


def stream(seed: int, name: str, device: torch.device | str = "cpu") -> torch.Generator:
    """A named generator (policy, minibatch, replay, ...); different names never share a stream."""
    return begun(torch.Generator(device=device), seed, name)


def begun(generator: torch.Generator, seed: int, name: str) -> torch.Generator:
    """Let a generator begin the stream of this name."""
    generator.manual_seed(int(named_sequence(seed, name).generate_state(1, np.uint64)[0]) & (2**63 - 1))
    return generator


def seed_globals(seed: int) -> None:
    """Seed the process-wide generators of torch, numpy and Python, which user code may draw from."""
    torch.manual_seed(seed % 2**63)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def restore_stream(generator: torch.Generator, state: torch.Tensor) -> None:
    """Go on drawing where `state` was taken. A generator of another kind of device cannot; it goes on with numbers that
    `state` decides, and no others."""
    state = state.cpu()
    if len(state) == len(generator.get_state()):
        generator.set_state(state)
        return
    digest = hashlib.sha256(state.numpy().tobytes()).digest()
    generator.manual_seed(int.from_bytes(digest[:8], "big") & (2**63 - 1))


def global_state() -> dict[str, object]:
    """The process-wide generators of torch, numpy and Python, which user code may draw from."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    version, words, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else [],
        "numpy": [
            name,
            torch.from_numpy(np.asarray(keys, dtype=np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ],
        "python": [version, list(words), gauss],
    }


def set_global_state(state: Mapping[str, Any]) -> None:
    """Undo `global_state`."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
