"""A dataset as a run refers to it: fingerprints, what does not fit, what is missing."""

import dataclasses

import pytest
import torch

from gaitway.data.dataset import DataConfig, Dataset, open_source
from gaitway.data.episodes import DatasetError, Episodes
from gaitway.data.trajectories import TrajectoryWriter
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

GROUP = ObservationGroup("policy", (Component("x", 2),), (2,))
SPEC = EnvSpec("test/world", (GROUP,), ActionSpec("continuous", ("push",), (-2.0,), (2.0,)), 0.02, 0)


def episodes(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    steps = sum(lengths)
    return Episodes(
        {
            "env/obs/policy": torch.randn(steps + len(lengths), 2, generator=generator),
            "action": torch.randn(steps, 1, generator=generator),
            "env/reward": torch.arange(steps, dtype=torch.float32),
            "env/terminated": torch.zeros(steps, dtype=torch.bool),
            "env/truncated": torch.zeros(steps, dtype=torch.bool),
        },
        lengths,
    )


def write(folder, *parts, spec=SPEC):
    with TrajectoryWriter(folder, spec) as writer:
        for part in parts:
            writer.add_episodes(part)
            writer.flush()
    return folder


def changed(found, name, row, value):
    variables = {key: tensor.clone() for key, tensor in found.variables.items()}
    variables[name][row] = value
    return Episodes(variables, found.lengths)


def test_what_it_holds(tmp_path):
    data = Dataset.open(write(tmp_path / "data", episodes(2, 3)))
    assert (data.num_steps, data.num_episodes) == (5, 2)
    assert data.mean_return == 5.0  # rewards 0 + 1 and 2 + 3 + 4
    assert data.spec == SPEC
    assert str(data) == (
        f"the dataset {tmp_path / 'data'}: 5 steps in 2 episodes, mean return 5, sha256 {data.sha256[:12]}"
    )
    assert Dataset.of(data) is data
    assert [chunk.num_steps for chunk in data.chunks()] == [5]


def test_the_fingerprint_does_not_depend_on_chunks_or_files(tmp_path):
    whole = episodes(2, 3, 4)
    one = Dataset.open(write(tmp_path / "one", whole))
    several = Dataset.open(write(tmp_path / "several", whole.select([0]), whole.select([1, 2])))
    assert len(list(several.chunks())) == 2
    assert one.sha256 == several.sha256 == Dataset(whole).sha256


@pytest.mark.parametrize("name", ["env/obs/policy", "action", "env/reward", "env/terminated"])
def test_the_fingerprint_tells_every_number(name):
    whole = episodes(2, 3)
    assert Dataset(whole).sha256 != Dataset(changed(whole, name, 0, 1)).sha256


def test_the_fingerprint_tells_where_episodes_end():
    whole = episodes(2, 3)
    # five steps and seven observations in both, and flags that are equal once the ends are marked
    truncated = torch.tensor([False, True, True, False, True])
    one = Episodes({**whole.variables, "env/truncated": truncated}, (2, 3))
    other = Episodes({**whole.variables, "env/truncated": truncated}, (3, 2))
    assert Dataset(one).sha256 != Dataset(other).sha256


def test_another_dataset_is_refused(tmp_path):
    found = write(tmp_path / "data", episodes(2, 3))
    sha256 = Dataset.open(found).sha256
    assert Dataset.open(found, sha256).sha256 == sha256
    other = write(tmp_path / "other", changed(episodes(2, 3), "action", 4, 0.5))
    with pytest.raises(DatasetError, match=rf"other has changed: its fingerprint is \w+ and .* {sha256[:12]}; restore"):
        Dataset.open(other, sha256)


def test_a_dataset_that_was_appended_to_ends_where_it_did(tmp_path):
    found = write(tmp_path / "data", episodes(2, 3), episodes(1, seed=2))
    before = Dataset.open(found)
    write(found, episodes(4, seed=1))
    again, now = Dataset.open(found, before.sha256), Dataset.open(found)
    assert (again.num_steps, again.num_episodes, again.mean_return) == (6, 3, before.mean_return)
    assert [chunk.num_steps for chunk in again.chunks()] == [5, 1]
    assert (now.num_steps, now.sha256 == before.sha256) == (10, False)


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(DatasetError, match="the dataset holds numbers that are not finite in 'env/reward'"):
        Dataset(changed(episodes(2), "env/reward", 1, float("nan")))


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (
            {"groups": (dataclasses.replace(GROUP, dtype="float64"),)},
            r"'policy' is \[2\] float32 there and \[2\] float64",
        ),
        ({"groups": (ObservationGroup("policy", (Component("x", 3),), (3,)),)}, r"is \[2\] float32 there and \[3\]"),
        ({"groups": (dataclasses.replace(GROUP, name="body"),)}, r"the observation 'body' is not there and"),
        ({"action": ActionSpec("continuous", ("push",), (-1.0,), (1.0,))}, r"1 numbers from \[-2.0\] to \[2.0\] there"),
        ({"action": ActionSpec("discrete", ("push",), choices=(3,))}, r"discrete of \[3\] choices from \[0\] here"),
    ],
)
def test_other_spaces_are_refused_in_one_sentence(changes, difference, tmp_path):
    data = Dataset.open(write(tmp_path / "data", episodes(2)))
    other = dataclasses.replace(SPEC, id="test/other", **changes)
    with pytest.raises(DatasetError, match=difference) as caught:
        data.check_fits(other, other.group_names)
    assert "(recorded in test/world) does not fit test/other: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_read_and_what_things_are_called_does_not_matter(tmp_path):
    data = Dataset.open(write(tmp_path / "data", episodes(2)))
    camera = ObservationGroup("camera", (Component("image"),), (4, 4), "uint8")
    named = ActionSpec("continuous", ("torque",), (-2.0,), (2.0,), unit="N m")
    data.check_fits(dataclasses.replace(SPEC, groups=(GROUP, camera), action=named), ["policy"])
    Dataset(episodes(2)).check_fits(dataclasses.replace(SPEC, groups=(camera,)), ["camera"])  # it does not say


def test_what_lies_at_a_path(tmp_path):
    missing = tmp_path / "nothing"
    with pytest.raises(DatasetError, match=rf"the dataset {missing} is missing; put it back, or record one by"):
        open_source(missing)
    (tmp_path / "other").mkdir()
    with pytest.raises(DatasetError, match="other holds no dataset; name a folder that"):
        open_source(tmp_path / "other")
    write(tmp_path / "empty")
    with pytest.raises(DatasetError, match="empty holds no episodes; record some first"):
        Dataset.open(tmp_path / "empty")


def test_a_minari_id_that_is_not_here(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(DatasetError, match="get it with `minari download D4RL/pen/human-v2`"):
        open_source("D4RL/pen/human-v2")


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none(share):
    with pytest.raises(ValueError, match="use a number from 0 to 1"):
        DataConfig(share=share)
