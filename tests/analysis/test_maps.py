"""Maps: every point where it belongs, in the array and in the picture; nothing random, nothing modified."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib as mpl
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from matplotlib.colors import to_hex, to_rgb
from PIL import Image
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.deterministic_actor_critic import DeterministicActorCritic
from gaitway.agents.observations import Observations
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.soft_actor_critic import SoftActorCritic
from gaitway.agents.value_policy import ValuePolicy
from gaitway.analysis.figures import distinct_colours, finish, new_figure
from gaitway.analysis.maps import action_value_map, critic_map, policy_map
from gaitway.analysis.plane import Plane
from gaitway.analysis.plots import COLOURS
from gaitway.analysis.policy_functions import agent_function
from gaitway.core.agent import Agent
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

SQUARE = Plane.of(2, bounds={0: (-1.0, 1.0), 1: (0.0, 4.0)}, definition=5)


def spec_of(kind: str = "continuous", groups: dict[str, int] | None = None, unit: str = "") -> EnvSpec:
    parts = tuple(
        ObservationGroup(name, tuple(Component(f"{name}{i}", 1, "rad") for i in range(size)), (size,))
        for name, size in (groups or {"policy": 3}).items()
    )
    if kind == "continuous":
        action = ActionSpec("continuous", ("hip", "knee"), (-2.0, -1.0), (2.0, 1.0), unit=unit)
    else:
        action = ActionSpec("discrete", ("choice",), choices=(3,))
    return EnvSpec("toy/Map", parts, action, 0.0, 100)


def test_the_grid_includes_both_ends_and_runs_over_y_first() -> None:
    observations = Plane.of(3, 2, 0, bounds={2: (0.0, 1.0), 0: (5.0, 7.0)}, reference=[9, 8, 9], definition=3)
    assert observations.observations().tolist() == [
        [5.0, 8.0, 0.0], [6.0, 8.0, 0.0], [7.0, 8.0, 0.0],
        [5.0, 8.0, 0.5], [6.0, 8.0, 0.5], [7.0, 8.0, 0.5],
        [5.0, 8.0, 1.0], [6.0, 8.0, 1.0], [7.0, 8.0, 1.0],
    ]  # fmt: skip


def test_limits_come_from_bounds_then_space_then_data_then_three() -> None:
    infinite = math.inf
    space = Box(np.array([-1, -infinite, 0, -1e7], np.float32), np.array([2, infinite, infinite, 1e7], np.float32))
    data = np.array([[[9.0, -5.0, 0.5, 1.0]], [[9.0, 6.0, 4.0, math.nan]]])  # [T, B, D]
    without = [Plane.of(space, i, (i + 1) % 4).x_limits for i in range(4)]
    assert without == [(-1.0, 2.0), (-3.0, 3.0), (0.0, 3.0), (-3.0, 3.0)]
    with_data = [Plane.of(space, i, (i + 1) % 4, data=data).x_limits for i in range(4)]
    assert with_data == [(-1.0, 2.0), (-5.0, 6.0), (0.0, 4.0), (0.0, 2.0)]  # one known value: 1 to each side
    assert Plane.of(space, 0, 1, data=torch.from_numpy(data), bounds={1: (0, 1)}).y_limits == (0.0, 1.0)
    assert Plane.of(Box(5.0, infinite, (2,))).x_limits == (5.0, 11.0)
    assert Plane.of(Box(-infinite, -4.0, (2,))).x_limits == (-10.0, -4.0)
    ws = Workspace.packed({"env/obs/policy": torch.tensor([[[1.0, 2.0]], [[3.0, 5.0]]])})
    assert Plane.of(2, data=ws).y_limits == (2.0, 5.0)
    ws = Workspace.packed({"env/obs/pos": torch.zeros(2, 1, 1), "env/obs/vel": torch.tensor([[[1.0]], [[4.0]]])})
    assert Plane.of(2, data=ws).y_limits == (1.0, 4.0)


def test_other_dimensions_stay_at_the_reference_and_that_is_allowed_by_the_space() -> None:
    space = Box(np.array([-1, -1, 4, -9], np.float32), np.array([1, 1, 6, -8], np.float32))
    assert Plane.of(space).reference == (0.0, 0.0, 4.0, -8.0)
    assert Plane.of(space, reference={3: -8.5}).reference == (0.0, 0.0, 4.0, -8.5)
    assert Plane.of(space, reference=torch.arange(4.0)).reference == (0.0, 1.0, 2.0, 3.0)
    first, second = (Plane.of(6, 4, 5).observations() for _ in range(2))
    assert torch.equal(first, second)
    assert first[:, :4].eq(0).all()


def test_dimensions_may_be_called_by_their_names_and_carry_their_units() -> None:
    spec = spec_of(groups={"policy": 3, "critic": 2})
    plane = Plane.of(spec, "policy2", "policy0", reference={"policy1": 0.25})
    assert (plane.x, plane.y, plane.x_label, plane.y_label) == (2, 0, "policy2 [rad]", "policy0 [rad]")
    assert plane.elsewhere() == "at policy1 = 0.25"
    assert Plane.of(spec, group="critic").size == 2
    assert Plane.of(spec, group=["critic", "policy"]).names[:3] == ("critic0 [rad]", "critic1 [rad]", "policy0 [rad]")
    assert Plane.of(spec_of(groups={"pos": 2, "vel": 1}), 0, 2).y_label == "vel0 [rad]"  # without `policy`: all
    group = ObservationGroup("policy", (Component("position", 1, "m"), Component("speed", 2, "m/s")), (3,))
    env = EnvSpec("toy/Map", (group,), spec.action, 0.0, 100)
    assert Plane.of(env, "position", "speed 1").y_label == "speed 1 [m/s]"
    assert Plane.of(5).elsewhere() == "other dimensions at 0"
    assert Plane.of(5, reference=[0, 0, 1, 0, 2]).elsewhere() == "at observation[2] = 1, observation[4] = 2, others = 0"


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1,), {}, "there is no dimension 1; the observation has 0 to 0"),
        ((3, 0, 0), {}, "use two different ones from 0 to 2"),
        ((3, 0, 3), {}, "there is no dimension 3; the observation has 0 to 2"),
        ((3, "knee"), {}, "there is no dimension 'knee'"),
        ((3,), {"bounds": {0: (1.0, 1.0)}}, "the limits are 1.0 and 1.0"),
        ((3,), {"bounds": {0: (0.0, math.inf)}}, "use two finite numbers"),
        ((3,), {"definition": 1}, "at least 2 points per axis"),
        ((3,), {"reference": [0.0, 0.0]}, r"must be one observation \[3\]"),
        ((3,), {"reference": [0.0, 0.0, math.nan]}, "3 finite numbers"),
        ((3,), {"data": np.zeros((4, 2))}, r"data is \[4, 2\]; it must be observations \[..., 3\]"),
        ((Box(0, 1, (2, 2)),), {}, "needs an observation that is one vector"),
        ((gymnasium.spaces.Discrete(3),), {}, "needs an observation that is one vector"),
        ((spec_of(groups={"a": 2, "b": 2}),), {"group": "c"}, r"has no vector group 'c'; it has \['a', 'b'\]"),
        (
            (2,),
            {"data": Workspace.packed({"x": torch.zeros(1, 1)})},
            "the workspace has no observations env/obs/<group>",
        ),
    ],
)
def test_wrong_planes_are_refused_with_the_remedy(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plane.of(*arguments, **options)


def test_bug_77_the_space_of_the_environment_is_never_modified() -> None:
    env = gymnasium.make("CartPole-v1")
    space = env.observation_space
    space.low[1], space.high[1] = -np.inf, np.inf
    before = space.low.copy(), space.high.copy()
    plane = Plane.of(env, 0, 1)
    policy_map(lambda obs: obs[:, :1], plane)
    critic_map(lambda obs: obs[:, 0], plane)
    assert np.array_equal(space.low, before[0])
    assert np.array_equal(space.high, before[1])
    assert plane.y_limits == (-3.0, 3.0)
    env.close()


def pixel(figure: Any, x: float, y: float) -> tuple[int, int, int]:
    """The colour of a drawn figure at a point in data coordinates of its first axes."""
    figure.canvas.draw()
    column, row = figure.axes[0].transData.transform((x, y))
    image = np.asarray(figure.canvas.buffer_rgba())
    return tuple(image[len(image) - 1 - int(row), int(column), :3].tolist())


def close(colour: tuple[int, int, int], expected: Any) -> bool:
    return max(abs(a - 255 * b) for a, b in zip(colour, to_rgb(expected), strict=True)) < 12


def test_bug_78_x_runs_right_and_y_runs_up() -> None:
    seen: list[Tensor] = []

    def value(observations: Tensor) -> Tensor:
        seen.append(observations)
        return observations[:, 0] + 10.0 * observations[:, 1]

    portrait, figure = critic_map(value, SQUARE)
    x, y = np.linspace(-1, 1, 5), np.linspace(0, 4, 5)
    assert np.array_equal(portrait, x[:, None] + 10.0 * y[None, :])  # [i, j] is the value at (x_i, y_j)
    assert portrait[4, 0] == 1.0
    assert portrait[0, 4] == 39.0
    scale = mpl.colormaps["viridis"]
    assert close(pixel(figure, -0.9, 3.9), scale((39.0 + 1.0) / 42.0))  # upper left: y is high
    assert close(pixel(figure, 0.9, 0.1), scale((1.0 + 1.0) / 42.0))  # lower right: y is low
    assert close(pixel(figure, 0.0, 2.0), scale((20.0 + 1.0) / 42.0))
    axes = figure.axes[0]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-1.0, 1.0), (0.0, 4.0))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("observation[0]", "observation[1]")
    assert figure.axes[1].get_ylabel() == "value"
    assert seen[0].shape == (25, 2)


def test_bug_79_every_action_dimension_has_its_panel_and_the_folder_stays(tmp_path: Path) -> None:
    def policy(observations: Tensor) -> Tensor:
        return torch.stack([observations[:, 0], 2.0 * observations[:, 1]], -1)

    for number in range(2):
        portrait, figure = policy_map(policy, SQUARE, path=tmp_path / "maps" / f"{number}.png")
    assert portrait.shape == (5, 5, 2)
    assert np.array_equal(portrait[:, 0, 0], np.linspace(-1, 1, 5))
    assert np.array_equal(portrait[0, :, 1], np.linspace(0, 8, 5))
    assert [axes.get_ylabel() for axes in figure.axes[1::2]] == ["action 0", "action 1"]  # the colour bars
    drawn = [axes.images[0].get_array() for axes in figure.axes[::2]]
    assert np.array_equal(drawn[0], portrait[..., 0].T)
    assert np.array_equal(drawn[1], portrait[..., 1].T)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "maps",
        "maps/0.png",
        "maps/1.png",
    ]
    only, figure = policy_map(policy, SQUARE, actions=[1], names=["hip", "knee"])
    assert np.array_equal(only[..., 0], portrait[..., 1])
    assert [axes.get_ylabel() for axes in figure.axes[1:]] == ["knee"]
    with pytest.raises(IndexError, match="no action dimension 2; the policy has 2"):
        policy_map(policy, SQUARE, actions=[2])
    with pytest.raises(ValueError, match="1 names for 2 action dimensions"):
        policy_map(policy, SQUARE, names=["hip"])
    with pytest.raises(ValueError, match=r"the policy gives \[1, 2\] for 25 observations"):
        policy_map(lambda obs: policy(obs)[:1], SQUARE)


def test_actions_around_zero_are_white_at_zero() -> None:
    _, figure = policy_map(lambda obs: obs[:, 0], SQUARE)
    assert close(pixel(figure, 0.0, 2.0), "#f7f6f6")
    image = figure.axes[0].images[0]
    assert (image.norm.vmin, image.norm.vcenter, image.norm.vmax) == (-1.0, 0.0, 1.0)
    _, figure = policy_map(lambda obs: obs[:, 1], SQUARE)  # never negative: from its least to its greatest
    assert figure.axes[0].images[0].get_clim() == (0.0, 4.0)


def test_a_choice_is_drawn_in_distinct_colours_with_a_legend() -> None:
    portrait, figure = policy_map(lambda obs: (obs[:, 0] > 0).long(), SQUARE, names=["left", "right"])
    assert portrait.dtype == np.int64
    assert portrait[:, 0].tolist() == [0, 0, 0, 1, 1]
    assert close(pixel(figure, -0.8, 2.0), COLOURS[0])
    assert close(pixel(figure, 0.8, 2.0), COLOURS[1])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["left", "right"]
    assert [to_hex(patch.get_facecolor()).upper() for patch in legend.get_patches()] == list(COLOURS[:2])
    _, figure = policy_map(lambda obs: (obs[:, 1] * 10).long(), SQUARE)  # 41 actions
    assert not figure.legends
    assert figure.axes[1].get_ylabel() == "action"
    assert len(set(distinct_colours(41))) == 41


def test_the_value_of_an_action_needs_the_action() -> None:
    def action_value(observations: Tensor, action: Tensor) -> Tensor:
        assert action.shape == (25, 2)
        return (observations[:, 0] * action[:, 0] + action[:, 1])[:, None]  # [N, 1] is as good as [N]

    portrait, figure = critic_map(action_value, SQUARE, action=[2.0, 7.0])
    assert portrait[:, 0].tolist() == [5.0, 6.0, 7.0, 8.0, 9.0]
    assert figure.get_suptitle() == "Q(s, a) of a = (2, 7)"
    with pytest.raises(ValueError, match=r"function of observation and action; pass action=\[...\]"):
        critic_map(action_value, SQUARE)
    with pytest.raises(ValueError, match=r"gives \[25, 3\] for 25 observations.*use action_value_map"):
        critic_map(lambda obs: obs[:, :1].expand(-1, 3), SQUARE)


def q_values(observations: Tensor) -> Tensor:
    """At x < 0 action 0 is best, else action 2; action 1 never."""
    x = observations[:, 0]
    return torch.stack([-x, -10.0 - x, 2.0 * x], -1)


def test_discrete_values_show_the_best_one_the_greedy_action_or_one_action() -> None:
    best, figure = action_value_map(q_values, SQUARE)
    assert best[:, 0].tolist() == [1.0, 0.5, 0.0, 1.0, 2.0]
    assert figure.get_suptitle() == "value of the best action"
    greedy, figure = action_value_map(q_values, SQUARE, action="greedy", names=["left", "wait", "right"])
    assert greedy[:, 0].tolist() == [0, 0, 0, 2, 2]
    assert close(pixel(figure, 0.8, 2.0), COLOURS[2])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["left", "wait", "right"]
    one, figure = action_value_map(q_values, SQUARE, action=1)
    assert one[:, 0].tolist() == [-9.0, -9.5, -10.0, -10.5, -11.0]
    assert figure.get_suptitle() == "value of action 1"
    with pytest.raises(IndexError, match="there is no action 3; the critic knows 0 to 2"):
        action_value_map(q_values, SQUARE, action=3)
    with pytest.raises(ValueError, match="2 names for 3 actions"):
        action_value_map(q_values, SQUARE, names=["left", "right"])
    with pytest.raises(ValueError, match=r"must give \[N, actions\]"):
        action_value_map(lambda obs: obs[:, 0], SQUARE)


class Doubler(Agent):
    reads = ("env/obs/policy", "action")
    writes = ("q",)

    def step(self, ws: Workspace, t: int, *, factor: float = 1.0) -> None:
        ws.put("q", t, factor * ws.at("env/obs/policy", t)[:, 0] * ws.at("action", t)[:, 0])


def test_an_agent_of_the_blackboard_becomes_a_function() -> None:
    function = agent_function(Doubler(), "q", ("env/obs/policy", "action"), factor=2.0)
    portrait, _ = critic_map(function, SQUARE, action=[3.0])
    assert portrait[:, 0].tolist() == [-6.0, -3.0, 0.0, 3.0, 6.0]
    with pytest.raises(TypeError, match="1 tensors for the variables"):
        critic_map(function, SQUARE)
    portrait, _ = critic_map(Doubler(), SQUARE, action=[3.0])  # it says itself what it reads and writes
    assert portrait[:, 0].tolist() == [-3.0, -1.5, 0.0, 1.5, 3.0]


class Shaky(Agent):
    reads = ("env/obs/policy",)
    writes = ("action", "logprob")

    def step(self, ws: Workspace, t: int, *, stochastic: bool = True) -> None:
        assert not stochastic
        ws.put("action", t, ws.at("env/obs/policy", t)[:, :1])
        ws.put("logprob", t, torch.zeros(25))


def test_an_agent_does_not_explore_on_a_map() -> None:
    assert policy_map(Shaky(), SQUARE)[0][:, 0, 0].tolist() == [-1.0, -0.5, 0.0, 0.5, 1.0]


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_loaded_on_policy_policy_and_its_critic(memory: Any) -> None:
    spec = spec_of(unit="N m")
    config = ActorCriticConfig(memory=MemoryConfig(kind=memory, size=4))
    policy = ActorCritic(spec, config, torch.Generator().manual_seed(0))
    policy.normalisers.of("policy").update(torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(1)))
    plane = Plane.of(spec, 0, 2, reference={1: 0.5}, definition=4)
    portrait, figure = policy_map(policy, plane)
    obs = {"policy": torch.tensor([[plane.x_values()[3], 0.5, plane.y_values()[1]]], dtype=torch.float32)}
    expected, _ = policy.act(obs, policy.initial_state(1, "cpu"), False)
    assert portrait[3, 1] == pytest.approx(expected[0].tolist(), abs=1e-6)
    assert [axes.get_ylabel() for axes in figure.axes[1::2]] == ["hip [N m]", "knee [N m]"]
    playing = InferencePolicy(policy)
    playing({"policy": torch.zeros(7, 3)})  # in the middle of something with another batch size
    again, _ = policy_map(playing, plane)
    assert np.array_equal(again, portrait)
    value, _ = critic_map(policy, plane)
    state = None if memory == "none" else policy.critic.memory.initial(1, torch.device("cpu"))
    expected_value = policy.critic(policy.network_input(obs, "critic"), state)[0]
    assert value[3, 1] == pytest.approx(expected_value.item(), abs=1e-6)


def test_a_policy_that_reads_several_groups_gets_them_in_its_order() -> None:
    spec = spec_of(groups={"a": 2, "b": 1})
    config = ActorCriticConfig(observations=Observations(actor=("b", "a")))
    policy = ActorCritic(spec, config, torch.Generator().manual_seed(0))
    portrait, _ = policy_map(policy, Plane.of(3, 0, 1, reference=[0, 0, 7.0], definition=2))
    obs = {"b": torch.tensor([[-3.0]]), "a": torch.tensor([[3.0, 7.0]])}
    assert portrait[0, 1] == pytest.approx(policy.act(obs, None, False)[0][0].tolist(), abs=1e-6)
    with pytest.raises(ValueError, match=r"observations have 5 numbers, the actor reads 3 from \['b', 'a'\]"):
        policy_map(policy, Plane.of(5))


def test_a_loaded_soft_policy_and_its_critics() -> None:
    spec = spec_of()
    policy = SoftActorCritic(spec, generator=torch.Generator().manual_seed(0))
    plane = Plane.of(spec, 0, 1, definition=3)
    portrait, _ = critic_map(policy, plane, action=[2.0, 0.5])  # in the environment's units: half ranges 2 and 1
    obs, unit = torch.tensor([[3.0, -3.0, 0.0]]), torch.tensor([[1.0, 0.5]])
    assert portrait[2, 0] == pytest.approx(policy.values(policy.critic, obs, unit).min().item(), abs=1e-6)
    assert policy_map(policy, plane)[0].shape == (3, 3, 2)
    with pytest.raises(ValueError, match="pass action="):
        critic_map(policy, plane)
    chooser = SoftActorCritic(spec_of("discrete"), generator=torch.Generator().manual_seed(0))
    values, _ = action_value_map(chooser, plane, action=2)
    assert values[2, 0] == pytest.approx(chooser.values(chooser.critic, obs)[..., 2].min().item(), abs=1e-6)
    choices, _ = policy_map(chooser, plane)
    assert choices[2, 0] == chooser.act({"policy": obs}, None, False)[0].item()


def test_a_loaded_deterministic_policy_and_action_values() -> None:
    plane = Plane.of(3, definition=3)
    obs = torch.tensor([[3.0, -3.0, 0.0]])
    policy = DeterministicActorCritic(spec_of(), generator=torch.Generator().manual_seed(0))
    portrait, _ = critic_map(policy, plane, action=[2.0, 0.5])
    expected = policy.values(policy.critic, obs, torch.tensor([[1.0, 0.5]])).min().item()
    assert portrait[2, 0] == pytest.approx(expected, abs=1e-6)
    portrait, _ = policy_map(policy, plane)
    assert portrait[2, 0] == pytest.approx(policy.act({"policy": obs}, None, False)[0][0].tolist(), abs=1e-6)
    chooser = ValuePolicy(spec_of("discrete"), generator=torch.Generator().manual_seed(0))
    values, _ = action_value_map(chooser, plane, action=1)
    assert values[2, 0] == pytest.approx(chooser.values(obs)[0, 1].item(), abs=1e-6)
    greedy, _ = action_value_map(chooser, plane, action="greedy")
    assert np.array_equal(greedy, policy_map(chooser, plane)[0])


def test_no_gradients_no_files_and_no_window_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import pyplot

    shown: list[Any] = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.gcf()))
    monkeypatch.chdir(tmp_path)
    network = torch.nn.Linear(2, 1)
    figures = pyplot.get_fignums()
    critic_map(network, SQUARE)
    assert os.listdir(tmp_path) == []
    assert shown == []
    assert pyplot.get_fignums() == figures
    assert network.weight.grad is None
    _, figure = critic_map(network, SQUARE, show=True)
    assert shown == [figure]
    assert os.listdir(tmp_path) == []
    pyplot.close(figure)


def test_figures_are_written_where_they_are_told_to(tmp_path: Path) -> None:
    figure = new_figure(2.0, 1.0)
    figure.add_subplot()
    for name in ("a/b/one.png", "two.pdf", "three"):
        finish(figure, path=tmp_path / name)
    assert Image.open(tmp_path / "a" / "b" / "one.png").size == (320, 160)
    assert (tmp_path / "two.pdf").read_bytes().startswith(b"%PDF")
    assert Image.open(tmp_path / "three.png").size == (320, 160)
    with pytest.raises(TypeError):
        finish(figure, tmp_path / "x.png")  # type: ignore[misc]  # by keyword alone: nothing can change places
