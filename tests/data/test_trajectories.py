"""Trajectories: what is recorded comes back, a killed writer loses nothing, damage is one sentence."""

import dataclasses
import math
import shutil

import pytest
import torch
from step_model import ACTION, EXTRAS, World, observation
from torch.testing import assert_close

from gaitway.core.files import StateFileError
from gaitway.core.workspace import Workspace
from gaitway.data import trajectories
from gaitway.data.episodes import DatasetError, load_episodes
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

SPEC = EnvSpec(
    id="test/world",
    groups=(
        ObservationGroup("policy", (Component("number"), Component("minus")), (2,)),
        ObservationGroup("image", (Component("image", 1),), (3, 1), "uint8"),
    ),
    action=ActionSpec("continuous", ("left", "right"), (-math.inf, -1.0), (math.inf, 1.0)),
    control_dt=0.02,
    max_episode_steps=0,
)
assert (SPEC.action.shape, SPEC.action.dtype) == ACTION


def recorded(world: World) -> list[list[dict[str, object]]]:
    """Every episode the world played, complete or not, by the number of its first observation."""
    found = []
    for stream in world.streams:
        episode: list[dict[str, object]] = []
        for step in (each for each in stream.steps if each.valid):
            episode.append(vars(step))
            if step.terminated or step.truncated:
                found.append(episode)
                episode = []
        if episode:
            found.append(episode)
    return sorted(found, key=lambda steps: steps[0]["obs"])


def read(folder: object) -> list[list[dict[str, object]]]:
    """The same from disk."""
    dataset = Trajectories(folder)
    found = []
    for chunk in dataset.chunks():
        first = 0
        fields = chunk.transitions()
        for length in chunk.lengths:
            found.append(
                [
                    {
                        "obs": int(fields["obs/policy"][row, 0]),
                        "action": fields["action"][row].tolist(),
                        "reward": fields["reward"][row].item(),
                        "terminated": fields["terminated"][row].item(),
                        "truncated": fields["truncated"][row].item(),
                        "reached": int(fields["next_obs/policy"][row, 0]),
                        "skill": fields["skill"][row].item(),
                        "valid": True,
                    }
                    for row in range(first, first + length)
                ]
            )
            first += length
    return sorted(found, key=lambda steps: steps[0]["obs"])


def assert_same(found: list, expected: list) -> None:
    for episode in expected:  # whoever was under way is cut off at the end
        last = episode[-1]
        last["truncated"] = last["truncated"] or not last["terminated"]
        for step in episode:
            step["action"] = torch.tensor(step["action"]).tolist()  # what float32 can hold
            del step["phase"]  # what is not recorded
    assert found == expected


class TestRecording:
    @pytest.mark.parametrize("reset_rows", [False, True])
    def test_what_was_played_comes_back(self, reset_rows, tmp_path):
        world = World(3, 1, reset_rows)
        with TrajectoryWriter(tmp_path / "data", SPEC, extras=EXTRAS, chunk_steps=20) as writer:
            for count in (1, 7, 3, 30, 2):
                writer.add(world.advance(count))
        dataset = Trajectories(tmp_path / "data")
        expected = recorded(world)
        assert_same(read(tmp_path / "data"), expected)
        assert (dataset.num_episodes, len(dataset)) == (len(expected), len(expected))
        assert dataset.num_steps == sum(len(episode) for episode in expected)
        assert len(list((tmp_path / "data").iterdir())) >= 3  # several chunks and the index

    def test_images_and_final_observations(self, tmp_path):
        world = World(2, 5)
        with TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS) as writer:
            writer.add(world.advance(20))
        fields = Trajectories(tmp_path).transitions()
        reached = {step.obs: step.reached for stream in world.streams for step in stream.steps}
        assert fields["obs/image"].dtype is torch.uint8
        for row, number in enumerate(fields["obs/policy"][:, 0].int().tolist()):
            assert torch.equal(fields["obs/image"][row], observation(number)["image"])
            assert torch.equal(fields["next_obs/image"][row], observation(reached[number])["image"])

    def test_an_interruption(self, tmp_path):
        world = World(2, 2, ends=0.05)
        with TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS) as writer:
            writer.add(world.advance(9))
            writer.cut()
            world.restart()
            writer.add(world.advance(9))
        assert_same(read(tmp_path), recorded(world))

    def test_appending_later(self, tmp_path):
        world = World(2, 3)
        for _ in range(3):
            with TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS, description="a test") as writer:
                writer.add(world.advance(10))
            world.restart()
        dataset = Trajectories(tmp_path)
        assert_same(read(tmp_path), recorded(world))
        assert dataset.description == "a test"
        assert dataset.spec == SPEC  # infinite limits included
        assert dataset.extras == EXTRAS

    def test_whole_episodes_go_from_dataset_to_dataset(self, tmp_path):
        world = World(2, 3)
        with TrajectoryWriter(tmp_path / "one", SPEC, extras=EXTRAS, chunk_steps=5) as writer:
            writer.add(world.advance(30))
        with TrajectoryWriter(tmp_path / "two", SPEC, extras=EXTRAS) as writer:
            for chunk in Trajectories(tmp_path / "one").chunks():
                writer.add_episodes(chunk)
        assert read(tmp_path / "one") == read(tmp_path / "two")
        assert len(list(Trajectories(tmp_path / "two").chunks())) == 1

    def test_copies_are_detached(self, tmp_path):
        ws = World(1, 0).advance(2)
        ws["action"] = torch.zeros(2, 1, 2, requires_grad=True)
        with TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS) as writer:
            writer.add(ws)
        assert Trajectories(tmp_path).num_steps == 2

    def test_other_spaces_are_refused(self, tmp_path):
        TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS).close()
        other = dataclasses.replace(SPEC, action=ActionSpec("discrete", ("go",), choices=(3,)))
        with pytest.raises(DatasetError, match=r"recorded with other action .*choose another folder"):
            TrajectoryWriter(tmp_path, other, extras=EXTRAS)
        with pytest.raises(DatasetError, match="other groups"):
            TrajectoryWriter(tmp_path, dataclasses.replace(SPEC, groups=SPEC.groups[:1]), extras=EXTRAS)
        with pytest.raises(DatasetError, match=r"keeps the extra variables \['skill'\]"):
            TrajectoryWriter(tmp_path, SPEC)
        writer = TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS)
        ws = World(1, 0).advance(3)
        ws["action"] = torch.zeros(3, 1, 2, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"'action' is \[2\] torch\.float64 per step; the contract says"):
            writer.add(ws)
        writer.add(World(1, 0, ends=0).advance(3))
        with pytest.raises(ValueError, match=r"had 1 environments, this one 2; call cut\(\)"):
            writer.add(World(2, 0).advance(3))
        missing = Workspace(World(1, 0).advance(3))
        missing.remove("skill")
        with pytest.raises(KeyError, match="skill"):
            writer.add(missing)

    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(DatasetError, match="choose an empty folder"):
            TrajectoryWriter(tmp_path, SPEC)

    def test_a_state_without_final_observations_is_refused(self, tmp_path):
        ws = World(1, 0, ends=0.9).advance(5)
        plain = Workspace.packed({name: ws[name] for name in ws if "final" not in name})
        with pytest.raises(ValueError, match="env/final_obs/policy"):
            TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS).add(plain)


class TestReading:
    def test_episodes_side_by_side(self, tmp_path):
        world = World(2, 1)
        with TrajectoryWriter(tmp_path, SPEC, extras=EXTRAS, chunk_steps=10) as writer:
            for _ in range(6):
                writer.add(world.advance(10))
        dataset = Trajectories(tmp_path)
        whole = load_episodes(dataset)
        assert len(list(dataset.chunks())) > 2
        chosen = [dataset.num_episodes - 1, 0, 5, 0]
        ws, expected = dataset.episodes(chosen), whole.select(chosen).workspace()
        for name in expected:
            assert torch.equal(ws[name], expected[name]), name
        assert dataset.num_episodes == dataset.episodes().B
        assert_close(dataset.transitions()["reward"], whole.variables["env/reward"])
        for wrong in (-1, dataset.num_episodes):
            with pytest.raises(IndexError, match="there is no episode"):
                dataset.episodes([wrong])
        with pytest.raises(ValueError, match="no episodes are asked for"):
            dataset.episodes([])

    def test_an_empty_dataset(self, tmp_path):
        TrajectoryWriter(tmp_path, SPEC).close()
        dataset = Trajectories(tmp_path)
        assert (dataset.num_steps, dataset.num_episodes) == (0, 0)
        with pytest.raises(ValueError, match="record some first"):
            dataset.transitions()


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "data"
    world = World(2, 1)
    with TrajectoryWriter(folder, SPEC, extras=EXTRAS, chunk_steps=10) as writer:
        for _ in range(4):
            writer.add(world.advance(10))
    return folder


class TestDamage:
    def damaged(self, folder, act, *words):
        with pytest.raises(DatasetError) as caught:
            act()
        message = str(caught.value)
        assert "\n" not in message
        assert str(folder) in message
        for word in words:
            assert word in message
        assert "checkpoint" not in message

    def test_no_dataset(self, tmp_path):
        self.damaged(tmp_path, lambda: Trajectories(tmp_path / "nothing"), "holds no dataset", "check the path")

    def test_a_byte_that_changed(self, dataset):
        path = dataset / "000001" / "state.safetensors"
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(bytes(content))
        self.damaged(dataset, lambda: list(Trajectories(dataset).chunks()), "000001", "was changed", "copy it again")
        assert len(next(Trajectories(dataset).chunks())) > 0  # the others can be read

    def test_files_that_are_gone_or_cut(self, dataset):
        path = dataset / "000001" / "state.safetensors"
        path.write_bytes(path.read_bytes()[:-10])
        self.damaged(dataset, lambda: list(Trajectories(dataset).chunks()), "bytes instead of")
        shutil.rmtree(dataset / "000001")
        self.damaged(dataset, lambda: list(Trajectories(dataset).chunks()), "000001", "state.json is missing")

    def test_an_index_that_changed(self, dataset):
        path = dataset / "index" / "state.json"
        path.write_text(path.read_text().replace("test/world", "test/other"))
        self.damaged(dataset, lambda: Trajectories(dataset), "state.json was changed")
        path.write_text("{")
        self.damaged(dataset, lambda: Trajectories(dataset), "not JSON")

    def test_a_chunk_of_another_dataset(self, dataset):
        shutil.rmtree(dataset / "000001")
        shutil.copytree(dataset / "000000", dataset / "000001")
        self.damaged(dataset, lambda: list(Trajectories(dataset).chunks()), "other episodes than the index says")

    def test_a_later_format(self, dataset, monkeypatch):
        monkeypatch.setattr(trajectories, "FORMAT", 1)
        self.damaged(dataset, lambda: Trajectories(dataset), "format 2", "upgrade gaitway")

    def test_a_writer_that_is_killed_loses_no_earlier_chunk(self, dataset, monkeypatch):
        before = read(dataset)
        save = trajectories.save_state

        def killed(folder, *arguments, **options):
            if folder.name == "index":
                raise KeyboardInterrupt
            save(folder, *arguments, **options)

        writer = TrajectoryWriter(dataset, SPEC, extras=EXTRAS)
        world = World(1, 9)
        writer.add(world.advance(20))
        monkeypatch.setattr(trajectories, "save_state", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.close()
        assert read(dataset) == before  # the chunk that nobody lists is not read
        monkeypatch.undo()
        with TrajectoryWriter(dataset, SPEC, extras=EXTRAS) as again:
            again.add(world.advance(5))
        assert len(read(dataset)) > len(before)

    def test_errors_are_those_of_files_too(self, tmp_path):
        with pytest.raises(StateFileError):
            Trajectories(tmp_path)
