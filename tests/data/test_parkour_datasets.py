"""Trajectories of the parkour fork: what its recorder wrote comes back, and no pickle executes anything."""

import json
import os
import pickle

import numpy as np
import pytest
import torch

from gaitway.data.dataset import Dataset, open_source
from gaitway.data.episodes import DatasetError
from gaitway.data.parkour_datasets import ParkourEpisodes

META = {"env": "go1", "total_timesteps": 12, "rollout_storage_length": 4}


def rows(start, stop, ends=None, timeout=False, **more):
    """The steps of one file: numbers that say which step they are."""
    number = np.arange(start, stop, dtype=np.float32)
    done = np.zeros((stop - start, 1), np.uint8)
    cut = np.zeros(stop - start, bool)
    if ends is not None:
        done[ends - start], cut[ends - start] = 1, timeout
    return {
        "observations": np.stack((number, -number), 1),
        "privileged_observations": np.stack((number, number, number), 1),
        "actions": number[:, None].astype(np.float64) / 10,
        "rewards": number[:, None],
        "dones": done,
        "values": np.zeros((stop - start, 1), np.float32),
        "timeouts": cut,
    } | more


def write(folder, number, *parts, protocol=4):
    place = folder / f"trajectory_{number}"
    place.mkdir(parents=True)
    (folder / "metadata.json").write_text(json.dumps(META))
    start = 0
    for part in parts:
        stop = start + len(part["rewards"])
        (place / f"traj_{start:06d}_{stop:06d}.pickle").write_bytes(pickle.dumps(part, protocol))
        start = stop
    return folder


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_was_recorded_comes_back(tmp_path, protocol):
    write(tmp_path, 2, rows(0, 4), rows(4, 6, ends=5), protocol=protocol)  # terminated
    write(tmp_path, 10, rows(0, 4, ends=3, timeout=True), protocol=protocol)  # a time limit
    write(tmp_path, 3, rows(0, 3), protocol=protocol)  # under way when it ended
    (tmp_path / "trajectory_11").mkdir()  # empty
    data = ParkourEpisodes(tmp_path)
    found = list(data.chunks())
    assert [chunk.lengths for chunk in found] == [(6,), (2,), (3,)]  # by number; what is not known is left out
    assert (data.num_steps, data.num_episodes) == (11, 3)
    first = found[0].transitions()
    assert first["obs/policy"].tolist() == [[n, -n] for n in range(6)]
    assert first["next_obs/policy"][:, 0].tolist() == [1, 2, 3, 4, 5, 5]
    assert first["obs/critic"][:, 2].tolist() == list(range(6))
    assert torch.equal(first["action"][:, 0], torch.arange(6) / 10)
    assert first["reward"].tolist() == list(range(6))
    assert first["terminated"].tolist() == [False] * 5 + [True]
    assert first["action"].dtype is torch.float32
    last = found[2].transitions()  # of four steps the last is left out: what it reached is not known
    assert last["next_obs/policy"][:, 0].tolist() == [1, 2, 3]
    assert (last["terminated"].any().item(), last["truncated"].tolist()) == (False, [False, False, True])
    assert isinstance(open_source(tmp_path), ParkourEpisodes)
    assert Dataset.open(tmp_path).num_steps == 11


def test_observations_in_parts_and_a_stray_comma(tmp_path):
    image = (np.arange(8).reshape(2, 4) * 30).astype(np.uint8)
    part = rows(0, 2, ends=1, obs_image=image, obs_speed=np.array([[7.0], [8.0]]))
    part["privileged_observations"] = (part["privileged_observations"],)
    del part["observations"]
    write(tmp_path, 0, part)
    segments = {"obs_segments": {"speed": [1], "image": [1, 2, 2]}}
    packed = {"obs_disassemble_mapping": {"image": "normalized_image"}}
    (tmp_path / "metadata.json").write_text(json.dumps(META | segments | packed))
    found = next(ParkourEpisodes(tmp_path).chunks()).transitions()
    assert torch.allclose(found["obs/policy"][1], torch.tensor([8, 120 / 255, 150 / 255, 180 / 255, 210 / 255]))
    assert found["obs/critic"].shape == (2, 3)
    (tmp_path / "metadata.json").write_text(json.dumps(META))
    with pytest.raises(DatasetError, match=r"metadata\.json does not say in which order"):
        next(ParkourEpisodes(tmp_path).chunks())


class Hostile:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


class TestHostile:
    @pytest.mark.parametrize(
        "thing",
        [
            Hostile(os.system, "touch pwned"),
            Hostile(eval, "__import__('os').system('touch pwned')"),
            Hostile(getattr, "text", "format"),
            Hostile(np.load, "x.npy"),
            Hostile(np.fromfile, "x"),
            torch.zeros(2),
        ],
        ids=["system", "eval", "getattr", "np.load", "np.fromfile", "tensor"],
    )
    @pytest.mark.parametrize("protocol", [2, 4])
    def test_nothing_is_executed(self, tmp_path, monkeypatch, thing, protocol):
        monkeypatch.chdir(tmp_path)
        write(tmp_path, 0, rows(0, 2, ends=1, extra=thing), protocol=protocol)
        with pytest.raises(DatasetError, match=r"holds a \S+, and only numbers, texts and plain containers are read"):
            list(ParkourEpisodes(tmp_path).chunks())
        assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.json", "trajectory_0"]

    def test_arrays_of_objects(self, tmp_path):
        write(tmp_path, 0, rows(0, 2, ends=1, extra=np.array([Hostile(os.getcwd), 1], dtype=object)))
        with pytest.raises(DatasetError, match=r"array of type 'O8'|holds a posix\.getcwd|holds a nt\.getcwd"):
            list(ParkourEpisodes(tmp_path).chunks())

    def test_damage_is_a_sentence(self, tmp_path):
        write(tmp_path, 0, rows(0, 4, ends=3))
        path = tmp_path / "trajectory_0" / "traj_000000_000004.pickle"
        content = path.read_bytes()
        for cut in (0, 20, len(content) // 2, len(content) - 2):
            path.write_bytes(content[:cut])
            with pytest.raises(DatasetError, match=r"traj_000000_000004"):
                list(ParkourEpisodes(tmp_path).chunks())
        path.rename(path.with_name("traj_000002_000006.pickle"))
        with pytest.raises(DatasetError, match="lacks the steps 0 to 2"):
            list(ParkourEpisodes(tmp_path).chunks())

    def test_a_shape_that_lies(self, tmp_path):
        part = pickle.dumps(rows(0, 2, ends=1), 4)
        lie = part.replace(b"K\x02K\x03\x86", b"K\x02K\x04\x86")  # the shape (2, 3) as (2, 4)
        assert lie != part
        write(tmp_path, 0, rows(0, 2, ends=1))
        (tmp_path / "trajectory_0" / "traj_000000_000002.pickle").write_bytes(lie)
        with pytest.raises(DatasetError, match=r"array \[2, 4\] of 24 bytes; it is damaged"):
            list(ParkourEpisodes(tmp_path).chunks())

    def test_other_folders(self, tmp_path):
        (tmp_path / "metadata.json").write_text("[]")
        with pytest.raises(DatasetError, match="is no mapping"):
            ParkourEpisodes(tmp_path)
        (tmp_path / "metadata.json").write_text("{}")
        with pytest.raises(DatasetError, match="holds no trajectory_<k>"):
            ParkourEpisodes(tmp_path)
