"""Multi-task SAC against float64 arithmetic written apart, and what it keeps of every task."""

from __future__ import annotations

import math

import pytest
import torch
from float64_networks import follow, forward, single, stir_critics, tanh_gaussian
from torch.testing import assert_close

from gaitway import make_env
from gaitway.agents.skill_policy import SkillPolicy, SkillPolicyConfig
from gaitway.algorithms.algorithm import Now
from gaitway.core.seeding import stream
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.rewards.source import Rewards
from gaitway.skills.multitask_sac import MultitaskSAC, MultitaskSACConfig

NUM_ENVS, BATCH = 4, 32


@pytest.fixture(scope="module")
def spec():
    with make_env("walker/skills", rank_max=5) as env:
        return env.spec


def make(spec, per_task=False, **options) -> MultitaskSAC:
    policy = SkillPolicy(
        spec,
        SkillPolicyConfig(actor_hidden=(16, 16, 16), critic_hidden=(16, 16, 16)),
        torch.Generator().manual_seed(3),
    )
    stir_critics(policy)
    config = MultitaskSACConfig(
        batch_size=BATCH,
        replay_size=4096,
        learning_starts=0,
        per_task_temperature=per_task,
        actor_learning_rate=1e-2,
        critic_learning_rate=2e-2,
        temperature_learning_rate=3e-2,
        tau=0.1,
        **options,
    )
    return MultitaskSAC(policy, config, num_envs=NUM_ENVS, seed=0)


def filled(algorithm: MultitaskSAC, steps: int = 150):
    """A replay of random play: goals of several tasks begin, are reached, given up and lost by falling."""
    with make_env("walker/skills", num_envs=NUM_ENVS, rank_max=5, max_steps=9, reset_p=0.05, precision=0.5) as env:
        world = EnvAgent(env)
        variables = world.variables(steps)
        world.restore(env.reset())
        variables["action"] = Variable(steps, NUM_ENVS, env.spec.action.shape, torch.float32)
        ws = Workspace.dense(variables, "cpu")
        generator = torch.Generator().manual_seed(1)
        for t in range(steps):
            world.observe.step(ws, t)
            ws.put("action", t, torch.rand(NUM_ENVS, 6, generator=generator) * 1.6 - 0.8)
            world.advance.step(ws, t)
    algorithm.keep(variables, env.spec.group_names, Rewards())
    replay = algorithm.make_replay()
    replay.add(ws)
    return replay


class Plain:
    """The same updates in float64, network by network and row by row, with torch's Adam."""

    def __init__(self, algorithm: MultitaskSAC) -> None:
        policy = algorithm.policy
        self.config, self.horizon = algorithm.config, algorithm.facts.horizon
        self.order = policy.groups["actor"]
        self.actor = single(policy.actor, None)
        self.members = [single(policy.critic, member) for member in range(3)]
        self.targets = [single(policy.target, member) for member in range(3)]
        self.target_actor = single(policy.target_actor, None)
        for network in (self.actor, *self.members):
            for value in network.values():
                value.requires_grad_(True)
        self.log_alpha = {
            key: torch.tensor(math.log(0.1), dtype=torch.float64, requires_grad=True) for key in range(128)
        }
        config = self.config
        self.actor_optimiser = torch.optim.Adam(self.actor.values(), lr=config.actor_learning_rate)
        parameters = [value for network in self.members for value in network.values()]
        self.critic_optimiser = torch.optim.Adam(parameters, lr=config.critic_learning_rate)
        self.alpha_optimisers = {
            key: torch.optim.Adam([value], lr=config.temperature_learning_rate) for key, value in self.log_alpha.items()
        }

    def update(self, drawn, noise) -> None:
        drawn = {name: value.double() for name, value in drawn.items()}
        noise = {name: value.double() for name, value in noise.items()}
        gamma = 1 - 1 / self.horizon
        now, after = (torch.cat([drawn[f"{when}/{name}"] for name in self.order], -1) for when in ("obs", "next_obs"))
        keys = [int(key) for key in drawn["env/metric/task_key"]]
        own = [key if self.config.per_task_temperature else 0 for key in keys]
        alpha = torch.stack([self.log_alpha[key].detach().exp() for key in own])
        terminal = (drawn["discount"] == 0).double()
        with torch.no_grad():
            action, log_prob = tanh_gaussian(self.actor, after, noise["next_action"])
            pair = torch.cat((after, action), -1)
            first, second, reach = (forward(target, pair)[:, 0] for target in self.targets)
            value = torch.minimum(first, second) - alpha * log_prob
            y = drawn["reward"] + gamma * (1 - terminal) * value
            last = [
                float(end == 1 and given_up == 0)
                for end, given_up in zip(
                    drawn["env/metric/last_step_of_task"], drawn["env/metric/random_reset"], strict=True
                )
            ]
            reachable = drawn["env/metric/reached_goal"] + (1 - torch.tensor(last, dtype=torch.float64)) * reach
        pair = torch.cat((now, drawn["action"]), -1)
        loss = torch.zeros((), dtype=torch.float64)
        for network, target in zip(self.members, (y, y, reachable), strict=True):
            loss = loss + ((forward(network, pair)[:, 0] - target) ** 2).mean()
        self.critic_optimiser.zero_grad()
        loss.backward()
        self.critic_optimiser.step()
        action, log_prob = tanh_gaussian(self.actor, now, noise["action"])
        pair = torch.cat((now, action), -1)
        least = torch.minimum(*(forward(network, pair)[:, 0] for network in self.members[:2]))
        self.actor_optimiser.zero_grad()
        (alpha * log_prob - least).mean().backward()
        self.actor_optimiser.step()
        for key in dict.fromkeys(own):
            rows = [row for row, each in enumerate(own) if each == key]
            mean = log_prob.detach()[rows].mean()
            self.alpha_optimisers[key].zero_grad()
            (-self.log_alpha[key].exp() * (mean - 6.0)).backward()
            self.alpha_optimisers[key].step()
        for target, online in (*zip(self.targets, self.members, strict=True), (self.target_actor, self.actor)):
            follow(target, online, self.config.tau)


@pytest.mark.parametrize("per_task", [False, True], ids=["one_temperature", "per_task"])
def test_three_updates_are_those_of_a_plain_implementation(spec, per_task):
    algorithm = make(spec, per_task)
    replay, twin = filled(algorithm), filled(algorithm)
    plain = Plain(algorithm)
    noise_stream = stream(0, "multitasksac")
    seen = set()
    for _ in range(3):
        drawn = twin.gather(twin.draw((BATCH,)))
        seen |= {
            (float(a), float(b)) for a, b in zip(drawn["env/metric/last_step_of_task"], drawn["discount"], strict=True)
        }
        now, following = torch.empty(2 * BATCH, 6).normal_(generator=noise_stream).chunk(2)
        noise = {"action": now, "next_action": following}
        plain.update(drawn, noise)
    assert len(seen) >= 3  # goals that end, episodes that end, neither
    algorithm.update(replay, 3, Now())
    policy = algorithm.policy
    pairs = [(single(policy.actor, None), plain.actor), (single(policy.target_actor, None), plain.target_actor)]
    pairs += [(single(policy.critic, member), plain.members[member]) for member in range(3)]
    pairs += [(single(policy.target, member), plain.targets[member]) for member in range(3)]
    for ours, theirs in pairs:
        for name, value in theirs.items():
            assert_close(ours[name], value.detach(), atol=2e-5, rtol=1e-4)
    ours = algorithm.temperature.log_value.detach().double()
    theirs = torch.stack([plain.log_alpha[key].detach() for key in range(len(ours))])
    assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert (theirs != math.log(0.1)).any()
    if per_task:
        assert (theirs == math.log(0.1)).sum() > 60  # tasks that no batch met
