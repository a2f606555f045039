"""What `ToyEnv` says about states and scenarios that are not its own; the toys themselves are tested beside them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gaitway.envs.tasks.toys import TOYS
from gaitway.envs.toy_env import ToyEnv


@pytest.fixture
def env() -> ToyEnv:
    return ToyEnv(TOYS["toy/cue"](), 2, id="toy/cue")


@pytest.mark.parametrize("fields", [{}, {"qpos": torch.zeros(2, 1)}])
def test_scenarios_name_their_fields(env: ToyEnv, fields: dict[str, Any]) -> None:
    before = env.scenario()
    with pytest.raises(KeyError, match=r"a scenario of toy/cue has the fields \['state'\]; got"):
        env.load_scenario(fields)
    with pytest.raises(KeyError, match="got"):
        env.load_scenario({**before, "speed": torch.zeros(2)})
    assert torch.equal(env.scenario()["state"], before["state"])


def test_states_name_their_entries(env: ToyEnv) -> None:
    with pytest.raises(ValueError, match=r"has the entries \['state', 'elapsed', 'entropy', 'episode'\]; got \[\]"):
        env.load_state_dict({})
    state = env.state_dict()
    assert env.load_state_dict(state)["policy"].shape == (2, 2)
    del state["episode"]
    with pytest.raises(ValueError, match=r"got \['state', 'elapsed', 'entropy'\]"):
        env.load_state_dict(state)
