"""Replays filled from datasets, and batches that mix both."""

import pytest
import torch
from step_model import ACTION, EXTRAS, GROUPS, World, check_transitions
from test_dataset_episodes import episodes
from torch.testing import assert_close

from gaitway.core.files import load_state, save_state
from gaitway.data.episodes import Episodes
from gaitway.data.mixing import MixedReplay, dataset_replay, fill_replay
from gaitway.data.prioritised_replay import PrioritisedReplay
from gaitway.data.replay_journal import ReplayJournal
from gaitway.data.step_replay import StepReplay

SIMPLE = {"groups": {"policy": ((2,), torch.float32)}, "action": ((1,), torch.float32)}


def simple(capacity: int, num_envs: int, **options: object) -> StepReplay:
    return StepReplay(capacity, num_envs, **SIMPLE, seed=0, **options)


class Chunks:
    """A source that hands its episodes out one by one."""

    def __init__(self, *parts: Episodes) -> None:
        self.parts = parts
        self.num_steps = sum(part.num_steps for part in parts)

    def chunks(self):
        yield from self.parts


def held(replay: StepReplay, draws: int = 600) -> dict[int, tuple[float, float, float]]:
    """Number of each step that is met -> what is said of it: sum of rewards, discount, observation reached."""
    fields = replay.gather(replay.draw((draws,)))
    rows = zip(
        fields["obs/policy"][:, 0].int().tolist(),
        fields["reward"].tolist(),
        fields["discount"].tolist(),
        fields["next_obs/policy"][:, 0].tolist(),
        strict=True,
    )
    return {number: tuple(rest) for number, *rest in rows}


class TestFilling:
    @pytest.mark.parametrize("parts", [(episodes(2, 3, terminated=False),), (episodes(2), episodes(3, first=2))])
    def test_one_stream_by_hand(self, parts):
        replay = simple(10, 1, gamma=0.5)
        assert fill_replay(replay, Chunks(*parts)) == 5
        found = held(replay)
        assert sorted(found) == [0, 1, 2, 3, 4]
        ended = bool(parts[0].variables["env/terminated"].any())
        for number in (0, 2, 3):
            assert found[number] == (10.0 * number, 0.5, number + 1)
        for number in (1, 4):
            reward, discount, reached = found[number]
            assert (reward, discount) == (10.0 * number, 0.0 if ended else 0.5)
            assert ended or reached == 1000 + number  # a time limit bootstraps from what it reached

    def test_steps_in_several_streams(self):
        # 7 steps in 2 streams: 0 1 2 and 3 4 5; step 6 is left out. Stream 0 stops inside an episode, after step 2
        replay = simple(10, 2, gamma=0.5)
        assert fill_replay(replay, episodes(2, 5, terminated=False)) == 6
        found = held(replay)
        assert sorted(found) == [0, 1, 2, 3, 4, 5]
        assert {number: reached for number, (_, _, reached) in found.items()} == {0: 1, 1: 1001, 2: 3, 3: 4, 4: 5, 5: 6}
        assert all(discount == 0.5 for _, discount, _ in found.values())

    def test_what_does_not_fill_a_row_waits_for_the_next_chunk(self):
        replay = simple(20, 3)
        parts = [episodes(2), episodes(2, first=2), episodes(1, first=4), episodes(5, first=5)]
        assert fill_replay(replay, Chunks(*parts)) == 9
        assert sorted(held(replay)) == list(range(9))

    def test_n_steps(self):
        # gamma 0.5, n 2: 0 + .5*10 = 5 reaches the end; 10 alone; 20 + .5*30; 30 + .5*40; 40 alone
        replay = simple(10, 1, gamma=0.5, n_step=2)
        fill_replay(replay, episodes(2, 3, terminated=False))
        assert held(replay) == {
            0: (5.0, 0.25, 1001.0),
            1: (10.0, 0.5, 1001.0),
            2: (35.0, 0.25, 4.0),
            3: (50.0, 0.25, 1004.0),
            4: (40.0, 0.5, 1004.0),
        }

    @pytest.mark.parametrize("num_envs", [1, 2])
    @pytest.mark.parametrize("n_step", [1, 3])
    def test_training_goes_on_behind_it(self, num_envs, n_step):
        world = World(num_envs, 3)
        before = Episodes.from_transitions(*recorded(World(1, 5), 24))
        replay = StepReplay(60, num_envs, GROUPS, ACTION, extras=EXTRAS, seed=0, n_step=n_step, gamma=0.9)
        added = fill_replay(replay, before)
        replay.add(world.advance(6))
        fields = replay.gather(replay.draw((800,)))
        played = fields["skill"] < 1000
        expected = world.transitions(30, n_step, 0.9)
        kept = {name: value[played] for name, value in fields.items()}
        assert check_transitions(kept, expected) == set(expected)
        assert len(set(fields["skill"][~played].tolist())) == added

    def test_environments_that_reset_in_a_row_of_their_own(self):
        replay = simple(10, 1, reset_rows=True)
        fill_replay(replay, episodes(2, 3, terminated=False))
        assert replay.size == 5
        assert held(replay)[1][2] == 1001

    def test_priorities(self):
        replay = PrioritisedReplay(10, 1, **SIMPLE, seed=0)
        fill_replay(replay, episodes(2, 3))
        assert int((replay.tree.weights > 0).sum()) == 5

    def test_limits(self):
        with pytest.raises(ValueError, match=r"has 5 steps and the replay holds 4; .*limit=4"):
            fill_replay(simple(4, 1), episodes(2, 3))
        replay = simple(4, 1)
        assert fill_replay(replay, Chunks(episodes(2), episodes(3, first=2)), limit=4) == 4
        assert sorted(held(replay)) == [0, 1, 2, 3]
        assert held(replay)[3][2] == 4
        assert fill_replay(simple(4, 4), episodes(3)) == 0

    def test_a_dataset_that_lacks_something(self):
        replay = StepReplay(10, 1, {"camera": ((2,), torch.float32)}, SIMPLE["action"])
        with pytest.raises(ValueError, match=r"no \['obs/camera', 'next_obs/camera'\]; it has"):
            fill_replay(replay, episodes(2))
        with pytest.raises(ValueError, match="'action'"):
            fill_replay(StepReplay(10, 1, SIMPLE["groups"], ((), torch.int64)), episodes(2))


def recorded(world: World, count: int) -> tuple[dict[str, torch.Tensor], list[int]]:
    """`count` steps of a world of one environment as flat transitions and lengths, marked by a skill of 1000 and on."""
    fields = world.advance(count).transitions()
    fields["skill"] = torch.arange(1000, 1000 + count)
    done = fields["terminated"] | fields["truncated"]
    done[-1] = True
    ends = done.nonzero().flatten() + 1
    return fields, ends.diff(prepend=torch.zeros(1, dtype=torch.int64)).tolist()


class TestDatasetReplay:
    def test_alone(self):
        replay = dataset_replay(episodes(2, 3), **SIMPLE, gamma=0.5, seed=0)
        assert (replay.size, replay.capacity, replay.num_envs) == (5, 5, 1)
        assert sorted(held(replay)) == [0, 1, 2, 3, 4]
        with pytest.raises(ValueError, match="say what the replay is to hold"):
            dataset_replay(episodes(2))

    @pytest.mark.parametrize("reset_rows", [False, True])
    def test_like_another(self, reset_rows):
        extras = {"skill": ((), torch.int64)}
        online = simple(20, 4, n_step=2, gamma=0.8, reset_rows=reset_rows, extras=extras)
        replay = dataset_replay(episodes(2, 3), like=online, seed=0)
        assert replay.variables == online.variables
        assert (replay.n_step, replay.gamma, replay.num_envs) == (2, 0.8, 1)
        MixedReplay(online, replay, 0.5)


def mixed(share: float = 0.25, prioritised: bool = False, **options: object) -> tuple[MixedReplay, World]:
    world = World(2, 1)
    common = {"extras": EXTRAS, "seed": 0, **options}
    online = (PrioritisedReplay if prioritised else StepReplay)(40, 2, GROUPS, ACTION, **common)
    online.add(world.advance(9))
    source = Episodes.from_transitions(*recorded(World(1, 5), 30))
    return MixedReplay(online, dataset_replay(source, like=online, seed=1), share), world


class TestMixing:
    @pytest.mark.parametrize("prioritised", [False, True])
    @pytest.mark.parametrize("n_step", [1, 3])
    @pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
    def test_a_fixed_share_of_every_batch(self, share, n_step, prioritised):
        replay, world = mixed(share, prioritised, n_step=n_step, gamma=0.9)
        expected = world.transitions(20, n_step, 0.9)
        other = World(1, 5)
        other.advance(30)
        other.restart()  # what the dataset holds ends there
        of_dataset = {
            number: {**want, "skill": 999 + number_of_step(other, number)}
            for number, want in other.transitions(30, n_step, 0.9).items()
        }
        for n in (1, 8, 30):
            batch = replay.batch(n)
            for out in (None, batch, batch):
                index = replay.draw((n,))
                fields = replay.gather(index, out)
                split = round(share * n)
                assert (fields["skill"] >= 1000).tolist() == [True] * split + [False] * (n - split)
                check_transitions({name: value[:split] for name, value in fields.items()}, of_dataset)
                check_transitions({name: value[split:] for name, value in fields.items()}, expected)
                assert ("weight" in fields) == prioritised
                assert out is None or fields is batch.fields

    def test_both_parts_are_uniform(self):
        replay, world = mixed(0.5)
        index = replay.draw((200, 64))
        numbers = index[:, :32].bitwise_not().flatten().bincount(minlength=30)
        assert (numbers - 6400 / 30).abs().max() < 5 * (6400 / 30) ** 0.5
        online = index[:, 32:].flatten().unique()
        assert len(online) == len(world.transitions(20, 1, 0.99))

    def test_priorities_count_for_the_online_part(self):
        replay, _ = mixed(0.5, prioritised=True, beta=1.0)
        online = replay.online
        first = online.slots(0, 1)[:1]
        everything = online.slots(0, 9)
        online.update_priorities(everything, torch.full((18,), 0.001))
        replay.set_beta(1.0)
        index = replay.draw((16,))
        index[8] = first
        error = torch.full((16,), 0.001)
        error[8] = 1e6
        replay.update_priorities(index, error)
        drawn = replay.draw((64,))
        assert (drawn[32:] == first).float().mean() > 0.9
        fields = replay.gather(drawn)
        assert_close(fields["weight"][:32], torch.ones(32))
        assert fields["weight"][32:].min() < 0.01
        tickets = replay.tickets((64,))
        located = replay.locate(tickets)
        assert torch.equal(located[:32], tickets[:32])
        assert (located[32:] == first).float().mean() > 0.9
        out = torch.empty_like(tickets)
        assert torch.equal(replay.locate(tickets, out=out), located)
        with pytest.raises(TypeError, match="PrioritisedReplay"):
            mixed(0.5)[0].update_priorities(index, error)

    def test_an_algorithm_cannot_tell(self):
        replay, world = mixed()
        public = {name for name in dir(StepReplay) if not name.startswith("_")} - {"bytes_needed"}
        for name in public:
            assert hasattr(replay, name), name
        size, version = replay.size, replay.version
        assert (replay.num_envs, replay.capacity, len(replay), replay.device.type) == (2, 40, size, "cpu")
        replay.add(world.advance(2))
        replay.cut()
        world.restart()
        assert replay.size == size + 4
        assert replay.version == version
        assert replay.to("cpu") is replay
        assert replay.version == version + 2
        check_transitions(replay.online.gather(replay.online.draw((50,))), world.transitions(20, 1, 0.99))
        out = torch.empty(3, 8, dtype=torch.int64)
        assert replay.draw((3, 8), out=out) is out
        with pytest.raises(ValueError, match="out is"):
            replay.draw((8,), out=out)
        with pytest.raises(AttributeError):
            _ = replay.nonsense

    def test_windows(self):
        replay, _ = mixed(0.25)
        ws = replay.sample(8, length=3)
        assert (ws.T, ws.B) == (3, 8)
        assert (ws["skill"] >= 1000).all(0).tolist() == [True] * 2 + [False] * 6
        for share, of_dataset in ((0.0, 0), (1.0, 8)):
            assert int((mixed(share)[0].sample(8)["skill"] >= 1000).sum()) == of_dataset

    def test_what_does_not_fit(self):
        online = simple(10, 1)
        with pytest.raises(ValueError, match="share is"):
            MixedReplay(online, dataset_replay(episodes(2), like=online), 1.5)
        with pytest.raises(ValueError, match="is empty"):
            MixedReplay(online, simple(10, 1), 0.5)
        for other, word in ((simple(10, 1, n_step=2), "n_step"), (simple(10, 1, gamma=0.1), "gamma")):
            with pytest.raises(ValueError, match=f"{word} is .*dataset_replay"):
                MixedReplay(online, other, 0.5)
        with pytest.raises(ValueError, match="action"):
            MixedReplay(online, StepReplay(10, 1, SIMPLE["groups"], ((), torch.int64)), 0.5)
        with pytest.raises(ValueError, match="no whole transition"):
            MixedReplay(online, dataset_replay(episodes(2), like=online), 0.5).draw((4,))


def number_of_step(world: World, number: int) -> int:
    """Which step, from 1 on, a world of one environment made from this observation."""
    return next(place for place, step in enumerate(world.streams[0].steps, 1) if step.obs == number)


class TestState:
    @pytest.mark.parametrize("prioritised", [False, True])
    @pytest.mark.parametrize("through", ["memory", "journal"])
    def test_a_restored_replay_goes_on_alike(self, through, prioritised, tmp_path):
        first, world = mixed(0.5, prioritised)
        second, _ = mixed(0.5, prioritised)
        first.draw((7,))
        first.add(world.advance(3))
        if through == "memory":
            second.load_state_dict(first.state_dict())
        else:
            save_state(tmp_path / "manifest", ReplayJournal(tmp_path / "replay").write(first), kind="manifest")
            ReplayJournal(tmp_path / "replay").read(second, load_state(tmp_path / "manifest", kind="manifest")[0])
        for _ in range(3):
            index = first.draw((20,))
            assert torch.equal(index, second.draw((20,)))
            assert torch.equal(first.gather(index)["obs/policy"], second.gather(index)["obs/policy"])
            ws = world.advance(2)
            first.add(ws)
            second.add(ws)

    def test_another_dataset_is_refused(self):
        state = mixed(0.5)[0].state_dict()
        with pytest.raises(ValueError, match=r"share 0\.5, this one 0\.25"):
            mixed(0.25)[0].load_state_dict(state)
        replay, _ = mixed(0.5)
        state["bookkeeping"]["dataset"]["size"] = 31
        with pytest.raises(ValueError, match="size 31, this one 30"):
            replay.load_state_dict(state)
        with pytest.raises(ValueError, match="dataset of share None"):
            replay.load_state_dict(replay.online.state_dict())
