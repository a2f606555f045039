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
from gaitway.data.mixing import MixedReplay
from gaitway.envs.env_agent import EnvAgent
from gaitway.rewards.source import Rewards
from gaitway.skills.controllability import estimate_controllability
from gaitway.skills.multitask_sac import MultitaskSAC, MultitaskSACConfig, TaskCounts

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


RANDOM_ENDS = {"max_steps": 9, "reset_p": 0.05, "precision": 0.5}


def played(steps: int, **options):
    """Rows of random play."""
    with make_env("walker/skills", num_envs=NUM_ENVS, rank_max=5, **options) as env:
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
    return ws, variables


def filled(algorithm: MultitaskSAC, steps: int = 150):
    """A replay of random play: goals of several tasks begin, are reached, given up and lost by falling."""
    ws, variables = played(steps, **RANDOM_ENDS)
    algorithm.keep(variables, algorithm.policy.spec.group_names, Rewards())
    replay = algorithm.make_replay()
    replay.add(ws)
    return replay


class Plain:
    """The same updates in float64, network by network and row by row, with torch's Adam.

    With `published_order` reachability is learnt last, from actions of its own of the policy as it is then.
    """

    def __init__(self, algorithm: MultitaskSAC, published_order: bool = False) -> None:
        policy, self.published_order = algorithm.policy, published_order
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
        self.optimisers = [
            torch.optim.Adam(network.values(), lr=config.critic_learning_rate) for network in self.members
        ]
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
        done = torch.cat((now, drawn["action"]), -1)
        with torch.no_grad():
            action, log_prob = tanh_gaussian(self.actor, after, noise["next_action"])
            pair = torch.cat((after, action), -1)
            first, second = (forward(target, pair)[:, 0] for target in self.targets[:2])
            value = torch.minimum(first, second) - alpha * log_prob
            y = drawn["reward"] + gamma * (1 - terminal) * value
        self.fit(0, done, y)
        self.fit(1, done, y)
        if not self.published_order:
            self.fit(2, done, self.reachable(drawn, after, noise["next_action"]))
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
        if self.published_order:
            self.fit(2, done, self.reachable(drawn, after, noise["reach_action"]))
        for target, online in (*zip(self.targets, self.members, strict=True), (self.target_actor, self.actor)):
            follow(target, online, self.config.tau)

    def fit(self, member, pair, target) -> None:
        self.optimisers[member].zero_grad()
        ((forward(self.members[member], pair)[:, 0] - target) ** 2).mean().backward()
        self.optimisers[member].step()

    @torch.no_grad()
    def reachable(self, drawn, after, noise):
        ends = zip(drawn["env/metric/last_step_of_task"], drawn["env/metric/random_reset"], strict=True)
        last = torch.tensor([float(end == 1 and given_up == 0) for end, given_up in ends], dtype=torch.float64)
        action, _ = tanh_gaussian(self.actor, after, noise)
        reach = forward(self.targets[2], torch.cat((after, action), -1))[:, 0]
        return drawn["env/metric/reached_goal"] + (1 - last) * reach


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


def test_the_published_order_of_updates_differs_in_reachability_alone(spec):
    """Critics, actor and temperature do not read it. What it says itself differs, because the actor that its target
    asks is a step older there, by less than a tenth of what it has learnt, at rates a hundred times those of training;
    that it draws no a' of its own adds the noise of another draw."""
    algorithm = make(spec)
    replay = filled(algorithm)
    ours, published = Plain(algorithm), Plain(algorithm, published_order=True)
    rows = replay.gather(replay.slots(replay.first_row, replay.stop_row))
    pair = torch.cat([*(rows[f"obs/{name}"] for name in ours.order), rows["action"]], -1).double()
    first = forward(ours.members[2], pair).detach()
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        drawn = {name: value.clone() for name, value in replay.gather(replay.draw((BATCH,))).items()}
        noise = {name: torch.randn(BATCH, 6, generator=generator) for name in ("action", "next_action")}
        noise["reach_action"] = noise["next_action"]
        ours.update(drawn, noise)
        published.update(drawn, noise)
    for one, other in ((ours.actor, published.actor), *zip(ours.members[:2], published.members[:2], strict=True)):
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(torch.equal(ours.log_alpha[key], published.log_alpha[key]) for key in ours.log_alpha)
    one, other = (forward(plain.members[2], pair).detach() for plain in (ours, published))
    learnt, apart = (one - first).square().mean().sqrt(), (one - other).square().mean().sqrt()
    assert 0 < apart < 0.1 * learnt


# sizes, on the robots themselves


@pytest.mark.parametrize(
    ("env_id", "observation", "goal", "actions", "inputs"),
    [
        ("walker/skills", 59, 7, 6, 73),
        ("humanoid/skills", 149, 10, 21, 169),
        ("humanoidpc/skills", 149, 10, 21, 169),
        ("point/skills", 9, 4, 4, 17),
    ],
)
def test_policies_of_the_robots_read_goal_observation_and_task(env_id, observation, goal, actions, inputs):
    with make_env(env_id, num_envs=3) as env:
        obs, spec = {name: value.clone() for name, value in env.reset().items()}, env.spec
    policy = SkillPolicy(spec, SkillPolicyConfig(actor_hidden=(8, 8), critic_hidden=(8, 8)))
    assert policy.groups["actor"] == policy.groups["critic"] == ("desired_goal", "observation", "task")
    sizes = [spec.group(name).shape for name in policy.groups["actor"]]
    assert sizes == [(goal,), (observation,), (goal,)]
    assert inputs == observation + 2 * goal
    actor, critic = policy.network_input(obs, "actor"), policy.network_input(obs, "critic")
    assert_close(actor, torch.cat([obs[name] for name in ("desired_goal", "observation", "task")], -1))
    assert actor.shape == critic.shape == (3, inputs)
    assert policy.actor.trunk.input.weight.shape[0] == inputs
    assert policy.mean_action(actor).shape == (3, actions)
    # two critics and reachability, which read the action too: critics say 0 at first, reachability hardly varies
    values = policy.values(policy.critic, critic, policy.mean_action(actor))
    assert policy.critic.network.trunk.input.weight.shape[:2] == (3, inputs + actions)
    assert torch.equal(values[:2], torch.zeros(2, 3))
    assert 0 < float(policy.critic.network.last.weight[2].detach().abs().max()) <= 0.003
    with torch.no_grad():
        policy.critic.network.last.bias[2] += 3.0
    assert policy.reach(critic, policy.mean_action(actor)).tolist() == [1.0] * 3  # read as a probability


def test_critics_may_start_as_the_published_ones_do(spec):
    """All layers after the first smaller by 1 / sqrt(2), those of the critics; reachability was a network apart."""

    def critic(**options):
        config = SkillPolicyConfig(actor_hidden=(8,), critic_hidden=(6, 5, 4), **options)
        return SkillPolicy(spec, config, torch.Generator().manual_seed(0)).critic.network

    usual, named, scaled = critic(), critic(published_scale=False), critic(published_scale=True)
    assert all(torch.equal(one, other) for one, other in zip(usual.parameters(), named.parameters(), strict=True))
    scale = torch.tensor([0.5**0.5, 0.5**0.5, 1.0])[:, None, None]
    for name in ("weight", "bias"):
        before, found = (getattr(each.trunk.input, name, each.trunk.bias) for each in (usual, scaled))
        assert_close(found, torch.cat((before[..., :6], before[..., 6:] * scale), -1))
    for before, found in zip(usual.trunk.hidden, scaled.trunk.hidden, strict=True):
        assert_close(found.weight, before.weight * scale)
    assert torch.equal(scaled.last.weight[:2], torch.zeros(2, 4, 1))
    with pytest.raises(ValueError, match="published_scale is for uniform starts"):
        critic(published_scale=True, init="orthogonal")
    own = {"name": "torch.nn:Linear", "in_features": 79, "out_features": 1}
    with pytest.raises(ValueError, match=r"agent.published_scale scales .* agent.critic_network names other ones"):
        critic(published_scale=True, critic_network=own)


def test_numbers_of_the_published_learner(spec):
    config = MultitaskSACConfig()
    assert (config.tau, config.replay_size, config.learning_starts, config.update_ratio) == (
        0.005,
        3_000_000,
        10_000,
        0.05,
    )
    assert config.actor_learning_rate == config.critic_learning_rate == config.temperature_learning_rate == 1e-4
    assert config.initial_temperature == 0.1
    algorithm = make(spec)
    assert algorithm.config.gamma == pytest.approx(0.986111, abs=1e-6)  # auto_horizon: 1 - 1/72
    assert algorithm.target_entropy == -6.0
    assert make(spec, gamma=0.9).config.gamma == 0.9
    with pytest.raises(ValueError, match="n_step=1"):
        MultitaskSACConfig(n_step=2)


# what is learnt from


def test_critics_look_through_the_change_of_a_goal(spec):
    """The 100th goal and falls are terminal; otherwise the next observation shows the next goal."""
    algorithm = make(spec)
    replay = filled(algorithm)
    drawn = replay.gather(replay.slots(replay.first_row, replay.stop_row))
    last, discount = drawn["env/metric/last_step_of_task"] == 1, drawn["discount"]
    change = last & (discount > 0)
    assert int(change.sum()) > 20
    assert_close(discount[change], torch.full_like(discount[change], algorithm.config.gamma))
    other = (drawn["obs/task"] != drawn["next_obs/task"]).any(-1)
    jump = (drawn["obs/desired_goal"] - drawn["next_obs/desired_goal"]).abs().amax(-1) > 0.2
    assert float((other | jump)[change].float().mean()) > 0.9
    assert not other[~last].any()  # and within a goal the task stays
    assert bool(last[discount == 0].all())
    given_up = drawn["env/metric/random_reset"] == 1
    assert bool((last & given_up).any())
    batch = algorithm_batch(algorithm, replay)
    assert torch.equal(batch["last"], (last & ~given_up).float())  # what was given up says nothing of what is possible


def algorithm_batch(algorithm, replay):
    algorithm.update(replay, 0, Now())  # from this replay
    return algorithm._batch_of(replay.slots(replay.first_row, replay.stop_row))


@pytest.mark.parametrize("per_task", [False, True], ids=["one_temperature", "per_task"])
@pytest.mark.parametrize("target", [-100.0, 100.0])
def test_temperatures_rise_where_the_entropy_is_below_its_target(spec, per_task, target):
    algorithm = make(spec, per_task, target_entropy=target)
    algorithm.update(filled(algorithm), 3, Now())
    moved = algorithm.temperature.log_value.detach() - math.log(0.1)
    met = moved != 0
    assert 0 < int(met.sum()) < (127 if per_task else 2)
    assert bool(((moved > 0) == (target > 0))[met].all())
    if per_task:
        assert met.tolist() == (algorithm.counts.used > 0).tolist()  # tasks of the batches, and no others


def test_moving_td_errors_by_hand():
    counts = TaskCounts(4)
    counts.note_errors(torch.tensor([1, 1, 3]), torch.tensor([2.0, 4.0, 5.0]))
    assert counts.error.tolist() == [0.0, 3.0, 0.0, 5.0]  # the first value stands as it is
    assert counts.known.tolist() == [0.0, 1.0, 0.0, 1.0]
    counts.note_errors(torch.tensor([1, 2, 1]), torch.tensor([1.0, 7.0, 2.0]))
    # 3 + 0.01 (1.5 - 3); a task that is not met stays
    assert_close(counts.error, torch.tensor([0.0, 2.985, 7.0, 5.0]))


def test_td_errors_and_samples_are_kept_by_task_and_noted_every_tenth_round(spec):
    algorithm = make(spec)
    replay = filled(algorithm)
    assert algorithm.td_errors() == algorithm.samples() == {}
    noted = []
    for _ in range(21):
        before = algorithm.counts.error.clone()
        algorithm.update(replay, 2, Now())
        noted.append(not torch.equal(before, algorithm.counts.error))
    assert [number for number, is_noted in enumerate(noted) if is_noted] == [0, 10, 20]
    algorithm.update(replay, 0, Now())  # no round
    errors, samples = algorithm.td_errors(), algorithm.samples()
    assert sum(samples.values()) == 21 * 2 * BATCH
    assert set(errors) <= set(samples) <= set(algorithm.facts.names.values())
    assert any("+" in task and "," in task for task in samples)  # in group spelling
    assert all(error > 0 for error in errors.values())
    metrics = algorithm.metrics()
    for task, count in samples.items():
        assert float(metrics[f"samples/{task}"]) == count
    assert float(metrics["residual_variance"]) > 0


@pytest.mark.parametrize("overlap", [False, True])
def test_rounds_are_counted_not_the_calls_that_they_come_in(spec, overlap):
    algorithm = make(spec, overlap=overlap)
    ws, variables = played(60)
    algorithm.keep(variables, algorithm.policy.spec.group_names, Rewards())
    replay = algorithm.make_replay()
    noted = []
    for row in range(0, 60, 3):
        replay.add(ws, row, row + 3)
        before = algorithm.counts.error.clone()
        for updates in (2, 1, 1) if overlap else (4,):  # while each of three steps is simulated, or behind them
            algorithm.update(replay, updates, Now())
        noted.append(not torch.equal(before, algorithm.counts.error))
    assert [number for number, is_noted in enumerate(noted) if is_noted] == [0, 10]


def test_what_was_collected_of_every_task_is_counted(spec):
    algorithm, twin = make(spec), make(spec)
    ws, variables = played(150, **RANDOM_ENDS)
    for each in (algorithm, twin):
        each.keep(variables, each.policy.spec.group_names, Rewards())
    replay = algorithm.make_replay()

    def collected(rows):
        return torch.bincount(ws["env/metric/task_key"][:rows].flatten().long(), minlength=128).double()

    assert algorithm.metrics() == {}
    for start, stop in ((0, 40), (40, 40), (40, 150)):
        replay.add(ws, start, stop)
        algorithm.update(replay, 1, Now())
        assert torch.equal(algorithm.counts.seen, collected(stop))
    twin.load_state_dict(algorithm.state_dict())
    twin.update(replay, 1, Now())  # which has no further rows
    assert torch.equal(twin.counts.seen, collected(150))
    found = {name: float(value) for name, value in algorithm.metrics().items() if name.startswith("seen/")}
    assert sum(found.values()) == 150 * NUM_ENVS
    assert found["seen/0"] == float(collected(150)[1])
    older = algorithm.state_dict()
    del older["counted_rows"], older["counts"]["seen"]  # a checkpoint of an earlier version
    twin.load_state_dict(older)
    twin.update(replay, 1, Now())
    assert torch.equal(twin.counts.seen, collected(150))
    small = algorithm.make_replay()  # a run that goes on with an empty replay
    small.add(ws, 0, 10)
    algorithm.update(small, 1, Now())
    assert torch.equal(algorithm.counts.seen, collected(150) + collected(10))


# what is asked of the models


def test_controllability_is_asked_where_goals_begin_and_changes_nothing(spec):
    algorithm = make(spec)
    tasks = ["0", "1", "0,3+4"]
    assert estimate_controllability(algorithm, tasks).r == dict.fromkeys(tasks, 0.0)  # before anything was learnt
    replay = filled(algorithm)
    algorithm.update(replay, 3, Now())
    index = replay.draw_where(64, "env/metric/time", 0.0, torch.Generator().manual_seed(0))
    assert bool((replay.gather(index)["env/metric/time"] == 0).all())
    assert len(set(index.tolist())) > 20
    assert len(replay.draw_where(64, "env/metric/time", 0.5, torch.Generator())) == 0
    before = algorithm.state_dict(), replay.generator.get_state()
    first, second = (estimate_controllability(algorithm, tasks) for _ in range(2))
    assert first == second
    assert torch.equal(replay.generator.get_state(), before[1])
    assert torch.equal(algorithm.generator.get_state(), before[0]["noise_stream"])
    assert list(first.r) == list(first.q) == tasks
    assert all(0 <= p <= 1 for found in first for p in found.values())
    assert len(set(first.r.values())) == 3  # it depends on the task
    with torch.no_grad():  # reachability of 2 everywhere is read as 1, critics of -100 as out of reach
        algorithm.policy.critic.network.last.weight.zero_()
        algorithm.policy.critic.network.last.bias.fill_(2.0)
        algorithm.policy.critic.network.last.bias[:2].fill_(-100.0)
    found = estimate_controllability(algorithm, tasks)
    assert found.r == dict.fromkeys(tasks, 1.0)
    assert found.q == dict.fromkeys(tasks, 0.0)
    small = algorithm.make_replay()
    small.add(played(12, precision=1e-9, allow_fallover=True)[0], 4, 12)  # no goal begins in these rows
    algorithm.update(small, 1, Now())
    assert estimate_controllability(algorithm, tasks).r == dict.fromkeys(tasks, 0.0)


def test_what_a_dataset_adds_is_not_asked(spec):
    algorithm = make(spec)
    lived, dataset = filled(algorithm), filled(make(spec))
    algorithm.update(lived, 2, Now())
    state, alone = algorithm.state_dict(), estimate_controllability(algorithm, ["0", "1"])
    algorithm.update(MixedReplay(lived, dataset, 0.5), 2, Now())
    algorithm.load_state_dict(state)
    assert estimate_controllability(algorithm, ["0", "1"]) == alone
