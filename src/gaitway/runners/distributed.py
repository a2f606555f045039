"""Several processes that train one policy together: `torchrun --nproc-per-node 2 -m gaitway train ...`.

Rank r of W has the instances r N/W to (r+1) N/W of the N that the configuration asks for, with the seeds and the noise
they have in one process. Each learns from its own rows; gradients are averaged before they are clipped (`Engine`),
moments of observations, returns and advantages are those of all rows (`RunningNorm`, `standardised`), and what is
decided (stop, evaluate, save) is decided together (`Upkeep`). The first rank evaluates, logs, films and writes.

A checkpoint is the state of the first rank and, for each other one, what differs from it: environments, random streams,
replays.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from gaitway.algorithms.replay_algorithm import ReplayConfig
from gaitway.core.config import ConfigError, flatten
from gaitway.core.cpus import usable_cpus
from gaitway.core.files import StateFileError, tensors_sha256
from gaitway.core.rank_memory import shared_memory
from gaitway.core.ranks import RankLostError, Ranks, being, here
from gaitway.core.state_codec import encode

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What `torchrun` sets."""
PARTS, PROCESSES = "ranks", "processes"
"""Keys of a checkpoint: what the other ranks have of their own, and how many processes there are."""
Config = TypeVar("Config")


def is_launched() -> bool:
    """Whether this process is one of several, perhaps one of one, that `torchrun` has started."""
    return all(name in os.environ for name in VARIABLES)


@contextmanager
def joined() -> Iterator[Ranks]:
    """Within this context the process speaks with those that were started with it; if none were, it is alone."""
    if not is_launched() or not here().is_alone:
        yield here()
        return
    from torch import distributed

    store, rank, size = next(distributed.rendezvous("env://"))
    # torchrun may keep its store when it starts ranks again, and addresses of the former ones in it
    store = distributed.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    group = distributed.group.WORLD
    memory = None
    try:
        with being(Ranks(rank, size, group, group)) as ranks:
            memory = ranks.memory = shared_memory(ranks)
            yield ranks
    finally:
        if memory is not None:
            memory.leave()
        distributed.destroy_process_group()


def device_of_rank(device: str) -> str:
    """Where this rank computes: the GPU with its local number, if the run is on GPUs."""
    ranks = here()
    if ranks.is_alone or not device.startswith("cuda"):
        return device
    if device != "cuda":
        raise ConfigError(f"device is {device!r}, one for all ranks; use device=cuda, each takes a GPU of its own")
    local, on_machine = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if on_machine > torch.cuda.device_count():
        raise ConfigError(
            f"{on_machine} ranks were started on a machine with {torch.cuda.device_count()} GPUs; use --nproc-per-node "
            f"{max(torch.cuda.device_count(), 1)}, or device=cpu"
        )
    return f"cuda:{local}"


def connect(device: str) -> None:
    """Let tensors on a GPU travel by NCCL; all ranks do this at the same time."""
    ranks = here()
    if not ranks.is_alone and device.startswith("cuda") and ranks.data is ranks.control:
        from torch import distributed

        torch.cuda.set_device(torch.device(device))
        ranks.data = distributed.new_group(backend="nccl")


def cores_of_rank() -> int | None:
    """The cores that are this rank's on its machine; None: all, it is alone."""
    if here().is_alone:
        return None
    return max(1, usable_cpus() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def instances_of_rank(num_envs: int) -> int:
    """How many of a run's instances are this rank's."""
    return _divided(num_envs, "env.num_envs")


def algorithm_of_rank(config: Config) -> Config:
    """What an off-policy algorithm does in a rank: its share of every batch, of the replay and of an iteration."""
    if here().is_alone or not isinstance(config, ReplayConfig):
        return config
    return replace(
        config,
        batch_size=_divided(config.batch_size, "algorithm.batch_size"),
        replay_size=_divided(config.replay_size, "algorithm.replay_size"),
        iteration_steps=_divided(config.iteration_steps, "algorithm.iteration_steps"),
    )


def check_alike(config: Mapping[str, Any]) -> None:
    """Refuse ranks whose configurations differ, by the first key that does."""
    ranks = here()
    if ranks.is_alone:
        return
    told = [flatten(each) for each in ranks.exchange(config)]
    for rank, other in enumerate(told):
        for key in sorted({*told[0], *other}):
            if told[0].get(key) != other.get(key):
                raise ConfigError(
                    f"the ranks have different configurations: {key} is {told[0].get(key)!r} for rank 0 and "
                    f"{other.get(key)!r} for rank {rank}; give all of them the same arguments and files",
                    key,
                )


def check_processes(stored: Any, name: str) -> None:
    """Refuse to go on with a run that another number of processes has trained; `stored` is what its checkpoint says."""
    trained, ranks = int(stored or 1), here()
    if trained != ranks.size:
        how = f"`torchrun --nproc-per-node {trained} -m gaitway resume {name}`"
        how = f"`gaitway resume {name}`" if trained == 1 else how
        raise ConfigError(
            f"{name} was trained by {trained} process{'es' * (trained > 1)} and cannot go on with {ranks.size}, which "
            f"would draw other numbers; use {how}"
        )


def state_of_all(state: dict[str, Any]) -> dict[str, Any]:
    """The state that a checkpoint holds, at the first rank; at the others nothing that is of use."""
    ranks = here()
    if ranks.is_alone:
        return state
    digests = ranks.from_first(_digests(state) if ranks.is_first else None)
    parts = ranks.states_at_first({} if ranks.is_first else _difference(state, digests))
    return state | {PARTS: parts, PROCESSES: ranks.size}


def state_of_rank(state: dict[str, Any], name: str) -> dict[str, Any]:
    """What a checkpoint holds of this rank; `name` is what the run is called in messages."""
    parts = state.pop(PARTS, [])
    check_processes(state.pop(PROCESSES, 1), name)
    rank = here().rank
    if rank == 0:
        return state
    if len(parts) < rank:
        raise StateFileError(f"{name} lacks the state of rank {rank}; use another checkpoint")
    for path in parts[rank - 1]["absent"]:
        del _place(state, path)[path[-1]]
    for path, value in parts[rank - 1]["values"]:
        _place(state, path)[path[-1]] = value
    return state


def check_together(fingerprint: str) -> None:
    """Refuse to go on where ranks have learnt different parameters, which nothing should bring about."""
    found = here().exchange(fingerprint)
    if any(each != found[0] for each in found):
        rank = next(rank for rank, each in enumerate(found) if each != found[0])
        raise RankLostError(
            f"rank {rank} has other parameters than rank 0, so that the ranks no longer train one policy; something "
            "that learns does so outside of an Engine"
        )


def _divided(number: int, key: str) -> int:
    size = here().size
    if number % size:
        raise ConfigError(
            f"{key} is {number}, which {size} processes cannot share evenly; use {number - number % size or size} or "
            f"{number - number % size + size}, or another number of processes",
            key,
        )
    return number // size


def _leaves(state: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Everything in a nested state that is not itself a dict with something in it, and where it is."""
    for key, value in state.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _digest(value: Any) -> str:
    tensors: dict[str, Any] = {}
    document = encode(value, "", tensors)
    return hashlib.sha256((json.dumps(document) + tensors_sha256(tensors)).encode()).hexdigest()


def _digests(state: Mapping[str, Any]) -> dict[str, str]:
    return {json.dumps(path): _digest(value) for path, value in _leaves(state)}


def _difference(state: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """What of a state is not what the digests, those of another one, say."""
    own = {json.dumps(path): (path, value) for path, value in _leaves(state)}
    values = [[list(path), value] for name, (path, value) in own.items() if digests.get(name) != _digest(value)]
    return {"values": values, "absent": [json.loads(name) for name in digests if name not in own]}


def _place(state: Any, path: Any) -> Any:
    """The dict in which the last key of a path stands."""
    for key in path[:-1]:
        state = state.setdefault(key, {})
    return state
