"""HSD-3 against float64 arithmetic written apart, by enumeration; draws in its place; what must hold of any of them."""

from __future__ import annotations

import math

import pytest
import torch
from float64_networks import follow, forward, single
from hsd3_cases import BATCH, make_runner, noise_stream
from torch import Tensor
from torch.testing import assert_close

from gaitway.algorithms.algorithm import Now
from gaitway.functional.goal_space_losses import hsd3_actor_loss, hsd3_target
from gaitway.functional.sampled_goal_spaces import sampled_actor_loss, sampled_target
from gaitway.skills.deciding_policy import DECISION, PHASE
from gaitway.skills.hsd3 import HSD3


def ready(**options):
    """A learner with critics that say something, and a replay of decisions, not one update made."""
    runner = make_runner(learning_starts=10**6, **options)
    runner.learn(800)
    with torch.no_grad():
        policy = runner.policy
        for parameter in (*policy.critic.parameters(), *policy.target.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return runner


class Plain:
    """The same updates in float64: every goal space of every row by itself, on wide rows, with torch's Adam."""

    def __init__(self, algorithm: HSD3) -> None:
        policy = algorithm.policy
        self.config, self.mask = algorithm.config, policy.interface.action_mask.double()
        self.spaces, self.goals = single(policy.spaces, None), single(policy.goals, None)
        self.critics = [single(policy.critic.critics, member) for member in range(2)]
        self.targets = [single(policy.target.critics, member) for member in range(2)]
        self.log_c = torch.zeros(len(self.mask), dtype=torch.float64, requires_grad=True)
        self.log_d = torch.zeros((), dtype=torch.float64, requires_grad=True)
        for network in (self.spaces, self.goals, *self.critics):
            for value in network.values():
                value.requires_grad_(True)
        config = self.config
        self.optimisers = {
            "critic": torch.optim.Adam([v for c in self.critics for v in c.values()], lr=config.critic_learning_rate),
            "spaces": torch.optim.Adam(self.spaces.values(), lr=config.space_learning_rate),
            "goals": torch.optim.Adam(self.goals.values(), lr=config.goal_learning_rate),
            "temperature": torch.optim.Adam([self.log_c, self.log_d], lr=config.temperature_learning_rate),
        }

    def proposal(self, x: Tensor, noise: Tensor):
        """Probabilities [n, D], goals [n, D, G] and mean log-densities [n, D], goal space by goal space."""
        probability = forward(self.spaces, x).softmax(-1)
        heads, count = forward(self.goals, x), self.mask.shape[1]
        goals, densities = [], []
        for d, kept in enumerate(self.mask):
            mean, log_std = heads[:, 2 * count * d : 2 * count * (d + 1)].chunk(2, -1)
            std = log_std.clamp(-5, 2).exp()
            u = mean + std * noise[:, d]
            density = torch.distributions.Normal(mean, std).log_prob(u) - torch.log(1 - u.tanh() ** 2)
            goals.append(u.tanh() * kept)
            densities.append((density * kept).sum(-1) / kept.sum())
        return probability, torch.stack(goals, 1), torch.stack(densities, 1)

    def value(self, critics, x: Tensor, d: int, goal: Tensor) -> list[Tensor]:
        """Each critic's value [n] of goal space d and goals [n, G]."""
        one_hot = torch.zeros(len(x), len(self.mask), dtype=torch.float64)
        one_hot[:, d] = 1.0
        blocks = [goal if each == d else torch.zeros_like(goal) for each in range(len(self.mask))]
        row = torch.cat((x, one_hot, *blocks), -1)
        return [forward(critic, row)[:, 0] for critic in critics]

    def state_value(self, critics, x: Tensor, noise: Tensor):
        probability, goals, density = self.proposal(x, noise)
        alpha_c, alpha_d = self.log_c.detach().exp(), self.log_d.detach().exp()
        total = torch.zeros(len(x), dtype=torch.float64)
        for d in range(len(self.mask)):
            least = torch.minimum(*self.value(critics, x, d, goals[:, d]))
            total = total + probability[:, d] * (least - alpha_c[d] * density[:, d])
        entropy = -(probability * probability.log()).sum(-1)
        return total + alpha_d * (entropy - math.log(len(self.mask))), probability, density, entropy

    def update(self, drawn, noise: Tensor) -> None:
        now, later = noise.double().chunk(2)
        obs, after = drawn["obs/policy"].double(), drawn["next_obs/policy"].double()
        zero = torch.zeros(len(obs), 1, dtype=torch.float64)
        with torch.no_grad():
            following = self.state_value(self.targets, torch.cat((after, zero), -1), later)[0]
            y = drawn["reward"].double() + drawn["discount"].double() * following
        rows = torch.cat((obs, drawn[PHASE].double()[:, None]), -1)
        loss = torch.zeros((), dtype=torch.float64)
        for row in range(len(obs)):
            d, goal = int(drawn[DECISION][row, 0]), drawn[DECISION][row : row + 1, 1:].double()
            for said in self.value(self.critics, rows[row : row + 1], d, goal):
                loss = loss + ((said - y[row]) ** 2).sum() / len(obs)
        self.step("critic", loss)
        value, probability, density, entropy = self.state_value(self.critics, torch.cat((obs, zero), -1), now)
        for name in ("spaces", "goals"):
            self.optimisers[name].zero_grad()
        (-value.mean()).backward()
        for name in ("spaces", "goals"):
            self.optimisers[name].step()
        probability, density, entropy = probability.detach(), density.detach(), entropy.detach()
        target_d = 0.5 * math.log(len(self.mask))
        losses = -(probability * self.log_c.exp() * (density - 1.0)).sum(-1).mean()
        self.step("temperature", losses + self.log_d.exp() * (entropy.mean() - target_d))
        for target, online in zip(self.targets, self.critics, strict=True):
            follow(target, online, self.config.tau)

    def step(self, name: str, loss: Tensor) -> None:
        self.optimisers[name].zero_grad()
        loss.backward()
        self.optimisers[name].step()


@pytest.mark.parametrize("dense", [True, False])
def test_three_updates_are_those_of_a_plain_implementation(dense):
    runner = ready(dense=dense)
    algorithm, twin = runner.algorithm, runner.algorithm.make_replay()
    twin.load_state_dict(runner.replay.state_dict())
    plain, numbers, seen = Plain(algorithm), noise_stream(algorithm), set()
    size = (2 * BATCH, algorithm.policy.num_spaces, algorithm.policy.goal_size)
    for _ in range(3):
        drawn = twin.gather(twin.draw((BATCH,)))
        seen |= {(int(a), round(float(b), 5)) for a, b in zip(drawn[PHASE], drawn["discount"], strict=True)}
        plain.update(drawn, torch.empty(size).normal_(generator=numbers))
    assert {phase for phase, _ in seen} == ({0, 1, 2, 3, 4} if dense else {0})
    assert len({discount for _, discount in seen}) >= (4 if dense else 2)
    algorithm.update(runner.replay, 3, Now())
    policy = algorithm.policy
    pairs = [(single(policy.spaces, None), plain.spaces), (single(policy.goals, None), plain.goals)]
    pairs += [(single(policy.critic.critics, member), plain.critics[member]) for member in range(2)]
    pairs += [(single(policy.target.critics, member), plain.targets[member]) for member in range(2)]
    for ours, theirs in pairs:
        for name, value in theirs.items():
            assert_close(ours[name], value.detach(), atol=5e-5, rtol=2e-4)
    assert_close(algorithm.temperatures.log_c.detach().double(), plain.log_c.detach(), atol=1e-5, rtol=1e-4)
    assert_close(algorithm.temperatures.log_d.detach().double(), plain.log_d.detach(), atol=1e-5, rtol=1e-4)
    assert plain.log_d.item() != 0.0


class TestDraws:
    """The mean over draws of goal spaces is the exact expectation, in value and in gradient."""

    D = 4

    def problem(self, rows: int):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(rows, self.D, generator=generator, dtype=torch.float64, requires_grad=True)
        density = torch.randn(rows, self.D, generator=generator, dtype=torch.float64, requires_grad=True)
        values = torch.randn(2, rows, self.D, generator=generator, dtype=torch.float64, requires_grad=True)
        alpha_c = torch.rand(self.D, generator=generator, dtype=torch.float64) + 0.5
        return logits, density, values, alpha_c

    @pytest.mark.parametrize(("rows", "k"), [(3, 1), (1, 3)])
    def test_they_are_unbiased(self, rows, k):
        logits, density, values, alpha_c = self.problem(rows)
        reward, discount = torch.rand(rows, dtype=torch.float64), torch.full((rows,), 0.9, dtype=torch.float64)
        loss = hsd3_actor_loss(values, logits.log_softmax(-1), density, alpha_c, 0.7)
        known = (logits.detach().log_softmax(-1), density.detach())
        expected = [loss.detach(), *torch.autograd.grad(loss, (logits, density, values))]
        expected.append(hsd3_target(reward, discount, values.detach(), *known, alpha_c, 0.7))
        # every combination of draws, weighed by its probability: nothing is left to chance
        total, weights = [torch.zeros_like(each) for each in expected], 0.0
        for choice in torch.cartesian_prod(*[torch.arange(self.D)] * 3).view(-1, rows, k):
            drawn = torch.nn.functional.one_hot(choice, self.D).double()
            weight = (drawn * known[0].exp()[:, None]).sum(-1).prod()
            picked = (drawn * values[:, :, None]).sum(-1)
            found = sampled_actor_loss(picked, logits.log_softmax(-1), density, drawn, alpha_c, 0.7)
            parts = [found.detach(), *torch.autograd.grad(found, (logits, density, values))]
            parts.append(sampled_target(reward, discount, picked.detach(), *known, drawn, alpha_c, 0.7))
            total = [one + weight * other for one, other in zip(total, parts, strict=True)]
            weights += float(weight)
        assert weights == pytest.approx(1.0)
        for ours, theirs in zip(total, expected, strict=True):
            assert_close(ours, theirs, atol=1e-10, rtol=0)

    @pytest.mark.parametrize(("rows", "k"), [(3, 1), (1, 3)])
    def test_the_baseline_lowers_the_variance(self, rows, k):
        """The variance of the choice's gradient over all draws, with the baseline and with 0 in its place, where values
        lie further from 0 than from each other."""
        logits, density, values, alpha_c = self.problem(rows)

        def variance(shift: float, has_baseline: bool) -> float:
            moments = [torch.zeros_like(logits), torch.zeros_like(logits)]
            for choice in torch.cartesian_prod(*[torch.arange(self.D)] * 3).view(-1, rows, k):
                drawn, log_probs = torch.nn.functional.one_hot(choice, self.D).double(), logits.log_softmax(-1)
                chosen = (drawn * log_probs[:, None]).sum(-1)
                picked = (drawn * (values.detach() + shift)[:, :, None]).sum(-1)
                if has_baseline:
                    loss = sampled_actor_loss(picked, log_probs, density, drawn, alpha_c, 0.0)
                else:
                    cost = (drawn * (alpha_c * density)[:, None]).sum(-1) - picked.amin(0)
                    loss = (chosen * cost.detach()).mean()
                gradient = torch.autograd.grad(loss, logits)[0]
                for power, moment in enumerate(moments, 1):
                    moment += chosen.detach().sum().exp() * gradient**power
            return float((moments[1] - moments[0] ** 2).sum())

        baselined = variance(0.0, True)
        for shift in (-20.0, -2.0, 2.0, 20.0):  # what all goal spaces have in common teaches nothing
            assert variance(shift, True) == pytest.approx(baselined, rel=1e-9)
            assert variance(shift, False) > (1.3 if abs(shift) < 20 else 100) * baselined


def test_updates_with_draws_learn_and_are_repeated_exactly():
    ends = []
    for _ in range(2):
        runner = ready(expectation_d=3)
        before = [value.clone() for value in runner.algorithm.flat_parameters()]
        runner.algorithm.update(runner.replay, 5, Now())
        for one, other in zip(before, runner.algorithm.flat_parameters(), strict=True):
            assert not torch.equal(one, other)
        ends.append(torch.cat([value.flatten() for value in runner.algorithm.flat_parameters()]))
    assert torch.equal(*ends)


class TestProperties:
    def test_policies_see_no_time(self):
        """The loss of both policies is the same wherever in a decision a row lies."""
        runner = ready()
        algorithm, replay = runner.algorithm, runner.replay
        algorithm._attach(replay)
        drawn = {name: value.clone() for name, value in replay.gather(replay.draw((BATCH,))).items()}
        losses = []
        for phase in range(5):
            batch = algorithm.policy.read(drawn | {PHASE: torch.full((BATCH,), phase)})
            alphas = {"alpha_c": torch.ones(algorithm.policy.num_spaces), "alpha_d": torch.ones(())}
            noise = torch.zeros(2 * BATCH, algorithm.policy.num_spaces, algorithm.policy.goal_size)
            batch |= algorithm._proposals(batch, {"goals": noise}) | alphas
            losses.append(algorithm._actor_loss(batch)[0].item())
            assert batch["critic"][:, -1].tolist() == [phase] * BATCH
        assert len(set(losses)) == 1

    def test_what_is_masked_has_no_gradient(self):
        runner = ready(agent={"subsets": "0#2", "rank_max": 1})
        policy = runner.policy
        x, noise = torch.randn(6, policy.input_size("actor")), torch.randn(6, 2, policy.goal_size)
        goals, density = policy.propose(x, noise)
        loss = (goals * torch.randn(goals.shape)).sum() + density.sum()
        gradient = torch.autograd.grad(loss, policy.goals.last.bias)[0].view(2, 2, policy.goal_size)
        mask = policy.interface.action_mask
        assert bool((gradient * (1 - mask[:, None]) == 0).all())
        assert bool((gradient[mask[:, None].expand_as(gradient) > 0] != 0).all())

    def test_temperatures_rise_where_entropy_is_low(self):
        runner = ready(temperature_learning_rate=0.1)
        policy, algorithm = runner.policy, runner.algorithm
        with torch.no_grad():  # always the same goal space, and goals that hardly vary
            policy.spaces.last.bias.copy_(torch.tensor([20.0] + [0.0] * (policy.num_spaces - 1)))
            policy.goals.last.bias.view(policy.num_spaces, 2, -1)[:, 1] = -5.0
        algorithm.update(runner.replay, 1, Now())
        assert algorithm.temperatures.log_d.item() > 0.05
        assert algorithm.temperatures.log_c[0].item() > 0.05
        with torch.no_grad():  # uniform
            policy.spaces.last.weight.zero_(), policy.spaces.last.bias.zero_()
        before = algorithm.temperatures.log_d.item()
        algorithm.update(runner.replay, 4, Now())
        assert algorithm.temperatures.log_d.item() < before

    def test_the_discount_is_that_of_the_steps_to_the_next_decision(self):
        runner = ready()
        fields = runner.replay.gather(runner.replay.slots(runner.replay.first_row, runner.replay.stop_row))
        alive = fields["discount"] > 0
        assert_close(fields["discount"][alive], 0.99 ** fields["steps"][alive].float(), atol=1e-6, rtol=0)
        whole = alive & ~fields["truncated"]
        assert torch.equal(fields["steps"][whole], 5 - fields[PHASE][whole])
        assert "action" not in fields
        assert {name for name in fields if "obs" in name} == {"obs/policy", "next_obs/policy"}

    def test_one_goal_space_alone(self):
        runner = ready(agent={"subsets": "0-2-3"})
        assert runner.policy.num_spaces == 1
        runner.algorithm.update(runner.replay, 3, Now())
        assert runner.algorithm.temperatures.log_d.item() == 0.0

    def test_skills_stay_as_they_are(self):
        runner = make_runner(update_ratio=0.2)
        before = runner.policy.low.skills.sha256
        first = runner.parameters_sha256()
        runner.learn(400)
        assert runner.policy.low.skills.sha256 == before
        assert runner.parameters_sha256() != first


def test_what_is_told():
    runner = make_runner(update_ratio=0.2)
    told = []
    metrics = runner.algorithm.metrics
    runner.algorithm.metrics = lambda: told.append(metrics()) or told[-1]
    runner.learn(240)
    found = told[-1]
    shares = [float(found[f"share/{name}"]) for name in runner.policy.interface.subsets]
    assert sum(shares) == pytest.approx(1.0, abs=1e-5)
    assert 0 < float(found["entropy_d"]) <= math.log(len(shares)) + 1e-6
    assert float(found["residual_variance"]) > 0
    for name in ("loss/critic", "loss/actor", "td_error", "q_mean", "temperature_c", "temperature_d", "entropy_c"):
        assert math.isfinite(float(found[name]))


@pytest.mark.parametrize("options", [{}, {"expectation_d": 2, "dense": False}])
def test_a_run_goes_on_in_the_midst_of_a_decision(options):
    whole, first, second = (make_runner(update_ratio=0.3, steps_per_round=2, **options) for _ in range(3))
    whole.learn(320)
    first.learn(160)
    state = first.state_dict()
    phase = state["carried"]["decision/memory"][:, 0]
    assert bool((phase > 0).any())
    second.load_state_dict(state)
    second.learn(160)
    assert second.parameters_sha256() == whole.parameters_sha256()
    assert torch.equal(second.rollout["decision/memory"], whole.rollout["decision/memory"])
    assert torch.equal(second.rollout["decision"], whole.rollout["decision"])
    for one, other in zip(second.algorithm.flat_parameters(), whole.algorithm.flat_parameters(), strict=True):
        assert torch.equal(one, other)
