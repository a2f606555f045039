"""HSD-Bandit and SD: an arm per episode, what it brought, losses of the goal space that was played, exact resume."""

from __future__ import annotations

import copy
from collections import defaultdict

import gymnasium
import pytest
import torch
from hsd3_cases import HIDDEN, NUM_ENVS, point_skills

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.cli.compose import compose
from gaitway.cli.train_config import TrainConfig, choices, parse
from gaitway.core.config import ConfigError, to_config
from gaitway.core.parts import make_part
from gaitway.skills.bandit_policy import PUBLISHED, BanditPolicy, BanditPolicyConfig
from gaitway.skills.bandits import BANDITS, Agent57Bandit, UniformBandit
from gaitway.skills.deciding_policy import DECISION
from gaitway.skills.hsd_bandit import HSDBandit, HSDBanditConfig

LEARNER = {
    "batch_size": 16,
    "replay_size": 2000,
    "learning_starts": 40,
    "iteration_steps": 28,
    "update_ratio": 0.1,
    "goal_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "temperature_learning_rate": 1e-2,
}
SKILLS = point_skills()


class Told(BanditPolicy):
    """Remembers what was collected, for loops in tests."""

    def collected(self, ws, start, stop):
        super().collected(ws, start, stop)
        rows = [ws[name][start:stop].clone() for name in ("env/reward", "env/terminated", "env/truncated", DECISION)]
        self.__dict__.setdefault("rows", []).append(rows)


def make_runner(steps=23, kind=BanditPolicy, algorithm=None, **agent):
    env = make_env("point/duck", num_envs=NUM_ENVS, seed=0, max_episode_steps=steps)
    options = HIDDEN | {"subsets": "0#2#3", "bandit": {"name": "ucb", "beta": 1.0}} | agent
    policy = kind(env.spec, BanditPolicyConfig(**options), torch.Generator().manual_seed(3), skills=SKILLS)
    learner = HSDBandit(policy, HSDBanditConfig(**(LEARNER | (algorithm or {}))), num_envs=NUM_ENVS)
    return OffPolicyRunner(env, learner, RunnerConfig(total_steps=10**9))


def test_an_arm_lasts_an_episode_and_earns_its_return_at_time_limits_too():
    runner = make_runner(kind=Told)
    runner.learn(7 * 28 * NUM_ENVS)
    policy = runner.policy
    reward, terminated, truncated, decision = (torch.cat(parts) for parts in zip(*policy.rows, strict=True))
    arm, done = decision[..., 0].long(), terminated | truncated
    brought, running = defaultdict(list), torch.zeros(NUM_ENVS, dtype=torch.float64)
    for t in range(len(reward)):
        running += reward[t].double()
        for i in range(NUM_ENVS):
            if t and not done[t - 1, i]:
                assert arm[t, i] == arm[t - 1, i], "an arm is kept to the end of its episode"
            if done[t, i]:
                brought[int(arm[t, i])].append(float(running[i]))
                running[i] = 0.0
    assert bool(truncated.any())
    assert {a: len(brought[a]) for a in range(7)} == dict(enumerate(policy.bandit.counts.tolist()))
    for number, returns in brought.items():
        assert policy.bandit.means[number] == pytest.approx(sum(returns) / len(returns), abs=1e-6)
    assert min(policy.bandit.counts) > 0, "every goal space was played"
    first = arm[0].tolist()
    assert first == [0, 1, 2, 3], "instances begin with different arms"
    torch.testing.assert_close(policy.returns, running, atol=1e-6, rtol=0)
    obs = runner.env.reset()
    played = policy.act(obs, None, False)[1][:, 1]
    assert played.unique().tolist() == [float(policy.bandit.best_action())], "evaluations play the best arm"


def test_the_losses_are_those_of_the_goal_space_that_was_played():
    runner = make_runner(algorithm={"learning_starts": 10**6})
    runner.learn(84)  # 21 steps of each instance: the first four goal spaces
    algorithm, policy = runner.algorithm, runner.policy
    with torch.no_grad():
        for parameter in (*policy.critic.parameters(), *policy.target.parameters()):
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
        algorithm.temperature.log_value.copy_(torch.linspace(-1.0, 1.0, 7))
    algorithm._attach(runner.replay)
    index = runner.replay.draw((16,))
    noise = torch.randn(32, policy.goal_size, generator=torch.Generator().manual_seed(0))
    batch = algorithm._batch_of(index)
    batch |= algorithm._proposals(batch, noise)
    batch["target"] = algorithm._target(batch)
    exact = copy.deepcopy(policy).double()
    alpha = algorithm.temperature.log_value.detach().double().exp()
    mask, loss, gradient = policy.interface.action_mask.double(), 0.0, torch.zeros(7, dtype=torch.float64)
    for i in range(16):
        d = int(batch["space"][i].argmax())
        kept = mask[d]

        def proposal(inputs, noise, d=d, kept=kept):
            mean, log_std = exact.goals(inputs[None].double())[0].view(7, -1)[d].chunk(2)
            std = log_std.clamp(-5, 2).exp()
            u = mean + std * noise.double()
            density = torch.distributions.Normal(mean, std).log_prob(u) - torch.log(1 - u.tanh() ** 2)
            return u.tanh() * kept, (density * kept).sum() / kept.sum()

        one_hot = batch["space"][i : i + 1].double()
        goal, density = proposal(batch["next/actor"][i], noise[16 + i])
        value = exact.target(batch["next/critic"][i : i + 1].double(), one_hot, goal[None]).min()
        target = batch["reward"][i].double() + batch["discount"][i].double() * (value - alpha[d] * density)
        assert batch["target"][i].item() == pytest.approx(target.item(), rel=1e-4, abs=1e-4)
        goal, density = proposal(batch["actor"][i], noise[i])
        value = exact.critic(batch["critic/new"][i : i + 1].double(), one_hot, goal[None]).min()
        loss += (alpha[d] * density - value).item() / 16
        gradient[d] -= (alpha[d] * (density - 1.0)).item() / 16
    assert algorithm._goal_loss(batch)[0].item() == pytest.approx(loss, rel=1e-4)
    before = algorithm.temperature.log_value.detach().clone()
    algorithm._move_temperatures(batch)
    moved = algorithm.temperature.log_value.detach() - before
    torch.testing.assert_close(algorithm.temperature.log_value.grad.double(), gradient, atol=1e-5, rtol=1e-4)
    assert torch.equal(moved != 0, gradient != 0), "temperatures move with transitions of their goal space alone"
    assert 0 < (moved == 0).sum() < 7


def test_one_goal_space_is_sd():
    runner = make_runner(subsets="0-2", bandit={"name": "uniform"})
    runner.learn(200)
    assert runner.policy.num_spaces == 1
    assert runner.policy.interface.subsets == ("0,2",)
    assert (runner.rollout[DECISION][..., 0] == 0).all()
    assert "bandit/best" not in runner.algorithm.metrics()


def test_resume_is_exact_in_the_midst_of_a_decision():
    whole, twin = make_runner(), make_runner()
    whole.learn(9 * 28)
    state = copy.deepcopy(whole.state_dict())
    phase = state["carried"]["decision/memory"][:, 0]
    assert (phase > 0).any()
    twin.load_state_dict(state)
    for runner in (whole, twin):
        runner.learn(6 * 28)
    assert twin.parameters_sha256() == whole.parameters_sha256()
    for name, value in whole.policy.bandit.arrays().items():
        assert (twin.policy.bandit.arrays()[name] == value).all(), name
    assert torch.equal(whole.policy.waiting, twin.policy.waiting)
    broken = make_runner()
    del state["algorithm"]["policy"]["_extra_state"]["bandit"]
    with pytest.raises(KeyError):
        broken.load_state_dict(state)


def test_presets_name_their_bandits():
    """A preset that names another bandit must not inherit the options of the published one."""
    for preset, bandit in (
        ("walker_hsdb", Agent57Bandit),
        ("walker_sd", UniformBandit),
        ("humanoid_sd", UniformBandit),
    ):
        given = compose([f"experiment={preset}"], to_config(TrainConfig()), parse, **choices()).config
        entry = parse(given).agent.bandit or PUBLISHED
        made = make_part(entry, BANDITS, "agent.bandit", given={"space": gymnasium.spaces.Discrete(3), "seed": 0})
        assert type(made) is bandit


def test_bandits_of_a_configuration_are_made_by_name():
    with pytest.raises(ConfigError, match=r"agent\.bandit: there is no 'ucc'.*did you mean 'ucb'"):
        make_runner(bandit={"name": "ucc"})
    with pytest.raises(ConfigError, match=r"agent\.bandit\.eps"):
        make_runner(bandit={"name": "agent57", "eps": 2.0})
    assert make_runner(bandit={"name": "thompson"}).policy.bandit.arms == 7
