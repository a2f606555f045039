"""Minari datasets, made with minari's own functions, read as episodes."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

from gaitway.data.episodes import DatasetError, load_episodes
from gaitway.data.minari_datasets import MinariEpisodes
from gaitway.data.mixing import dataset_replay
from gaitway.data.trajectories import Trajectories, TrajectoryWriter
from gaitway.envs.registry import make_env

minari = pytest.importorskip("minari")
pytest.importorskip("h5py")

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float64)
PUSH = spaces.Box(-1.0, 1.0, (1,), np.float32)


@pytest.fixture(autouse=True)
def datasets(tmp_path, monkeypatch):
    """The folder in which minari keeps datasets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def episode(length, first=0, terminated=True, truncated=False, observations=None, actions=None):
    """Observation k is `first + k`, one more than there are steps; the flags are those of the last step."""
    from minari.data_collector import EpisodeBuffer

    steps = first + np.arange(length)
    seen = first + np.arange(length + 1)
    ends = np.arange(length) == length - 1
    return EpisodeBuffer(
        observations=np.stack((seen, -seen), -1).astype(np.float64) if observations is None else observations,
        actions=steps[:, None].astype(np.float32) / 100 if actions is None else actions,
        rewards=list(10.0 * steps),
        terminations=list(ends & terminated),
        truncations=list(ends & truncated),
        infos={},
    )


def make(buffers, observation=BOX, action=PUSH, name="test/small-v0", **options):
    return minari.create_dataset_from_buffers(
        dataset_id=name,
        buffer=buffers,
        observation_space=observation,
        action_space=action,
        algorithm_name="none",
        code_permalink="none",
        author="nobody",
        author_email="nobody@example.org",
        **options,
    )


@pytest.mark.filterwarnings("ignore")
class TestReading:
    def test_flags_and_final_observations(self):
        make(
            [
                episode(2),
                episode(3, first=10, terminated=False, truncated=True),
                episode(2, first=20, terminated=False),
                episode(1, first=30, truncated=True),
            ]
        )
        source = MinariEpisodes("test/small-v0")
        assert (source.num_episodes, source.num_steps, len(source)) == (4, 8, 4)
        fields = load_episodes(source).transitions()
        assert fields["obs/policy"].dtype is torch.float32
        assert fields["obs/policy"][:, 0].tolist() == [0, 1, 10, 11, 12, 20, 21, 30]
        # the last observation of an episode is what its last step reached
        assert fields["next_obs/policy"][:, 0].tolist() == [1, 2, 11, 12, 13, 21, 22, 31]
        assert fields["terminated"].tolist() == [False, True, False, False, False, False, False, True]
        # an end with neither flag was cut off; of both, termination wins
        assert fields["truncated"].tolist() == [False, False, False, False, True, False, True, False]
        assert fields["reward"].tolist() == [0, 10, 100, 110, 120, 200, 210, 300]
        assert fields["action"][:, 0].tolist() == pytest.approx([0, 0.01, 0.1, 0.11, 0.12, 0.2, 0.21, 0.3])

    def test_flags_inside_an_episode_stay(self):
        # data of a task that goes on: a clock and a success on the way, neither of which moved the robot
        buffer = episode(4, terminated=False)
        buffer.truncations[0] = buffer.terminations[2] = True
        make([buffer])
        fields = load_episodes(MinariEpisodes("test/small-v0")).transitions()
        assert fields["truncated"].tolist() == [True, False, False, True]
        assert fields["terminated"].tolist() == [False, False, True, False]
        assert fields["next_obs/policy"][:, 0].tolist() == [1, 2, 3, 4]

    def test_by_folder_by_id_and_as_an_object(self, datasets):
        dataset = make([episode(2), episode(3, first=10)])
        folder = datasets / "test" / "small-v0"
        for source in ("test/small-v0", folder, str(folder), folder / "data", dataset):
            assert MinariEpisodes(source).num_steps == 5
        longer = dataset.filter_episodes(lambda each: len(each) > 2)
        assert load_episodes(MinariEpisodes(longer)).variables["env/reward"].tolist() == [100, 110, 120]

    def test_dict_observations_and_discrete_actions(self):
        space = spaces.Dict(
            {
                "joints": spaces.Box(-1, 1, (2,), np.float32),
                "camera": spaces.Box(0, 255, (2, 2, 3), np.uint8),
                "mode": spaces.Discrete(3),
                "nested": spaces.Dict({"goal": spaces.Box(-1, 1, (), np.float64)}),
            }
        )
        observations = {
            "joints": np.arange(6, dtype=np.float32).reshape(3, 2) / 10,
            "camera": np.arange(36, dtype=np.uint8).reshape(3, 2, 2, 3),
            "mode": np.array([0, 2, 1]),
            "nested": {"goal": np.array([0.25, 0.5, 0.75])},
        }
        make([episode(2, observations=observations, actions=np.array([4, 3]))], space, spaces.Discrete(2, start=3))
        source = MinariEpisodes("test/small-v0")
        # in the order of gymnasium's Dict, which sorts its keys
        assert sorted(source.spec.group_names) == ["camera", "joints", "mode", "nested/goal"]
        assert source.spec.group("mode").shape == (3,)
        fields = load_episodes(source).transitions()
        assert torch.equal(fields["obs/camera"], torch.arange(24, dtype=torch.uint8).view(2, 2, 2, 3))
        assert fields["next_obs/mode"].tolist() == [[0, 0, 1], [0, 1, 0]]
        assert fields["next_obs/nested/goal"].tolist() == [[0.5], [0.75]]
        assert fields["next_obs/joints"].tolist() == pytest.approx(np.array([[0.2, 0.3], [0.4, 0.5]]))
        assert fields["action"].tolist() == [4, 3]
        assert fields["action"].dtype is torch.int64
        assert (source.spec.action.kind, source.spec.action.start) == ("discrete", (3,))

    def test_chunks_hold_whole_episodes(self):
        make([episode(2), episode(3, first=10), episode(2, first=20), episode(4, first=30)])
        parts = [part.lengths for part in MinariEpisodes("test/small-v0", chunk_steps=4).chunks()]
        assert parts == [(2, 3), (2, 4)]
        assert [part.lengths for part in MinariEpisodes("test/small-v0").chunks()] == [(2, 3, 2, 4)]

    def test_into_a_replay_and_into_a_dataset_of_ours(self, datasets):
        make([episode(2, terminated=False, truncated=True), episode(3, first=10)])
        source = MinariEpisodes("test/small-v0")
        groups = {group.name: (group.shape, group.torch_dtype) for group in source.spec.groups}
        action = (source.spec.action.shape, source.spec.action.dtype)
        replay = dataset_replay(source, groups=groups, action=action, seed=0, gamma=0.5)
        fields = replay.gather(replay.draw((200,)))
        reached = dict(zip(fields["obs/policy"][:, 0].tolist(), fields["next_obs/policy"][:, 0].tolist(), strict=True))
        discount = dict(zip(fields["obs/policy"][:, 0].tolist(), fields["discount"].tolist(), strict=True))
        assert {number: reached[number] for number in (0, 1, 10, 11)} == {0: 1, 1: 2, 10: 11, 11: 12}
        assert discount == {0: 0.5, 1: 0.5, 10: 0.5, 11: 0.5, 12: 0.0}
        with TrajectoryWriter(datasets / "ours", source.spec) as writer:
            for chunk in source.chunks():
                writer.add_episodes(chunk)
        ours = Trajectories(datasets / "ours")
        assert ours.spec == source.spec
        for name, value in load_episodes(source).transitions().items():
            assert torch.equal(ours.transitions()[name], value)

    def test_the_contract_is_that_of_the_gymnasium_adapter(self):
        with make_env("gymnasium:CartPole-v1", num_envs=1) as env:
            spec = env.spec
        observation = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        buffer = episode(2, observations=np.zeros((3, 4), dtype=np.float32), actions=np.array([0, 1]))
        make([buffer], observation, spaces.Discrete(2), env="CartPole-v1")
        source = MinariEpisodes("test/small-v0")
        assert (source.spec.id, source.spec.groups, source.spec.action) == (spec.id, spec.groups, spec.action)
        assert source.spec.max_episode_steps == 500


@pytest.mark.filterwarnings("ignore")
class TestWhatIsRefused:
    def test_no_dataset(self, datasets):
        with pytest.raises(DatasetError, match=r"no Minari dataset 'test/none-v0' on this machine; .*minari download"):
            MinariEpisodes("test/none-v0")
        for folder in (datasets, datasets / "none"):
            with pytest.raises(DatasetError, match="check the path"):
                MinariEpisodes(folder)

    def test_damaged_files(self, datasets):
        make([episode(2)])
        data = datasets / "test" / "small-v0" / "data"
        content = (data / "main_data.hdf5").read_bytes()
        (data / "main_data.hdf5").write_bytes(content[: len(content) // 2])
        with pytest.raises(DatasetError, match=r"cannot be read .*copy or download it again") as caught:
            load_episodes(MinariEpisodes(data))
        assert "\n" not in str(caught.value)
        (data / "metadata.json").write_text("{")
        with pytest.raises(DatasetError, match="cannot be read"):
            MinariEpisodes(data)

    def test_an_episode_that_lacks_something(self, datasets):
        import h5py

        make([episode(2)])
        data = datasets / "test" / "small-v0" / "data"
        with h5py.File(data / "main_data.hdf5", "a") as file:
            del file["episode_0/rewards"]
        with pytest.raises(DatasetError, match="rewards"):
            load_episodes(MinariEpisodes(data))

    def test_another_version_of_minari(self, datasets):
        make([episode(2)])
        path = datasets / "test" / "small-v0" / "data" / "metadata.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"minari_version": "99.0"}))
        with pytest.raises(DatasetError, match=r"99\.0"):
            MinariEpisodes(path.parent)

    def test_spaces_without_tensors(self):
        buffer = episode(2, observations=["a", "b", "c"])
        make([buffer], spaces.Text(5))
        with pytest.raises(ValueError, match="Text space"):
            MinariEpisodes("test/small-v0")

    def test_without_minari_installed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "minari", None)
        with pytest.raises(ImportError, match=r"gaitway\[minari\]"):
            MinariEpisodes("test/small-v0")


def test_the_module_imports_minari_only_when_it_reads():
    code = "import sys, gaitway.data.minari_datasets; sys.exit('minari' in sys.modules or 'h5py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
