"""PrioritisedReplay: the law of its draws, weights by hand, which steps have priorities, and its state."""

import pytest
import torch
from scipy.stats import chi2
from step_model import ACTION, EXTRAS, GROUPS, World, check_transitions
from torch.testing import assert_close

from gaitway.core.files import load_state, save_state
from gaitway.core.workspace import Workspace
from gaitway.data.prioritised_replay import PrioritisedReplay
from gaitway.data.replay_journal import ReplayJournal
from gaitway.data.step_replay import StepReplay


def make(capacity: int, num_envs: int, **options: object) -> PrioritisedReplay:
    return PrioritisedReplay(capacity, num_envs, GROUPS, ACTION, extras=EXTRAS, **{"seed": 0, **options})


def numbers(replay: PrioritisedReplay) -> dict[int, int]:
    """Number of the observation of every transition that can be drawn -> its index."""
    index = replay.slots(replay.first_row, replay.stop_row)
    seen = replay.gather(index)["obs/policy"][:, 0].int().tolist()
    return dict(zip(seen, index.tolist(), strict=True))


def assert_law(counts: torch.Tensor, expected: torch.Tensor) -> None:
    assert (counts[expected == 0] == 0).all()
    kept = expected > 0
    statistic = ((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum().item()
    assert statistic < chi2.ppf(1 - 1e-6, int(kept.sum()) - 1)


class TestLaw:
    @pytest.mark.parametrize("stratified", [False, True])
    @pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
    def test_draws_are_in_proportion_to_priority_to_the_alpha(self, alpha, stratified):
        world = World(3, 1)
        replay = make(60, 3, alpha=alpha, stratified=stratified)
        replay.add(world.advance(33))
        index = torch.tensor(sorted(numbers(replay).values()))
        error = torch.rand(60, generator=torch.Generator().manual_seed(0)) * 4 - 2  # of either sign
        replay.update_priorities(index, error)
        draws = replay.draw((100, 300))
        counts = torch.bincount(draws.flatten(), minlength=replay.num_slots).double()
        priority = (error.double().abs() + 1e-6) ** alpha
        expected = torch.zeros_like(counts)
        expected[index] = draws.numel() * priority / priority.sum()
        if stratified:  # varies less than free draws do
            assert_close(counts, expected, atol=5 * expected.max().sqrt().item(), rtol=0)
            assert (counts[expected == 0] == 0).all()
        else:
            assert_law(counts, expected)
        if alpha:
            uniform = expected.sum() / 60
            assert ((expected[index] - uniform) ** 2 / uniform).sum().item() > 4 * chi2.ppf(1 - 1e-6, 59)

    def test_strata_take_one_draw_each(self):
        replay = make(64, 1)
        replay.add(World(1, 0).advance(64))
        # equal priorities: a batch of 64 meets every transition exactly once
        for row in replay.draw((5, 64)):
            assert len(set(row.tolist())) == 64
        assert len(set(make_filled(64, stratified=False).draw((64,)).tolist())) < 64

    def test_weights_by_hand(self):
        replay = make(4, 1, alpha=0.5, beta=0.5, eps=1e-12)
        replay.add(World(1, 0, ends=0).advance(4))
        index = replay.slots(0, 4)
        replay.update_priorities(index, torch.tensor([1.0, -4.0, 16.0, 9.0]))
        # p^alpha = 1, 2, 4, 3, of 10; N P = .4, .8, 1.6, 1.2; (N P)^-beta over the largest, .4^-.5
        probability = torch.tensor([0.1, 0.2, 0.4, 0.3], dtype=torch.float64)
        expected = (4 * probability) ** -0.5 / (4 * 0.1) ** -0.5
        weight = replay.gather(index)["weight"]
        assert weight.dtype is torch.float32
        assert_close(weight.double(), expected, atol=1e-6, rtol=0)
        assert_close(weight[1:3], torch.tensor([0.5**0.5, 0.5]))
        replay.set_beta(1.0)
        assert_close(replay.gather(index)["weight"], torch.tensor([1.0, 0.5, 0.25, 1 / 3]))
        replay.set_beta(0.0)
        assert_close(replay.gather(index)["weight"], torch.ones(4))
        # the largest is that of the whole replay, not of the batch
        replay.set_beta(1.0)
        assert_close(replay.gather(index[2:3])["weight"], torch.tensor([0.25]))

    def test_new_steps_get_the_largest_priority_seen(self):
        world = World(1, 0, ends=0)
        replay = make(10, 1, alpha=1.0, eps=0.5)
        replay.add(world.advance(2))
        assert replay.tree.weights[:2].tolist() == [1.0, 1.0]
        replay.update_priorities(torch.tensor([0, 1]), torch.tensor([0.25, 6.5]))
        replay.update_priorities(torch.tensor([1]), torch.tensor([1.5]))
        replay.add(world.advance(1))
        assert replay.tree.weights[:3].tolist() == [0.75, 2.0, 7.0]

    def test_of_one_drawn_twice_the_larger_error_counts(self):
        replay = make_filled(10, alpha=1.0, eps=1.0)
        replay.update_priorities(torch.tensor([3, 3, 4, 3]), torch.tensor([1.0, -5.0, 2.0, 0.0]))
        assert replay.tree.weights[3:5].tolist() == [6.0, 3.0]


def make_filled(steps: int, **options: object) -> PrioritisedReplay:
    replay = make(steps, 1, **options)
    replay.add(World(1, 0).advance(steps))
    return replay


class TestWhatIsDrawn:
    @pytest.mark.parametrize("n_step", [1, 3])
    @pytest.mark.parametrize("reset_rows", [False, True])
    @pytest.mark.parametrize("num_envs", [1, 3])
    def test_exactly_what_a_step_replay_draws(self, num_envs, reset_rows, n_step):
        world = World(num_envs, 3, reset_rows)
        replay = make(8 * num_envs, num_envs, n_step=n_step, gamma=0.9, reset_rows=reset_rows)
        generator = torch.Generator().manual_seed(0)
        for count in (1, 1, 2, 5, 1, 3, 30, 1, 8, 9, 1):  # growing, wrapping, more than it holds
            replay.add(world.advance(count))
            expected = world.transitions(8, n_step, 0.9)
            assert sorted(numbers(replay)) == sorted(expected)
            drawable = torch.zeros(replay.num_slots, dtype=torch.bool)
            drawable[list(numbers(replay).values())] = True
            assert torch.equal(replay.tree.weights > 0, drawable)
            if not replay.size:
                continue
            index = replay.draw((40,))
            check_transitions(replay.gather(index), expected)
            replay.update_priorities(index, torch.rand(40, generator=generator) * 3)
            assert torch.equal(replay.tree.weights > 0, drawable)
        if not reset_rows:
            replay.cut()
            world.restart()
            assert sorted(numbers(replay)) == sorted(world.transitions(8, n_step, 0.9))
            drawable = torch.zeros(replay.num_slots, dtype=torch.bool)
            drawable[list(numbers(replay).values())] = True
            assert torch.equal(replay.tree.weights > 0, drawable)
            replay.add(world.advance(4))
            check_transitions(replay.gather(replay.draw((100,))), world.transitions(8, n_step, 0.9))

    def test_priorities_stay_with_their_steps_when_the_ring_closes(self):
        world = World(2, 0, ends=0)
        replay = make(12, 2, alpha=1.0, eps=1.0)
        known: dict[int, float] = {}
        largest = 1.0
        for turn in range(9):
            replay.add(world.advance(2))
            found = numbers(replay)
            known = {number: known.get(number, largest) for number in found}
            for number, slot in found.items():
                assert float(replay.tree.weights[slot]) == known[number]
            chosen = list(found)[turn % 3 :: 3]
            error = torch.arange(len(chosen)) + float(turn)
            replay.update_priorities(torch.tensor([found[number] for number in chosen]), error)
            known |= {number: each + 1.0 for number, each in zip(chosen, error.tolist(), strict=True)}
            largest = max([largest, *known.values()])

    def test_what_is_no_longer_drawn_stays_out(self):
        world = World(1, 0, ends=0)
        replay = make(5, 1)
        replay.add(world.advance(5))
        old = replay.slots(0, 1)
        replay.add(world.advance(1))
        replay.update_priorities(old, torch.tensor([100.0]))
        assert float(replay.tree.weights[old]) == 0.0
        assert torch.isfinite(replay.gather(old)["weight"]).all()

    def test_a_refused_addition_leaves_what_came_before_it(self, monkeypatch):
        world = World(1, 0, ends=0)
        replay = make(20, 1)
        monkeypatch.setattr(replay._rows, "piece", 2)
        ws = world.advance(4)
        ws["env/obs/image"] = ws["env/obs/image"][:4]  # the second piece of two rows has no observation after it
        with pytest.raises(ValueError, match="image"):
            replay.add(ws)
        assert replay.size == 2
        assert int((replay.tree.weights > 0).sum()) == 2

    def test_nothing_to_draw(self):
        replay = make(10, 1, n_step=3)
        replay.add(World(1, 0, ends=0).advance(2))
        with pytest.raises(ValueError, match="add 3 steps"):
            replay.draw((4,))

    def test_clear(self):
        replay = make_filled(10)
        replay.update_priorities(replay.draw((4,)), torch.full((4,), 9.0))
        replay.clear()
        assert (replay.size, float(replay.tree.total), float(replay.largest)) == (0, 0.0, 1.0)
        replay.add(World(1, 0).advance(3))
        assert replay.tree.weights.tolist()[:3] == [1.0, 1.0, 1.0]


class TestInterface:
    def test_batches_are_used_again(self):
        replay = make_filled(30)
        replay.update_priorities(replay.draw((30,)), torch.rand(30, generator=torch.Generator().manual_seed(0)))
        batch = replay.batch(8)
        for _ in range(3):
            index = replay.draw((8,))
            kept = replay.gather(index, batch)
            fresh = replay.gather(index)
            assert kept is batch.fields
            assert kept.keys() == fresh.keys()
            for name, value in fresh.items():
                assert torch.equal(kept[name], value), name
            assert len(set(kept["weight"].tolist())) > 1

    def test_tickets_are_draws_to_be_made(self):
        one, other = make_filled(30), make_filled(30)
        index = one.draw((3, 8))
        tickets = other.tickets((3, 8))
        assert torch.equal(other.locate(tickets), index)
        memory = tickets.clone()
        assert other.locate(memory, out=memory) is memory
        assert torch.equal(memory, index)
        # made later, they follow the priorities of then: all but nothing on one transition
        other.update_priorities(torch.arange(30), torch.full((30,), 1e-9))
        other.update_priorities(torch.tensor([7]), torch.tensor([1e9]))
        assert set(other.locate(tickets).flatten().tolist()) == {7}

    def test_out(self):
        replay = make_filled(10)
        out = torch.empty(3, 5, dtype=torch.int64)
        assert replay.draw((3, 5), out=out) is out
        with pytest.raises(ValueError, match="out is"):
            replay.draw((5,), out=out)

    def test_arguments(self):
        for options in ({"alpha": -0.1}, {"beta": 1.5}, {"eps": 0.0}):
            with pytest.raises(ValueError, match="alpha, beta and eps"):
                make(10, 1, **options)
        replay = make_filled(10)
        with pytest.raises(ValueError, match="beta"):
            replay.set_beta(2.0)
        with pytest.raises(ValueError, match="one error per draw"):
            replay.update_priorities(replay.draw((4,)), torch.zeros(4, 1))

    def test_bytes_needed(self):
        options = {"extras": EXTRAS, "max_episode_steps": 50, "n_step": 2}
        steps = StepReplay.bytes_needed(1000, 10, GROUPS, ACTION, **options)
        needed = PrioritisedReplay.bytes_needed(1000, 10, GROUPS, ACTION, **options)
        replay = PrioritisedReplay(1000, 10, GROUPS, ACTION, **options)
        assert needed - steps == sum(level.nbytes for level in replay.tree._sums + replay.tree._least)

    def test_windows_and_inference_mode(self):
        replay = make(20, 2)
        with torch.inference_mode():
            replay.add(World(2, 0).advance(8))
            batch = replay.batch(4)
        assert replay.sample(3, length=4).T == 4
        layer = torch.nn.Linear(2, 1)
        fields = replay.gather(replay.draw((4,)), batch)
        (layer(fields["obs/policy"]).squeeze(-1) * fields["weight"]).sum().backward()

    def test_draws_follow_the_seed(self):
        before = torch.get_rng_state()
        assert torch.equal(make_filled(50, seed=1).draw((30,)), make_filled(50, seed=1).draw((30,)))
        assert not torch.equal(make_filled(50, seed=1).draw((30,)), make_filled(50, seed=2).draw((30,)))
        assert torch.equal(torch.get_rng_state(), before)


class TestState:
    @pytest.mark.parametrize("through", ["memory", "journal"])
    @pytest.mark.parametrize(("n_step", "reset_rows"), [(1, False), (3, False), (1, True)])
    def test_a_restored_replay_goes_on_alike(self, n_step, reset_rows, through, tmp_path):
        world = World(2, 4, reset_rows)
        options = {"n_step": n_step, "gamma": 0.9, "reset_rows": reset_rows}
        first, second = make(12, 2, **options), make(12, 2, **options, seed=9)
        second.add(World(2, 8, reset_rows).advance(11))
        generator = torch.Generator().manual_seed(0)
        for _ in range(5):
            first.add(world.advance(4))
            index = first.draw((9,))
            first.update_priorities(index, torch.rand(9, generator=generator))
        first.set_beta(0.7)
        if through == "memory":
            second.load_state_dict(first.state_dict())
        else:
            journal = ReplayJournal(tmp_path / "replay")
            save_state(tmp_path / "manifest", journal.write(first), kind="manifest")
            ReplayJournal(tmp_path / "replay").read(second, load_state(tmp_path / "manifest", kind="manifest")[0])
        for steps in (0, 1, 2, 9):
            if steps:
                ws = world.advance(steps)
                first.add(ws)
                second.add(ws)
            index = first.draw((50,))
            assert torch.equal(index, second.draw((50,)))
            mine, theirs = first.gather(index), second.gather(index)
            assert torch.equal(mine["weight"], theirs["weight"])
            assert torch.equal(mine["obs/policy"], theirs["obs/policy"])
            error = torch.rand(50, generator=generator)
            first.update_priorities(index, error)
            second.update_priorities(index, error)
        assert torch.equal(first.tree.weights, second.tree.weights)

    def test_another_replay_is_refused(self):
        state = make(10, 1).state_dict()
        for other, word in (
            (make(10, 1, alpha=0.1), "alpha"),
            (make(10, 1, eps=0.1), "eps"),
            (make(12, 1), "capacity"),
        ):
            with pytest.raises(ValueError, match=word):
                other.load_state_dict(state)
        with pytest.raises(ValueError, match="no priorities"):
            make(10, 1).load_state_dict(StepReplay(10, 1, GROUPS, ACTION, extras=EXTRAS).state_dict())

    def test_moving_keeps_contents_and_priorities(self):
        replay = make_filled(10)
        replay.update_priorities(torch.tensor([2]), torch.tensor([8.0]))
        weights, version = replay.tree.weights.clone(), replay.version
        assert replay.to("cpu") is replay
        assert replay.version > version
        assert torch.equal(replay.tree.weights, weights)
        replay.add(World(1, 5).advance(2))
        assert replay.gather(replay.draw((4,)))["weight"].shape == (4,)


def test_a_rare_reward_is_learnt_from_sooner():
    # one of 256 transitions has an error that matters; after one look at all of them it is drawn all the time
    replay = make_filled(256, alpha=0.6)
    index = replay.slots(0, 256)
    error = torch.full((256,), 1e-3)
    error[77] = 10.0
    replay.update_priorities(index, error)
    # (10 / 0.001)^0.6 = 251, so half of all draws
    share = (replay.draw((4000,)) == index[77]).float().mean().item()
    assert share == pytest.approx(251.19 / (251.19 + 255), abs=0.01)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_the_gpu_the_same_numbers_without_waiting():
    def filled(device: str) -> PrioritisedReplay:
        replay = make(60, 3, device=device)
        ws = World(3, 1).advance(25)
        replay.add(Workspace.packed({name: ws[name].to(device) for name in ws}))
        index = replay.slots(replay.first_row, replay.stop_row)
        replay.update_priorities(index, torch.rand(60, generator=torch.Generator().manual_seed(0)).to(device))
        return replay

    host, device = filled("cpu"), filled("cuda")
    tickets = host.tickets((64,))
    moved = tickets.cuda()
    batch = device.batch(64)
    device.gather(device.locate(moved), batch)
    try:
        torch.cuda.set_sync_debug_mode("error")
        index = device.locate(moved)
        fields = device.gather(index, batch)
        device.update_priorities(index, fields["reward"])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = host.locate(tickets)
    assert torch.equal(index.cpu(), expected)
    assert_close(fields["weight"].cpu(), host.gather(expected)["weight"])
