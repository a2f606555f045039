"""CEM and an evolution strategy: hand arithmetic, a float64 computation beside them, twins that do not learn, state."""

import dataclasses

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.algorithms import evolution
from gaitway.algorithms.evolution import CEM, ES, CEMConfig, ESConfig, EvolvedActorConfig, centred_ranks, evolved
from gaitway.core.files import load_state, save_state
from gaitway.core.seeding import stream
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

SPEC = EnvSpec(
    "test",
    (ObservationGroup("policy", (Component("x", 2),), (2,)),),
    ActionSpec("discrete", ("push",), choices=(2,)),
    control_dt=0.02,
    max_episode_steps=10,
)
KINDS = {"cem": (CEM, CEMConfig(population=12)), "es": (ES, ESConfig(population=12))}


def make(kind, seed=0, networks=None, **changes):
    algorithm, config = KINDS[kind]
    networks = networks or EvolvedActorConfig(actor_hidden=(3,), critic_hidden=(3,))
    policy = ActorCritic(SPEC, networks, stream(seed, "parameters"))
    return algorithm(policy, dataclasses.replace(config, **changes), num_envs=1, seed=seed)


def f64(*values):
    return torch.tensor(values, dtype=torch.float64)


def actor_vector(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.actor.parameters()])


def generations(algorithm, count, score):
    for _ in range(count):
        algorithm.tell(score(algorithm.ask().double()))
    return algorithm


class TestRanks:
    def test_by_hand(self):
        # sorted 1, 2, 5, 9: ranks 0 to 3 of 3, less a half
        assert_close(centred_ranks(f64(5, 1, 9, 2)), f64(2 / 3 - 0.5, -0.5, 0.5, 1 / 3 - 0.5))

    def test_equals_share_the_mean_of_their_ranks(self):
        # two at the bottom share (0 + 1) / 2, three at the top (2 + 3 + 4) / 3, of 4
        found = centred_ranks(f64(1, 7, 7, 1, 7))
        assert_close(found, f64(0.125 - 0.5, 0.75 - 0.5, 0.75 - 0.5, 0.125 - 0.5, 0.75 - 0.5))
        assert float(found.sum()) == 0.0

    def test_all_equal_pull_nowhere(self):
        assert centred_ranks(f64(3, 3, 3)).tolist() == [0.0, 0.0, 0.0]

    def test_only_the_order_counts(self):
        fitness = torch.randn(20, generator=stream(0, "fitness"), dtype=torch.float64)
        assert torch.equal(centred_ranks(fitness), centred_ranks(fitness.exp() * 1e6))


class TestCEM:
    def test_the_fit_by_hand(self):
        one = make("cem", population=4, elites=0.5, extra_std=2.0, fade=4)
        asked = one.ask()
        one.tell(f64(1, 4, 2, 3))  # the elites are 1 and 3
        best = one._asked[[1, 3]]
        assert_close(asked.double(), one._asked, atol=1e-6, rtol=1e-6)
        assert_close(one.centre, (best[0] + best[1]) / 2)
        half = (best[0] - best[1]) / 2  # the deviation of two numbers is half their distance
        assert_close(one.std, (half**2 + 4.0).sqrt())
        assert_close(actor_vector(one.policy).double(), one.centre, atol=1e-6, rtol=1e-6)

    def test_extra_noise_fades(self):
        one = make("cem", population=2, elites=0.5, extra_std=2.0, fade=4)
        found = []
        for _ in range(6):  # one elite has no deviation of its own
            one.ask()
            one.tell(f64(1, 2))
            found.append(one.std.mean().item())
        assert found == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0, 0.0])

    def test_individuals_are_drawn_around_the_centre(self):
        one = make("cem", population=4000, initial_std=0.5)
        spread = one.ask().double() - one.centre
        assert_close(spread.mean(0), torch.zeros_like(one.centre), atol=0.04, rtol=0.0)  # five deviations of a mean
        assert_close(spread.std(0), torch.full_like(one.centre, 0.5), atol=0.03, rtol=0.0)

    def test_it_finds_an_optimum_and_not_with_the_worst_as_elites(self, monkeypatch):
        def distance():
            one = make("cem", population=40, extra_std=0.1, fade=20)
            goal = one.centre + 1.0
            generations(one, 40, lambda individuals: -(individuals - goal).square().sum(1))
            return float((one.centre - goal).abs().max())

        assert distance() < 0.1
        right = evolution.CEM.tell
        monkeypatch.setattr(evolution.CEM, "tell", lambda self, fitness: right(self, -fitness))
        assert distance() > 2.0

    def test_metrics(self):
        one = make("cem", population=4, elites=0.5)
        one.ask()
        found = one.tell(f64(1, 4, 2, 3))
        assert float(found["elite_return"]) == 3.5
        assert float(found["std"]) == pytest.approx(float(one.std.mean()))


class TestES:
    def test_individuals_are_mirrored_pairs(self):
        one = make("es", population=6, sigma=0.3)
        shifts = one.ask().double() - one.centre
        assert_close(shifts[:3], -shifts[3:], atol=1e-6, rtol=0.0)
        assert_close(shifts[:3], 0.3 * one._pairs, atol=1e-6, rtol=0.0)

    def test_a_step_against_the_formula_in_float64(self):
        one = make("es", population=10, sigma=0.2, learning_rate=0.05, weight_decay=0.1)
        centre, first, second = one.centre.clone(), torch.zeros_like(one.centre), torch.zeros_like(one.centre)
        for step in range(1, 4):
            individuals = one.ask().double()
            fitness = -(individuals - 1.0).square().sum(1)
            noise = torch.cat((one._pairs, -one._pairs))
            order = fitness.argsort().tolist()
            gradient = torch.zeros_like(centre)
            for index in range(10):
                gradient += (order.index(index) / 9 - 0.5) * noise[index] / (10 * 0.2)
            downhill = 0.1 * centre - gradient
            # Adam as in Kingma and Ba 2015
            first = 0.9 * first + 0.1 * downhill
            second = 0.999 * second + 0.001 * downhill**2
            step_size = 0.05 * (first / (1 - 0.9**step))
            centre = centre - step_size / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
            found = one.tell(fitness)
            assert_close(one.centre, centre, atol=1e-12, rtol=1e-12)
            assert_close(found["gradient_norm"], gradient.norm())

    def test_the_estimate_points_along_the_true_gradient(self):
        one = make("es", population=4000, sigma=0.01)
        uphill = torch.linspace(-1.0, 1.0, len(one.centre), dtype=torch.float64)
        fitness = one.ask().double() @ uphill
        rank = centred_ranks(fitness)
        forth, back = rank.chunk(2)
        estimate = (forth - back) @ one._pairs
        assert float(torch.cosine_similarity(estimate, uphill, dim=0)) > 0.98

    def test_it_climbs_a_quadratic_and_not_with_the_sign_turned(self, monkeypatch):
        def distance():
            one = make("es", population=40, sigma=0.1, learning_rate=0.05)
            goal = one.centre + 1.0
            generations(one, 150, lambda individuals: -(individuals - goal).square().sum(1))
            return float((one.centre - goal).abs().max())

        assert distance() < 0.1
        right = evolution.centred_ranks
        monkeypatch.setattr(evolution, "centred_ranks", lambda fitness: -right(fitness))
        assert distance() > 2.0

    def test_weight_decay_pulls_towards_zero_where_all_are_equal(self):
        one = make("es", weight_decay=0.5, learning_rate=0.01)
        size = float(one.centre.abs().sum())
        generations(one, 20, lambda individuals: torch.zeros(len(individuals)))
        assert float(one.centre.abs().sum()) < size


@pytest.mark.parametrize("kind", KINDS)
class TestBoth:
    @pytest.mark.parametrize("before", [0, 3])
    def test_a_stored_search_goes_on_bit_for_bit(self, kind, before, tmp_path):
        def score(individuals):
            return -(individuals - 0.5).square().sum(1)

        one = generations(make(kind), before, score)
        save_state(tmp_path / "state", one.state_dict(), kind="test")
        generations(one, 4, score)
        other = make(kind, seed=7)
        other.load_state_dict(load_state(tmp_path / "state", kind="test")[0])
        generations(other, 4, score)
        assert torch.equal(one.centre, other.centre)
        assert torch.equal(one.ask(), other.ask())
        for (name, mine), (_, theirs) in zip(
            one.policy.state_dict().items(), other.policy.state_dict().items(), strict=True
        ):
            assert torch.equal(mine, theirs), name

    def test_a_stored_state_does_not_change_with_the_search(self, kind):
        one = generations(make(kind), 2, lambda x: x.sum(1))
        state = one.state_dict()
        before = state["centre"].clone()
        generations(one, 2, lambda x: x.sum(1))
        assert torch.equal(state["centre"], before)

    def test_only_the_actor_evolves_and_the_policy_is_the_centre(self, kind):
        one = make(kind)
        critic = [parameter.clone() for parameter in one.policy.critic.parameters()]
        count = sum(parameter.numel() for parameter in one.policy.actor.parameters())
        assert one.ask().shape == (12, count)
        assert one.ask().dtype == torch.float32
        assert sum(parameter.numel() for parameter in evolved(one.policy)) == count
        before = actor_vector(one.policy)
        generations(one, 1, lambda x: x.sum(1))
        assert not torch.equal(actor_vector(one.policy), before)
        assert torch.equal(actor_vector(one.policy), one.centre.float())
        assert all(torch.equal(a, b) for a, b in zip(critic, one.policy.critic.parameters(), strict=True))

    def test_fitness_that_makes_no_sense_is_refused(self, kind):
        one = make(kind)
        one.ask()
        with pytest.raises(ValueError, match=r"fitness is \[3\]; use \[12\]"):
            one.tell(torch.zeros(3))
        fitness = torch.zeros(12)
        fitness[5] = float("nan")
        with pytest.raises(ValueError, match="the fitness of individual 5 is nan"):
            one.tell(fitness)

    def test_normalised_observations_are_refused(self, kind):
        with pytest.raises(ValueError, match=r"agent\.normalise_observations=false"):
            make(kind, networks=ActorCriticConfig())

    @pytest.mark.parametrize("wrong", [{"population": 0}, {"episodes": 0}, {"processes": -1}, {"max_episode_steps": 0}])
    def test_settings_that_make_no_sense_are_refused_with_their_name(self, kind, wrong):
        (name,) = wrong
        with pytest.raises(ValueError, match=name):
            make(kind, **wrong)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("cem", {"elites": 0.0}),
        ("cem", {"elites": 1.5}),
        ("cem", {"initial_std": 0.0}),
        ("cem", {"fade": 0}),
        ("es", {"population": 7}),
        ("es", {"sigma": 0.0}),
        ("es", {"learning_rate": -1.0}),
        ("es", {"weight_decay": -0.1}),
    ],
)
def test_settings_of_one_kind_are_refused_with_their_name(kind, wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        make(kind, **wrong)
