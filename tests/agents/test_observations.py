"""Observation groups: which a network reads, and how they become its input."""

import pytest
import torch

from gaitway.agents.observations import GroupNormalisers, Observations, default_groups, input_size
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup


def spec(*groups):
    made = tuple(ObservationGroup(name, (Component("x", size),), (size,), dtype) for name, size, dtype in groups)
    action = ActionSpec("continuous", ("a",), (-1.0,), (1.0,))
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


def floats(*groups):
    return spec(*((name, size, "float32") for name, size in groups))


def test_default_groups():
    plain, rich = floats(("policy", 3)), floats(("policy", 3), ("critic", 5), ("extra", 2))
    loose = floats(("pos", 2), ("vel", 1))
    none = Observations()
    assert default_groups(plain, "actor", none) == default_groups(plain, "critic", none) == ("policy",)
    assert default_groups(rich, "actor", none) == ("policy",)
    assert default_groups(rich, "critic", none) == ("critic",)
    assert default_groups(loose, "actor", none) == default_groups(loose, "critic", none) == ("pos", "vel")
    chosen = Observations(actor=("extra", "policy"))
    assert default_groups(rich, "actor", chosen) == ("extra", "policy")
    image = EnvSpec(
        "test",
        (ObservationGroup("camera", (Component("pixels", 64),), (1, 8, 8), "uint8"),),
        plain.action,
        control_dt=0.02,
        max_episode_steps=10,
    )
    with pytest.raises(ValueError, match="networks read vectors, so let a block"):
        default_groups(image, "actor", Observations(actor=("camera",)))


def test_groups_are_normalised_concatenated_and_counted_each_row_once():
    made = spec(("a", 1, "float32"), ("b", 2, "float64"), ("count", 1, "int64"))
    normalisers = GroupNormalisers(made, ("a", "b", "count"), clip=10.0)
    assert set(normalisers) == {"group:a", "group:b"}  # integers pass as they are
    assert input_size(made, ("b", "count")) == 3
    ws = Workspace()
    for t in range(3):
        ws.put("env/obs/a", t, torch.tensor([[float(t)], [float(t + 2)]]))
        ws.put("env/obs/b", t, torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
        ws.put("env/obs/count", t, torch.tensor([[7], [8]]))
        if t < 2:
            ws.put("env/reward", t, torch.zeros(2))
    normalisers.count(ws, ("a", "b", "count"))  # rows 0 and 1; row 2 opens the next rollout
    assert int(normalisers["group:a"].count) == 4
    obs = {"a": torch.tensor([[2.5]]), "b": torch.tensor([[2.0, 3.0]]).double(), "count": torch.tensor([[7]])}
    # a is 0, 2, 1, 3: mean 1.5, std sqrt(1.25); b has the means 2 and 3
    expected = [[1.0 / (1.25**0.5 + 1e-2), 0.0, 0.0, 7.0]]
    assert normalisers.inputs(obs, ("a", "b", "count")) == pytest.approx(torch.tensor(expected))
    assert normalisers.inputs(obs, ("a", "b", "count")).dtype == torch.float32


def test_without_normalisers_a_single_group_is_not_even_copied():
    made = floats(("a", 2), ("b", 1))
    normalisers = GroupNormalisers(made, (), clip=10.0)
    obs = {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([[3.0]])}
    assert normalisers.inputs(obs, ("a",)) is obs["a"]
    assert normalisers.inputs(obs, ("b", "a")).tolist() == [[3.0, 1.0, 2.0]]
