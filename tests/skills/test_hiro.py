"""HIRO: what each level learns of a replay against loops over its rows, relabelling, and what the policy remembers."""

from dataclasses import replace

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from gaitway.agents.hiro_policy import GOAL, PHASE, HiroPolicy, HiroPolicyConfig
from gaitway.agents.observations import Observations
from gaitway.core.seeding import stream
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.envs.registry import make_env
from gaitway.runners.off_policy import OffPolicyRunner
from gaitway.runners.runner_config import RunnerConfig
from gaitway.skills.hiro import Hiro, HiroConfig

INTERVAL = 4
AGENT = HiroPolicyConfig(
    observations=Observations(("observation", "desired_goal")),
    interval=INTERVAL,
    features="gs_observation",
    goal_ranges={"z": [-0.5, 0.5], "x": [-1.0, 2.0]},
    hide_from_low=("tilt",),
    actor_hidden=(16,),
    critic_hidden=(16,),
)
LEARNER = HiroConfig(
    batch_size=24, replay_size=800, learning_starts=60, iteration_steps=100, update_ratio=0.1, gamma=0.9, ctrl_cost=0.01
)
ENV = {"max_steps": 7, "full_episodes": True, "implicit_soft_resets": False, "hard_reset_interval": 3}


def runner(agent=AGENT, learner=LEARNER, steps=240, **options):
    env = make_env("point/skills", 4, seed=0, **(ENV | options))
    policy = HiroPolicy(env.spec, agent, stream(0, "parameters"))
    made = OffPolicyRunner(env, Hiro(policy, learner, num_envs=4), RunnerConfig(total_steps=steps))
    made.learn()
    return made


@pytest.fixture(scope="module")
def played():
    made = runner()
    index = made.replay.draw((24,))
    return made.algorithm, index, made.replay.window(index, 2 * INTERVAL - 1)


def features(ws, t, b, after=False):
    """z and x, in the order of the goal ranges."""
    group = ws.following("env/obs/gs_observation") if after else ws["env/obs/gs_observation"]
    return group[t, b, [2, 0]].double()


def test_the_low_level_learns_what_is_left_of_its_goals(played):
    algorithm, index, ws = played
    batch, terminations = algorithm.low_batch(index), 0
    half = torch.tensor([0.5, 1.5], dtype=torch.float64)
    for b in range(24):
        here, goal = features(ws, 0, b), ws[GOAL][0, b].double()
        terminated = bool(ws["env/terminated"][0, b])
        terminations += terminated
        left = goal if terminated else goal + here - features(ws, 0, b, after=True)
        earned = (
            (goal / half).norm()
            - (left / half).norm()
            - float(ws["env/metric/fell"][0, b])
            - 0.01 * ws["action"][0, b].double().square().sum()
        )
        assert batch["reward"][b].item() == pytest.approx(earned.item(), abs=1e-5)
        assert batch["discount"][b].item() == pytest.approx(0.0 if ws["env/metric/fell"][0, b] else 0.9)
        torch.testing.assert_close(batch["critic"][b, -2:].double(), goal, atol=1e-6, rtol=0)
        torch.testing.assert_close(batch["next/critic"][b, -2:].double(), left, atol=1e-5, rtol=0)
    assert terminations > 0
    known = [component.name for component in algorithm.policy.spec.group("observation").components]
    seen = torch.cat([ws["env/obs/observation"][0], ws["env/obs/desired_goal"][0]], -1)
    kept = [number for number in range(seen.shape[1]) if number != known.index("tilt")]
    torch.testing.assert_close(batch["actor"][:, :-2], seen[:, kept])


def test_the_low_level_bootstraps_where_its_task_ended_without_a_fall():
    """By the observation of the step itself: what a termination led to is not kept, and the next row is another
    episode's. A task that does not tell falls stops the bootstrap at every termination."""
    made = runner(steps=480, max_steps=30)
    algorithm, slots = made.algorithm, made.replay.slots(made.replay.first_row, made.replay.stop_row)
    ws = made.replay.window(slots, 1)
    fell, terminated = ws["env/metric/fell"][0].bool(), ws["env/terminated"][0]
    reached = terminated & ~fell
    assert reached.any()
    assert (terminated & fell).any()
    batch = algorithm.low_batch(slots)
    assert torch.equal(batch["discount"], torch.where(fell, 0.0, 0.9))
    torch.testing.assert_close(batch["next/critic"][reached], batch["critic"][reached], atol=1e-6, rtol=0)
    assert not torch.equal(batch["next/critic"][~terminated], batch["critic"][~terminated])
    algorithm.reads = tuple(name for name in algorithm.reads if name != "env/metric/fell")
    assert torch.equal(algorithm.low_batch(slots)["discount"], torch.where(terminated, 0.0, 0.9))


def stretches(ws, columns=24):
    """(first row, length) of the first whole decision of every column."""
    for b in range(columns):
        start = next(t for t in range(INTERVAL) if ws[PHASE][t, b] == 0)
        length = 1
        while length < INTERVAL and not bool(ws["env/done"][start + length - 1, b]):
            length += 1
        yield b, start, length


def plain(algorithm, **changes):
    """The same with another configuration."""
    algorithm.config = replace(LEARNER, **changes)
    return algorithm


def noise_of(algorithm, seed=0):
    generator = stream(seed, "noise")
    return {name: torch.rand(draw.shape, generator=generator) for name, draw in algorithm.draws.items()}


def test_the_high_level_learns_the_mean_reward_of_stretches(played):
    algorithm, index, ws = played
    batch, lengths = plain(algorithm, relabel=False).high_batch(index, noise_of(algorithm)), set()
    for b, start, length in stretches(ws):
        end = start + length - 1
        assert batch["reward"][b].item() == pytest.approx(
            ws["env/reward"][start : end + 1, b].double().mean().item(), abs=1e-6
        )
        terminated = bool(ws["env/terminated"][end, b])
        assert batch["discount"][b].item() == pytest.approx(0.0 if terminated else 0.9)
        torch.testing.assert_close(
            batch["actor"][b], torch.cat([ws[f"env/obs/{n}"][start, b] for n in ("observation", "desired_goal")])
        )
        if not terminated:
            after = [ws.following(f"env/obs/{name}")[end, b] for name in ("observation", "desired_goal")]
            torch.testing.assert_close(batch["next/actor"][b], torch.cat(after))
        torch.testing.assert_close(algorithm.policy.goal_of(batch["action"][b]), ws[GOAL][start, b], atol=1e-5, rtol=0)
        lengths.add(length)
    assert len(lengths) > 1


def test_the_dense_form_learns_from_any_step_of_a_stretch():
    made = runner(replace(AGENT, dense=True))
    algorithm = made.algorithm
    assert algorithm.cycle == 1
    index = made.replay.draw((24,))
    ws, noise = made.replay.window(index, 2 * INTERVAL - 1), noise_of(algorithm)
    batch, offsets = plain(algorithm, relabel=False).high_batch(index, noise), set()
    for b, start, length in stretches(ws):
        offset = int(noise["offset"][b] * length)
        rewards = ws["env/reward"][start + offset : start + length, b].double()
        total = sum(0.9**k * float(reward) for k, reward in enumerate(rewards))
        assert batch["reward"][b].item() == pytest.approx(total, abs=1e-6)
        terminated = bool(ws["env/terminated"][start + length - 1, b])
        assert batch["discount"][b].item() == pytest.approx(0.0 if terminated else 0.9 ** (length - offset), rel=1e-6)
        assert batch["critic"][b, -1].item() == offset
        assert batch["next/critic"][b, -1].item() == 0
        seen = torch.cat([ws[f"env/obs/{name}"][start + offset, b] for name in ("observation", "desired_goal")])
        torch.testing.assert_close(batch["actor"][b], seen)
        offsets.add(offset)
    assert len(offsets) > 1


def test_rows_that_only_reset_are_no_stretches():
    """Episodes of two whole stretches, each followed by a row in which nothing is decided: behind a step of phase 1 of
    the last one, the next decision is made INTERVAL rows later."""
    vector = SyncVectorEnv(
        [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=2 * INTERVAL)] * 4,
        autoreset_mode=AutoresetMode.NEXT_STEP,
    )
    env = GymnasiumEnv(vector, seed=0)
    assert env.spec.reset_rows
    agent = HiroPolicyConfig(
        interval=INTERVAL, features="policy", goal_ranges={"policy_0": [-1, 1]}, actor_hidden=(8,), critic_hidden=(8,)
    )
    policy = HiroPolicy(env.spec, agent, stream(0, "parameters"))
    made = OffPolicyRunner(env, Hiro(policy, LEARNER, num_envs=4), RunnerConfig(total_steps=200))
    made.learn()
    replay, algorithm = made.replay, plain(made.algorithm, relabel=False)
    slots = replay.slots(replay.first_row, replay.stop_row)
    ws, batch = replay.window(slots, 2 * INTERVAL), algorithm.high_batch(slots, {})
    skipped, latest = 0, 0
    for b in range(len(slots)):
        start = next(t for t in range(INTERVAL + 1) if ws[PHASE][t, b] == 0 and ws["env/valid"][t, b])
        skipped, latest = skipped + (not ws["env/valid"][:start, b].all()), max(latest, start)
        length = next((k for k in range(1, INTERVAL) if ws["env/done"][start + k - 1, b]), INTERVAL)
        torch.testing.assert_close(batch["actor"][b], ws["env/obs/policy"][start, b])
        torch.testing.assert_close(batch["next/actor"][b], ws["env/obs/policy"][start + length, b])
        earned = ws["env/reward"][start : start + length, b].mean()
        torch.testing.assert_close(batch["reward"][b], earned)
    assert (skipped > 10, latest) == (True, INTERVAL)


def test_stretches_are_whole_after_an_interruption():
    """Rows that were cut off can be drawn when all rows of their windows have come, not before."""
    made = runner()
    replay, algorithm = made.replay, plain(made.algorithm, relabel=False)
    groups = ("observation", "desired_goal")
    replay.cut()
    for rows in (2, 2 * INTERVAL):  # cut in the midst of a stretch, and behind whole ones
        made.stage.new_episodes()
        made.stage.play(0, made.stage.rows, uniform=True)
        replay.add(made.rollout, 0, rows)
        replay.cut()
        slots = replay.slots(replay.first_row, replay.stop_row)
        stored = replay.rows(replay.first_row, replay.rows_added)
        decided = torch.cat([stored[f"env/obs/{name}"] for name in groups], -1)[stored[PHASE] == 0]
        batch, ws = algorithm.high_batch(slots, {}), replay.window(slots, algorithm.n_step)
        for b, start, length in stretches(ws, len(slots)):
            assert (batch["actor"][b] == decided).all(-1).any(), "somebody decided there"
            earned = ws["env/reward"][start : start + length, b].mean()
            torch.testing.assert_close(batch["reward"][b], earned)
    assert replay.stop_row == replay.rows_added - algorithm.n_step + 1


def test_relabelling_equals_enumeration(played):
    algorithm, index, ws = played
    policy, noise = algorithm.policy, noise_of(algorithm, 1)
    batch, changed = plain(algorithm).high_batch(index, noise), 0
    low, high = policy.goal_low.double(), policy.goal_high.double()
    for b, start, length in stretches(ws):
        end, first = start + length - 1, features(ws, start, b)
        terminated = bool(ws["env/terminated"][end, b])
        achieved = (features(ws, end, b) if terminated else features(ws, end, b, after=True)) - first
        draws = [achieved + noise["goals"][k, b].double() * 0.25 * (high - low) for k in range(8)]
        candidates = [ws[GOAL][start, b].double(), *(each.clamp(low, high) for each in (achieved, *draws))]
        totals = []
        for candidate in candidates:
            total = 0.0
            for t in range(start, end + 1):
                observed = {name: ws[f"env/obs/{name}"][t, b] for name in ("observation", "desired_goal")}
                left = (first + candidate - features(ws, t, b)).float()
                action = policy.range.unit(ws["action"][t, b])
                total += policy.low.log_prob(policy.low_input(observed, left), action).item()
            totals.append(total)
        best = totals.index(max(totals))
        changed += best != 0
        torch.testing.assert_close(batch["goal"][b].double(), candidates[best], atol=1e-5, rtol=1e-5)
    assert changed > 5


def test_goals_stay_while_the_low_level_is_the_same_and_nearly_certain():
    learner = replace(LEARNER, learning_starts=0, update_ratio=1e-6, batch_size=64)
    env = make_env("point/skills", 8, seed=0, **ENV)
    policy = HiroPolicy(env.spec, AGENT, stream(0, "parameters"))
    with torch.no_grad():
        policy.low.actor.last.weight[4:] = 0.0
        policy.low.actor.last.bias[4:] = -5.0  # deviations of 0.007
        policy.low.actor.last.weight[:4] *= 5.0  # so that goals matter
    made = OffPolicyRunner(env, Hiro(policy, learner, num_envs=8), RunnerConfig(total_steps=10**6))
    made.learn(400)
    algorithm = made.algorithm
    algorithm._attach(made.replay)
    index = made.replay.draw((64,))

    def kept():
        batch = algorithm.high_batch(index, noise_of(algorithm, 2))
        return (batch["goal"] == batch["stored"]).all(-1).float().mean().item()

    assert kept() >= 0.95
    with torch.no_grad():  # a low level that has changed since
        for parameter in policy.low.actor.trunk.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=stream(3, "change")), alpha=0.5)
    assert kept() < 0.6


def test_goals_are_kept_and_carried_between_decisions():
    env = make_env("point/skills", 3, seed=0, **ENV)
    policy = HiroPolicy(env.spec, AGENT, stream(0, "parameters"))
    policy.seed(0)
    obs, state, targets = env.reset(), None, []
    for step in range(6):
        action, state = policy.act(obs, state, True)
        assert state[:, 0].tolist() == [step % INTERVAL + 1.0] * 3
        targets.append(state[:, 1:].clone())
        obs = env.step(action.detach()).obs
    for step in range(1, INTERVAL):
        assert torch.equal(targets[step], targets[0]), "the target stays where it was set"
    assert not torch.equal(targets[INTERVAL], targets[0])
    goal = policy.goal_of(torch.tensor([[-1.0, 1.0], [0.0, 0.0]]))
    assert goal.tolist() == [[-0.5, 2.0], [0.0, 0.5]]
    torch.testing.assert_close(policy.decision_of(goal), torch.tensor([[-1.0, 1.0], [0.0, 0.0]]))


def test_bad_input_is_told_in_a_sentence():
    spec = make_env("point/skills", 1).spec
    for changes, said in (
        ({"features": "goal_space"}, "shows no goal features: agent.features names 'goal_space'.*goal_space=true"),
        ({"goal_ranges": {}}, "agent.goal_ranges is empty; say by how much"),
        ({"goal_ranges": {"zz": [0, 1]}}, "agent.goal_ranges names 'zz'"),
        ({"hide_from_low": ("tild",)}, "agent.hide_from_low names 'tild'.*did you mean 'tilt'"),
        ({"low_groups": ("body",)}, "agent.low_groups names 'body'"),
    ):
        with pytest.raises(ValueError, match=said):
            HiroPolicy(spec, replace(AGENT, **changes))
    with pytest.raises(ValueError, match=r"goal_ranges of 'z' is \[1, 0\]; write \[low, high\]"):
        replace(AGENT, goal_ranges={"z": [1, 0]})
    with pytest.raises(ValueError, match="without normalise_low_reward, which would add metres and radians"):
        HiroConfig(low_reward="potential", normalise_low_reward=False)
    assert HiroConfig(low_reward="distance", normalise_low_reward=False).low_reward == "distance"
    with pytest.raises(ValueError, match="interval"):
        HiroPolicyConfig(interval=0)
