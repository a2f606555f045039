"""Counts by hashing: keys by integers of Python, duplicates, what a source writes, and runs that go on exactly."""

import math

import pytest
import torch

from gaitway.algorithms.algorithm import Now
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.rewards import SOURCES
from gaitway.rewards.sim_hash import PRIMES, SimHash, SimHashReward
from gaitway.rewards.source import Rewards


def exact_keys(table, row):
    """Integers without a limit, bit by bit."""
    products = [
        math.fsum(float(x) * float(a) for x, a in zip(row, column, strict=True)) for column in table.projection.T
    ]
    code = [(product > 0) - (product < 0) for product in products]
    number = sum(sign * 2**bit for bit, sign in enumerate(code))
    return [number % prime for prime in PRIMES]


@pytest.mark.parametrize("key_size", [8, 32, 50])
def test_keys_are_those_of_exact_integers(key_size):
    table = SimHash(5, key_size, seed=1)
    x = torch.randn(200, 5, generator=stream(0, "x"))
    keys = table.keys(x)
    assert keys.shape == (6, 200)
    assert keys.T.tolist() == [exact_keys(table, row) for row in x]
    assert table.keys(torch.zeros(1, 5)).tolist() == [[0]] * 6, "signs of nothing are 0"
    assert torch.equal(table.keys(3.0 * x), keys), "directions are told apart, not lengths"
    assert len(keys[0].unique()) > 20


def test_float32_sums_of_powers_would_be_wrong():
    """The twin: 31 bits do not fit into the 24 of a float."""
    table = SimHash(4, 32)
    code = (torch.randn(500, 4, generator=stream(0, "x")).double() @ table.projection).sign()
    number = (code.float() * 2.0 ** torch.arange(32)).sum(-1)
    broken = number.long().remainder(PRIMES[0])
    assert (broken != table.keys(torch.randn(500, 4, generator=stream(0, "x")))[0]).float().mean() > 0.5


def test_duplicates_in_one_batch_count_fully_and_invalid_rows_not_at_all():
    table = SimHash(3)
    here, there, nowhere = (
        torch.tensor([[1.0, 0.2, -0.3]]),
        torch.tensor([[-1.0, 0.5, 2.0]]),
        torch.tensor([[0.1, -9, 3]]),
    )
    table.add(table.keys(torch.cat([here] * 5 + [there] * 2)))
    table.add(table.keys(torch.cat([here, there])), torch.tensor([True, False]))
    counts = table.counts(table.keys(torch.cat([here, there, nowhere])))
    assert counts.tolist() == [6, 2, 0]
    assert table.bonus(table.keys(torch.cat([here, there, nowhere]))).tolist() == pytest.approx([6**-0.5, 2**-0.5, 1.0])
    assert table.unique().item() == pytest.approx(2.0)


def test_the_count_is_the_least_of_the_tables():
    table = SimHash(3)
    keys = table.keys(torch.randn(2, 3, generator=stream(0, "x")))
    table.add(keys[:, :1])
    collision = keys[:, :1].clone()
    collision[3] = keys[3, 1]  # another observation that shares five cells of six
    assert table.counts(collision).tolist() == [0]


def spec():
    groups = [ObservationGroup(name, (Component("x", size),), (size,)) for name, size in (("policy", 3), ("extra", 2))]
    return EnvSpec(
        "test",
        tuple(groups),
        ActionSpec("continuous", ("force",), (-1.0,), (1.0,)),
        control_dt=0.02,
        max_episode_steps=10,
    )


def rows(seed=0, steps=12):
    generator = stream(seed, "rows")
    ends = torch.rand(steps, 5, generator=generator) < 0.3
    ws = {"env/reward": torch.zeros(steps, 5), "env/terminated": ends, "env/truncated": torch.zeros_like(ends)}
    for name, size in (("policy", 3), ("extra", 2)):
        ws[f"env/obs/{name}"] = torch.randint(-1, 2, (steps + 1, 5, size), generator=generator).float()
        ws[f"env/final_obs/{name}"] = torch.randint(-1, 2, (steps, 5, size), generator=generator).float()
    return Workspace.packed(ws)


def test_the_source_rewards_what_was_reached_by_how_often_it_was():
    source, seen = SimHashReward(spec(), groups=("policy", "extra")), {}
    for number in range(3):
        ws = rows(number)
        before = dict(seen)
        source.annotate(ws)
        for t in range(ws.T):
            for b in range(ws.B):
                ended = bool(ws["env/done"][t, b])
                parts = [
                    ws[f"env/final_obs/{g}"][t, b] if ended else ws[f"env/obs/{g}"][t + 1, b]
                    for g in ("policy", "extra")
                ]
                place = tuple(exact_keys(source.table, torch.cat(parts)))
                seen[place] = seen.get(place, 0) + 1
                expected = 1 / math.sqrt(max(1, before.get(place, 0)))
                assert ws["reward/sim_hash"][t, b].item() == pytest.approx(expected, rel=1e-6)
        metrics = source.update(ws, Now())
        assert metrics["sim_hash/unique_states"].item() == pytest.approx(len(seen), rel=0.01)
    assert max(seen.values()) > 2


def test_its_state_goes_on_alike():
    one, other = SimHashReward(spec(), seed=3), SimHashReward(spec(), seed=4)
    one.update(rows(), Now())
    stored = Rewards([one]).state_dict()
    assert stored["sim_hash"]["cells"].numel() < 400, "cells that are empty are not stored"
    Rewards([other]).load_state_dict(stored)
    assert torch.equal(one.table.cells, other.table.cells)
    assert torch.equal(one.table.projection, other.table.projection)
    for source in (one, other):
        source.update(rows(7), Now())
    assert torch.equal(one.table.cells, other.table.cells)
    with pytest.raises(ValueError, match="go on with the groups and the key_size of before"):
        SimHashReward(spec(), key_size=8).load_state_dict(stored["sim_hash"])


def test_it_is_known_by_name_and_bad_options_are_told():
    assert SOURCES["sim_hash"] is SimHashReward
    assert SimHashReward(make_env("toy/pendulum").spec).groups == ("pos", "vel")
    with pytest.raises(ValueError, match=r"groups is \['polcy'\].*\['policy', 'extra'\]"):
        SimHashReward(spec(), groups=("polcy",))
    with pytest.raises(ValueError, match="leave nothing to count"):
        SimHash(3, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_graph_records_it():
    table = SimHash(5, device="cuda")
    x = torch.randn(64, 5, device="cuda")
    table.add(table.keys(x[:32]))
    expected = table.bonus(table.keys(x))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = table.bonus(table.keys(x))
        table.add(table.keys(x))
    graph.replay()
    assert torch.equal(found, expected)
    assert (table.counts(table.keys(x)) > 0).all()
