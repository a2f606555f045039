"""Explorers: what they draw, from which stream, within which limits, and where their state begins anew."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.explorers import EpsilonGreedy, GaussianNoise, OrnsteinUhlenbeck, Softmax, UniformActor
from gaitway.core.agent import Agent, Agents, TemporalAgent
from gaitway.core.wiring import check_wiring
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec

CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
CHOICES = ActionSpec("multi_discrete", ("turn", "jump"), choices=(4, 2), start=(1, 0))
LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 8.0))
FREE = ActionSpec("continuous", ("hip", "knee"), (-math.inf, 0.0), (math.inf, 8.0))
MANY = 40_000

MAKERS = {
    "epsilon greedy": lambda **options: EpsilonGreedy(CHOICE, 0.7, **options),
    "softmax": lambda **options: Softmax(CHOICE, 2.0, **options),
    "gaussian": lambda **options: GaussianNoise(LEGS, 0.1, **options),
    "ou": lambda **options: OrnsteinUhlenbeck(LEGS, 0.1, **options),
    "uniform": lambda **options: UniformActor(CHOICES, **options),
}


def workspace(rows: int = 1, batch: int = 6) -> Workspace:
    generator = torch.Generator().manual_seed(0)
    ws = Workspace()
    for t in range(rows):
        ws.put("env/obs/policy", t, torch.randn(batch, 3, generator=generator))
        ws.put("q_values", t, torch.randn(batch, 3, generator=generator))
        ws.put("action", t, torch.tensor([[0.5, 4.0]]).expand(batch, 2))
    return ws


def discrete(values: list[list[float]], batch: int = MANY) -> Workspace:
    ws = Workspace()
    ws.put("q_values", 0, torch.tensor(values).expand(batch, -1))
    return ws


def shares(action: torch.Tensor) -> torch.Tensor:
    return torch.bincount(action - 2, minlength=3) / len(action)


def drawn(name: str, rows: int = 3, **options) -> torch.Tensor:
    ws = workspace(rows, batch=64)
    if name in ("epsilon greedy", "softmax", "uniform"):
        ws.remove("action")
    agent = MAKERS[name](**options)
    for t in range(rows):
        agent(ws, t)
    return ws["action"]


@pytest.mark.parametrize("name", MAKERS)
def test_bug_81_explorers_draw_from_their_own_seed(name):
    before = torch.get_rng_state()
    first, again, other = (drawn(name, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(drawn(name), drawn(name))  # unseeded: fresh entropy
    assert torch.equal(torch.get_rng_state(), before)
    agent = MAKERS[name](seed=1)
    assert agent.seed(2).current_seed == 2  # a cast may seed what was seeded before


@pytest.mark.parametrize("name", ["epsilon greedy", "softmax"])
def test_bug_81_discrete_actions_are_one_number_per_column(name):
    action = drawn(name)
    assert action.shape == (3, 64)
    assert action.dtype == torch.int64
    assert set(action.flatten().tolist()) == {2, 3, 4}


def test_bug_81_a_random_actor_writes_one_action_per_column():
    ws = workspace(batch=MANY)
    ws.remove("action")
    UniformActor(CHOICE, seed=0)(ws, 0)
    action = ws.at("action", 0)
    assert action.shape == (MANY,)
    assert action.dtype == torch.int64
    tolerance = 4.5 * math.sqrt(2 / 9 / MANY)
    assert_close(shares(action), torch.full((3,), 1 / 3), atol=tolerance, rtol=0)


class Ends(Agent):
    """Column 1 ends its episode at row 1; the actor says 0."""

    writes = ("env/terminated", "env/truncated", "action")

    def step(self, ws, t):
        ws.put("env/terminated", t, torch.tensor([False, t == 1, False]))
        ws.put("env/truncated", t, torch.zeros(3, dtype=torch.bool))
        ws.put("action", t, torch.zeros(3, 2))


def test_bug_81_ornstein_uhlenbeck_begins_anew_with_every_episode():
    # theta = 0: the noise is a sum of draws; column 1 forgets its sum before row 2
    free = ActionSpec("continuous", ("a", "b"), (-math.inf,) * 2, (math.inf,) * 2)
    agent = OrnsteinUhlenbeck(free, sigma=0.5, theta=0.0, seed=3)
    ws = Workspace()
    cast = TemporalAgent(Agents(Ends(), agent))
    cast(ws, 0, n_steps=4)
    twin = OrnsteinUhlenbeck(free, sigma=0.5, theta=0.0, seed=3).generator()
    steps = torch.stack([torch.empty(3, 2).normal_(generator=twin) for _ in range(4)]) * 0.5
    expected = steps.cumsum(0)
    expected[2:, 1] = steps[2:, 1].cumsum(0)
    assert_close(ws["action"], expected)
    # the next rows go on, also in another workspace, until somebody says that episodes begin
    ws = _zeros(Workspace())
    agent(ws, 0)
    assert_close(ws.at("action", 0), expected[3] + torch.empty(3, 2).normal_(generator=twin) * 0.5)
    ws = _zeros(Workspace())
    agent(ws, 0, reset=True)
    assert_close(ws.at("action", 0), torch.empty(3, 2).normal_(generator=twin) * 0.5)


def _zeros(ws: Workspace, rows: int = 3) -> Workspace:
    ws.put("action", 0, torch.zeros(rows, 2))
    return ws


def test_frame_streams_begin_at_row_0():
    agent = OrnsteinUhlenbeck(LEGS, sigma=0.1, seed=3)
    ws = _zeros(Workspace())
    agent(ws, 0)
    assert agent.noise.abs().min() > 0
    agent.noise = torch.full((3, 2), 5.0)
    ws = _zeros(Workspace())
    ws.put("env/timestep", 0, torch.tensor([0, 4, 0]))
    agent(ws, 0)
    assert (agent.noise[[0, 2]].abs() < 1).all()
    assert (agent.noise[1] > 3).all()
    agent(_zeros(Workspace(), rows=5), 0)  # another number of columns: nothing to go on from
    assert agent.noise.abs().max() < 1


def test_epsilon_greedy_frequencies_and_schedule():
    ws = discrete([[0.0, 5.0, 1.0]])
    agent = EpsilonGreedy(CHOICE, epsilon=0.6, seed=0)
    agent(ws, 0)
    expected = torch.tensor([0.2, 0.6, 0.2])  # 0.6 / 3 each, and 0.4 for the best
    assert_close(shares(ws.at("action", 0)), expected, atol=4.5 * math.sqrt(0.24 / MANY), rtol=0)
    agent.epsilon = 0.0
    agent(ws, 0)
    assert (ws.at("action", 0) == 3).all()
    agent.epsilon = 1
    agent(ws, 0, stochastic=False)
    assert (ws.at("action", 0) == 3).all()
    with pytest.raises(ValueError, match="it must lie in 0 to 1"):
        agent.epsilon = 1.5


def test_changing_epsilon_does_not_shift_the_stream():
    batch = 200
    actions = []
    for epsilon in (0.0, 0.3):
        agent, ws = EpsilonGreedy(CHOICE, epsilon, seed=4), discrete([[0.0, 1.0, 2.0]], batch)
        agent(ws, 0)
        agent.epsilon = 0.5
        agent(ws, 0)
        actions.append(ws.at("action", 0))
    assert torch.equal(*actions)


def test_softmax_frequencies():
    ws = discrete([[0.0, 2.0 * math.log(2.0), 2.0 * math.log(5.0)]])
    agent = Softmax(CHOICE, temperature=2.0, seed=0)
    agent(ws, 0)
    expected = torch.tensor([1.0, 2.0, 5.0]) / 8
    assert_close(shares(ws.at("action", 0)), expected, atol=4.5 * math.sqrt(0.25 / MANY), rtol=0)
    agent.temperature = 1e-3
    agent(ws, 0)
    assert (ws.at("action", 0) == 4).all()
    agent(ws, 0, stochastic=False)
    assert (ws.at("action", 0) == 4).all()
    with pytest.raises(ValueError, match="must be positive"):
        agent.temperature = 0.0


def test_gaussian_noise_is_in_units_of_half_the_range_and_within_limits():
    ws = workspace(batch=MANY)
    agent = GaussianNoise(LEGS, std=0.1, seed=0)
    agent(ws, 0)
    action = ws.at("action", 0)
    assert_close(action.mean(0), torch.tensor([0.5, 4.0]), atol=0.01, rtol=0)
    assert_close(action.std(0), torch.tensor([0.1, 0.4]), rtol=0.02, atol=0)  # half ranges 1 and 4
    agent.std = 5.0
    agent(ws, 0)
    action = ws.at("action", 0)
    assert torch.equal(action.amin(0), torch.tensor([-1.0, 0.0]))
    assert torch.equal(action.amax(0), torch.tensor([1.0, 8.0]))
    ws = workspace()
    agent(ws, 0, stochastic=False)
    assert torch.equal(ws.at("action", 0), workspace().at("action", 0))
    free = workspace(batch=MANY)
    GaussianNoise(FREE, std=2.0, seed=0)(free, 0)
    assert_close(free.at("action", 0)[:, 0].std(), torch.tensor(2.0), rtol=0.02, atol=0)  # no range: its own unit


def test_noise_may_be_clipped_itself():
    ws = workspace(batch=1000)
    GaussianNoise(LEGS, std=0.2, clip=0.05, seed=0)(ws, 0)
    change = ws.at("action", 0) - torch.tensor([0.5, 4.0])
    assert_close(change.abs().amax(0), torch.tensor([0.05, 0.2]))


def test_noise_keeps_the_gradient_of_the_action():
    weight = torch.ones(6, 2, requires_grad=True)
    ws = Workspace()
    ws.put("action", 0, weight * torch.tensor([0.1, 4.0]))
    GaussianNoise(LEGS, std=0.01, seed=0)(ws, 0)
    (slope,) = torch.autograd.grad(ws.at("action", 0).sum(), weight)
    assert_close(slope, torch.tensor([[0.1, 4.0]]).expand(6, 2))


def test_ornstein_uhlenbeck_settles_at_its_variance():
    rows, batch, theta, sigma = 60, 4000, 0.2, 0.1
    agent = OrnsteinUhlenbeck(LEGS, sigma=sigma, theta=theta, dt=0.5, seed=0)
    ws, values = Workspace(), []
    for t in range(rows):
        ws.put("action", 0, torch.tensor([[0.0, 4.0]]).expand(batch, 2))
        agent(ws, 0)
        values.append((ws.at("action", 0) - torch.tensor([0.0, 4.0]))[:, 0])
        keep = 1 - theta * 0.5
        variance = sigma**2 * 0.5 * (1 - keep ** (2 * (t + 1))) / (1 - keep**2)  # of an AR(1) process from 0
        assert_close(values[-1].std().item(), math.sqrt(variance), rtol=0.06, atol=0)
    correlation = torch.corrcoef(torch.stack((values[-1], values[-2])))[0, 1].item()
    assert_close(correlation, 0.9, atol=0.02, rtol=0)
    agent.sigma = 0.0
    before = agent.noise
    agent(ws, 0)
    assert_close(agent.noise, before * 0.9)  # only the pull is left
    kept = agent.noise
    agent(ws, 0, stochastic=False)
    assert agent.noise is kept


def test_uniform_actions_of_every_kind():
    ws = workspace(batch=MANY)
    ws.remove("action")
    UniformActor(LEGS, seed=0)(ws, 0)
    action = ws.at("action", 0)
    assert_close(action.mean(0), torch.tensor([0.0, 4.0]), atol=0.06, rtol=0)
    assert_close(action.std(0), torch.tensor([2.0, 8.0]) / math.sqrt(12), rtol=0.02, atol=0)
    ws.remove("action")
    UniformActor(CHOICES, seed=0)(ws, 0)
    action = ws.at("action", 0)
    assert action.shape == (MANY, 2)
    assert torch.equal(action.amin(0), torch.tensor([1, 0]))
    assert torch.equal(action.amax(0), torch.tensor([4, 1]))
    assert_close(action.double().mean(0), torch.tensor([2.5, 0.5]).double(), atol=0.04, rtol=0)


def test_prefix_names_and_wiring():
    agent = GaussianNoise(LEGS, seed=0, name="noise").with_prefix("noisy/")
    assert agent.writes == ("noisy/action",)
    ws = workspace()
    agent(ws, 0)
    assert torch.equal(ws.at("action", 0), workspace().at("action", 0))
    assert not torch.equal(ws.at("noisy/action", 0), ws.at("action", 0))
    cast = Agents(MAKERS["epsilon greedy"](name="explorer"))
    check_wiring(cast, given=("q_values",))
    assert cast.get_by_name("explorer")[0].epsilon == 0.7
    check_wiring(Agents(Ends(), GaussianNoise(LEGS)))  # it reads what it changes


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="EpsilonGreedy chooses among discrete"):
        EpsilonGreedy(LEGS)
    with pytest.raises(ValueError, match="GaussianNoise needs a continuous"):
        GaussianNoise(CHOICE)
    with pytest.raises(ValueError, match=r"one value per action is \[B, 3\]"):
        EpsilonGreedy(CHOICE)(discrete([[1.0, 2.0]], 4), 0)
    ws = Workspace()
    ws.put("action", 0, torch.zeros(4))
    with pytest.raises(ValueError, match=r"noise is added to \[B, 2\]"):
        GaussianNoise(LEGS)(ws, 0)
    with pytest.raises(ValueError, match="grows without end"):
        OrnsteinUhlenbeck(LEGS, theta=2.0)
    with pytest.raises(ValueError, match="need finite ones"):
        UniformActor(FREE)
    for value in (-0.1, math.nan):
        with pytest.raises(ValueError, match="std is"):
            GaussianNoise(LEGS, std=value)
