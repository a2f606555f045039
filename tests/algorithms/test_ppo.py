"""PPO: the acceptance experiments of on-policy learning that can be decided by arithmetic, each with broken twins."""

import dataclasses

import pytest
import torch
from policy_gradient_cases import FORCES, make_policy, rollout_of
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import DeviceNow, Now
from gaitway.algorithms.learning_rates import adapted_rate
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.terms import ActionBound, Entropy, Surrogate, ValueLoss, standardised_advantage
from gaitway.core.schedules import Schedule
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec
from gaitway.envs.wrappers import Wrapper
from gaitway.functional.returns import gae
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig


def make_runner(env, agent=None, ppo=None, terms=(), seed=0):
    agent = agent or ActorCriticConfig(normalise_observations=False)
    policy = ActorCritic(env.spec, agent, stream(seed, "parameters"))
    algorithm = PPO(policy, ppo or PPOConfig(), num_envs=env.num_envs, terms=terms, seed=seed)
    return OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**9, seed=seed))


# --- T-RATIO: what the update path computes is what the policy did ---

MEMORIES = {
    "mlp": MemoryConfig(),
    "gru": MemoryConfig("gru", size=16),
    "lstm": MemoryConfig("lstm", size=16, layers=2),
    "gru stepwise": MemoryConfig("gru", size=16, sequence="stepwise"),
}


def collected(memory, distribution="auto", env_id="toy/cue", **options):
    """A runner with fixed weights after two rollouts, so that row 0 goes on from a state that is not zero."""
    options = options or {"K": 3} if env_id == "toy/cue" else {}
    env = make_env(env_id, num_envs=6, seed=1, **options)
    agent = ActorCriticConfig(
        memory=memory, init="default", distribution=DistributionConfig(distribution), normalise_observations=True
    )
    runner = make_runner(env, agent, PPOConfig(rollout_steps=10, minibatches=2))
    for _ in range(2):
        runner._collect()
        runner.iteration += 1
    return runner


def largest_difference(runner, change=lambda fields: None):
    fields = runner.algorithm.prepare(runner.rollout)
    change(fields)
    policy = runner.policy
    evaluate = policy.evaluate
    with torch.no_grad():
        params, _ = evaluate(fields)
        log_prob = policy.head.log_prob(params, fields["raw"])
    return float((log_prob - fields["log_prob"]).abs().max())


@pytest.mark.parametrize("memory", MEMORIES.values(), ids=MEMORIES.keys())
def test_ratio_is_one_before_the_first_step(memory):
    runner = collected(memory)
    assert bool(runner.rollout["env/done"].any())
    assert largest_difference(runner) < 1e-5


@pytest.mark.parametrize("kind", ["gaussian", "squashed_gaussian", "beta"])
def test_ratio_is_one_for_every_continuous_distribution(kind):
    assert largest_difference(collected(MemoryConfig(), kind, "toy/oscillator")) < 1e-5


def test_ratio_is_one_for_discrete_actions():
    assert largest_difference(collected(MemoryConfig(), "auto", "toy/cartpole")) < 1e-5


@pytest.mark.parametrize("memory", [MEMORIES["gru"], MEMORIES["lstm"]], ids=["gru", "lstm"])
@pytest.mark.parametrize("mutation", ["state after the step", "starts shifted", "not reset", "zero at rollout start"])
def test_ratio_sees_every_broken_twin(memory, mutation):
    runner = collected(memory)

    def change(fields):
        if mutation == "state after the step":
            fields["memory/actor/memory"] = runner.rollout["actor/memory"][1]
        elif mutation == "starts shifted":
            fields["starts"] = fields["starts"].roll(1, 0)
        elif mutation == "not reset":
            fields["starts"] = torch.zeros_like(fields["starts"])
        else:
            fields["memory/actor/memory"] = torch.zeros_like(fields["memory/actor/memory"])

    assert largest_difference(runner, change) > 1e-3


# --- T-LR ------------------------------------------------------------------------------------------------------------


def test_adaptive_rate_follows_the_rule():
    def after(rate, kl):
        return adapted_rate(torch.tensor(rate), torch.tensor(kl), 0.01, (1e-5, 1e-2)).item()

    assert after(1e-3, 0.03) == pytest.approx(1e-3 / 1.5)
    assert after(1e-3 / 1.5, 0.002) == pytest.approx(1e-3)
    assert after(1e-3, 0.01) == pytest.approx(1e-3)
    assert after(1e-3, 0.0) == pytest.approx(1e-3)  # growth at KL 0 would be a broken twin
    kl = torch.tensor(0.02)
    assert adapted_rate(torch.tensor(1e-3), kl, float(kl) / 2, (1e-5, 1e-2)).item() == pytest.approx(1e-3)  # strict
    assert after(1.2e-5, 1.0) == pytest.approx(1e-5)
    assert after(9e-3, 0.001) == pytest.approx(1e-2)


@pytest.mark.parametrize("broken", ["grows at zero", "not strict"])
def test_adaptive_rate_sees_broken_rules(broken):
    """T-LR's twins, written out: each differs from the rule in the one case that the test above looks at."""
    rate, kl = torch.tensor(1e-3), torch.tensor(0.0 if broken == "grows at zero" else 0.02)
    desired = 0.01 if broken == "grows at zero" else float(kl) / 2
    twin = rate * 1.5 if bool(kl < 0.5 * desired) else rate / 1.5 if bool(kl >= 2.0 * desired) else rate
    assert adapted_rate(rate, kl, desired, (1e-5, 1e-2)).item() == pytest.approx(1e-3)
    assert twin.item() != pytest.approx(1e-3)


def test_adaptive_rate_survives_a_checkpoint():
    env = make_env("toy/oscillator", num_envs=8, seed=0)
    config = PPOConfig(rollout_steps=8, minibatches=2, schedule="adaptive", learning_rate=1e-3, desired_kl=1e-9)
    runner = make_runner(env, ppo=config)
    runner.learn(8 * 8 * 2)
    rate = runner.algorithm.engine.learning_rate.item()
    assert rate < 5e-4
    twin = make_runner(make_env("toy/oscillator", num_envs=8, seed=0), ppo=config)
    twin.load_state_dict(runner.state_dict())
    assert twin.algorithm.engine.learning_rate.item() == rate
    lost = runner.state_dict()
    lost["algorithm"]["engine"] = {k: v for k, v in lost["algorithm"]["engine"].items() if k != "learning_rate"}
    with pytest.raises(KeyError, match="learning_rate"):  # a checkpoint without it is none
        twin.load_state_dict(lost)


@pytest.mark.parametrize(("schedule", "expected"), [("linear", 0.75e-3), ("cosine", 0.8535534e-3), ("constant", 1e-3)])
def test_planned_schedules(schedule, expected):
    env = make_env("toy/oscillator", num_envs=8, seed=0)
    config = PPOConfig(rollout_steps=8, minibatches=2, schedule=schedule, learning_rate=1e-3)
    runner = make_runner(env, ppo=config)
    runner._collect()
    metrics = runner.algorithm.update(runner.rollout, Now(fraction=0.25))
    assert metrics["learning_rate"].item() == pytest.approx(expected)


# --- T-NORMADV -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["rollout", "minibatch", "none"])
def test_advantages_are_normalised_where_asked(mode):
    seen = []

    class Spy(Surrogate):
        def __call__(self, batch, now):
            seen.append(batch["advantage"].clone())
            return super().__call__(batch, now)

    env = make_env("toy/pendulum", num_envs=8, seed=0)
    config = PPOConfig(rollout_steps=8, minibatches=4, epochs=1, normalise_advantage=mode)
    runner = make_runner(env, ppo=config, terms=[Spy(), ValueLoss()])
    runner.learn(64)
    whole = torch.cat(seen)
    each = torch.stack([part.std() for part in seen])
    if mode == "minibatch":
        assert_close(each, torch.ones(4), atol=1e-4, rtol=0)
        assert all(abs(part.mean()) < 1e-5 for part in seen)
    elif mode == "rollout":
        assert whole.std().item() == pytest.approx(1.0, abs=1e-4)
        assert whole.mean().abs().item() < 1e-5
        assert (each - 1.0).abs().max() > 1e-2
    else:
        assert abs(whole.std().item() - 1.0) > 1e-2


def test_advantages_1_to_4_are_normalised_by_the_unbiased_deviation():
    """T-NORMADV by hand: (1, 2, 3, 4) has mean 2.5 and deviation sqrt(5/3); a biased one, or one over rows and mirror
    images together, which are twice as many, gives other numbers."""
    advantage = torch.tensor([1.0, 2.0, 3.0, 4.0])
    found = standardised_advantage({"advantage": advantage}, DeviceNow())["advantage"]
    assert_close(found, (advantage - 2.5) / (5 / 3) ** 0.5, atol=1e-6, rtol=0)
    assert (found.mean().abs().item(), found.std().item()) == pytest.approx((0.0, 1.0), abs=1e-6)
    biased = (advantage - 2.5) / advantage.std(correction=0)
    after = standardised_advantage({"advantage": torch.cat((advantage, advantage))}, DeviceNow())["advantage"][:4]
    for twin in (biased, after):
        assert abs(twin.std().item() - 1.0) > 0.05


# --- T-TIMEOUT -------------------------------------------------------------------------------------------------------


def fixed_value(lam, bonus=True, cut=True, rounds=400):
    """The value that a critic of one number settles on for reward 1, gamma 0.9 and time limits of 10 steps: what it is
    told is the mean return of 20 rows. `bonus`: the discounted value behind a time limit is counted; `cut`: traces end
    there."""
    done = torch.zeros(20, 1, dtype=torch.bool)
    done[9::10] = True
    value = torch.zeros(20, 1)
    for _ in range(rounds):
        terminated = torch.zeros_like(done) if bonus else done
        advantage = gae(torch.ones(20, 1), value, value, terminated, done, 0.9, lam)
        if not cut:  # the reward is made whole, and the trace goes on over the reset as if nothing had ended
            whole = torch.ones(20, 1) + 0.9 * value * done
            advantage = gae(whole, value, value, torch.zeros_like(done), torch.zeros_like(done), 0.9, lam)
        value = (advantage + value).mean().expand(20, 1)
    return value[0].item()


def test_a_time_limit_by_the_fixed_point():
    """T-TIMEOUT without learning, to four digits, and both of its twins."""
    assert fixed_value(0.95) == pytest.approx(10.0, abs=1e-3)
    assert fixed_value(0.95, bonus=False) == pytest.approx(4.28, abs=0.01)
    assert fixed_value(1.0, bonus=False) == pytest.approx(4.14, abs=0.01)
    assert fixed_value(0.0, bonus=False) == pytest.approx(5.26, abs=0.01)
    assert fixed_value(0.95, cut=False, rounds=100) > 11.0  # and rises for ever


class TimeOutsWithheld(Wrapper):
    """A broken twin: calls every time-out a termination."""

    def step(self, action):
        step = super().step(action)
        return dataclasses.replace(
            step, terminated=step.terminated | step.truncated, truncated=torch.zeros_like(step.truncated)
        )


def learnt_value(env, lam):
    config = PPOConfig(
        rollout_steps=20, minibatches=1, epochs=8, gamma=0.9, lam=lam, learning_rate=2e-2, schedule="linear",
        max_grad_norm=10.0, normalise_advantage="none",
    )  # fmt: skip
    agent = ActorCriticConfig(critic_hidden=(), actor_hidden=(), init="default", normalise_observations=False)
    runner = make_runner(env, agent, config, terms=[ValueLoss()])
    runner.config = dataclasses.replace(runner.config, total_steps=20 * 16 * 250)
    runner.learn()
    value, _ = runner.policy.values(runner.rollout)
    return value.mean().item()


@pytest.mark.slow
def test_a_time_limit_is_not_an_end():
    # reward 1 for ever: V = 1 / (1 - 0.9) = 10
    env = make_env("toy/constant", num_envs=16, seed=0)
    assert learnt_value(env, 0.95) == pytest.approx(10.0, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("lam", "expected"), [(0.95, 4.28), (1.0, 4.14), (0.0, 5.26)])
def test_withheld_time_outs_give_the_wrong_value(lam, expected):
    env = TimeOutsWithheld(make_env("toy/constant", num_envs=16, seed=0))
    assert learnt_value(env, lam) == pytest.approx(expected, abs=0.2)


def test_timeout_2_the_target_uses_the_final_observation():
    """T-TIMEOUT-2: V(final_obs), not V(o_t), stands behind a time limit: checked to 1e-6 on the chain."""
    env = make_env("toy/chain", num_envs=4, seed=0)
    runner = make_runner(
        env,
        ActorCriticConfig(init="default", normalise_observations=False),
        PPOConfig(rollout_steps=6, minibatches=1, gamma=0.9, lam=0.0),
    )
    runner._collect()
    ws, policy = runner.rollout, runner.policy
    cut = ws["env/truncated"]
    assert bool(cut.any())
    fields = runner.algorithm.prepare(ws)
    with torch.no_grad():
        names = policy.groups["critic"]

        def value(prefix, rows):
            obs = {name: ws[f"{prefix}/{name}"][rows].double().float() for name in names}
            return policy.critic(policy.network_input(obs, "critic"), None)[0].squeeze(-1)

        now, final = value("env/obs", slice(0, 6)), value("env/final_obs", slice(0, 6))
    right = ws["env/reward"] + 0.9 * final * ~ws["env/terminated"]
    legacy = ws["env/reward"] + 0.9 * now * ~ws["env/terminated"]
    assert_close(fields["return"][cut], right[cut], atol=1e-6, rtol=0)
    from_a = cut & (ws["env/obs/policy"][:6, :, 0] == 1)  # A leads to B; B stays, where both rules agree
    assert (fields["return"][from_a] - legacy[from_a]).abs().min() > 1e-2


def test_recurrent_critic_bootstraps_from_the_state_after_the_last_observation():
    runner = collected(MemoryConfig("lstm", size=8), "auto", "toy/chain", max_episode_steps=2)
    ws, policy = runner.rollout, runner.policy
    value, following = policy.values(ws)
    row, column = ws["env/truncated"].nonzero()[0].tolist()
    group = policy.groups["critic"]
    with torch.no_grad():

        def step(variable, state):
            obs = {name: ws[f"{variable}/{name}"][row, column].unsqueeze(0) for name in group}
            return policy.critic(policy.network_input(obs, "critic"), state)

        before = ws["critic/memory"][row, column].unsqueeze(0)
        first, after = step("env/obs", before)
        expected, _ = step("env/final_obs", after)
        forgotten, _ = step("env/final_obs", torch.zeros_like(after))
    assert value[row, column].item() == pytest.approx(first.item(), abs=1e-6)
    assert following[row, column].item() == pytest.approx(expected.item(), abs=1e-6)
    assert abs(following[row, column].item() - forgotten.item()) > 1e-4


# --- T-REC -----------------------------------------------------------------------------------------------------------


def cue_return(memory, seed, steps=120_000):
    env = make_env("toy/cue", num_envs=64, seed=seed, K=8)
    agent = ActorCriticConfig(memory=memory, normalise_observations=False, activation="elu")
    config = PPOConfig(
        rollout_steps=32, epochs=5, minibatches=4, learning_rate=3e-3, schedule="linear", entropy_coef=0.0
    )
    runner = make_runner(env, agent, config, seed=seed)
    runner.config = dataclasses.replace(runner.config, total_steps=steps)
    runner.learn()
    test = make_env("toy/cue", num_envs=256, seed=100, K=8, purpose="evaluation")
    act, obs, total = runner.inference_policy(), test.reset(seed=100), 0.0
    for _ in range(9):
        step = test.step(act(obs))
        total, obs = total + step.reward.mean().item(), step.obs
    return total


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_memory_solves_the_cue(kind):
    assert cue_return(MemoryConfig(kind, size=32), seed=0) >= -0.1


@pytest.mark.slow
def test_without_memory_the_cue_cannot_be_solved():
    # the best memoryless answer is 0, which costs 1
    assert cue_return(MemoryConfig(), seed=0, steps=60_000) <= -0.95


@pytest.mark.slow
def test_memory_of_another_environment_does_not_solve_the_cue(monkeypatch):
    def shuffled(self, ws, t, mask):
        for name in ("actor/memory", "critic/memory"):
            ws.put(name, t, ws.at(name, t).roll(1, 0))

    monkeypatch.setattr(ActorCritic, "reset", shuffled)
    assert cue_return(MemoryConfig("gru", size=32), seed=0, steps=60_000) <= -0.5


# --- terms and configuration -----------------------------------------------------------------------------------------


def test_action_bound_counts_only_what_lies_beyond_the_margin():
    action = ActionSpec("continuous", ("a", "b"), (-2.0, 0.0), (2.0, 1.0))
    term = ActionBound(action, coef=1.0, margin=1.0)
    # first: 3 of 2 is half a half-range too far; second: 0.5 is the centre. 0.25 for one sample of two
    loss, _ = term({"new/mean": torch.tensor([[3.0, 0.5], [0.0, 0.2]])}, Now())
    assert loss.item() == pytest.approx(0.125)
    with pytest.raises(ValueError, match="finite limits"):
        ActionBound(ActionSpec("discrete", ("a",), choices=(2,)))


def test_terms_add_up_with_their_coefficients():
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    config = PPOConfig(rollout_steps=8, minibatches=1, epochs=1, value_coef=0.3, entropy_coef=0.2)
    runner = make_runner(env, ppo=config)
    runner._collect()
    metrics = runner.algorithm.update(runner.rollout, Now())
    total = metrics["loss/surrogate"] + 0.3 * metrics["loss/value"] + 0.2 * metrics["loss/entropy"]
    assert_close(metrics["loss/total"], total, atol=1e-5, rtol=1e-5)
    assert metrics["kl"].abs() < 1e-6
    assert metrics["clip_fraction"] == 0


def test_rows_that_are_not_valid_carry_no_weight():
    """Changing what happened in an invalid row changes nothing that is learnt."""
    env = make_env("toy/pendulum", num_envs=4, seed=0)

    def learn(poison):
        runner = make_runner(env, ppo=PPOConfig(rollout_steps=8, minibatches=2, epochs=2))
        runner._collect()
        ws = Workspace.packed(
            {name: runner.rollout[name].clone() for name in runner.rollout}, extra_row=runner.rollout.extra_row
        )
        valid = torch.ones(8, 4, dtype=torch.bool)
        valid[3, 1] = False
        ws["env/valid"] = valid
        ended = ws["env/truncated"].clone()
        ended[2, 1] = True  # a reset row follows an end
        ws["env/truncated"] = ended
        reward, action = ws["env/reward"].clone(), ws["action"].clone()
        reward[3, 1] += poison
        action[3, 1] += poison
        ws["env/reward"], ws["action"] = reward, action
        runner.algorithm.update(ws, Now())
        return runner.parameters_sha256()

    torch.manual_seed(0)
    clean = learn(0.0)
    env.reset(seed=0)
    assert learn(0.0) != learn(5.0) or clean  # environments moved on: compare from equal starts below
    states = []
    for poison in (0.0, 5.0):
        env.reset(seed=0)
        states.append(learn(poison))
    assert states[0] == states[1]


def test_a_term_may_read_observations_one_row_per_step():
    shapes = []

    class Spy(Surrogate):
        reads = ("env/obs/pos",)

        def __call__(self, batch, now):
            shapes.append((tuple(batch["env/obs/pos"].shape), tuple(batch["advantage"].shape)))
            return super().__call__(batch, now)

    for memory, rows in ((MemoryConfig(), (16,)), (MemoryConfig("gru", 8), (8, 2))):
        env = make_env("toy/pendulum", num_envs=4, seed=0)
        agent = ActorCriticConfig(memory=memory)
        runner = make_runner(env, agent, PPOConfig(rollout_steps=8, minibatches=2), terms=[Spy(), ValueLoss()])
        shapes.clear()
        runner.learn(32)
        assert set(shapes) == {((*rows, 2), rows)}


def test_value_clip_measures_from_what_the_critic_said():
    """Before the first step the critic has not moved, so nothing is clipped, whatever the normaliser learnt since."""
    moved = []

    class Spy(ValueLoss):
        def __call__(self, batch, now):
            moved.append((batch["new/value"] - batch["value"]).abs().max().item())
            return super().__call__(batch, now)

    env = make_env("toy/pendulum", num_envs=8, seed=0)
    config = PPOConfig(rollout_steps=16, minibatches=1, epochs=1, normalise_value=True)
    runner = make_runner(env, ppo=config, terms=[Surrogate(), Spy(clip=0.2)])
    runner.learn(16 * 8 * 3)
    assert max(moved) < 1e-5


def test_the_mean_action_is_an_action():
    seen = []

    class Spy(Surrogate):
        def __call__(self, batch, now):
            seen.append(batch["new/mean"].abs().max().item())
            return super().__call__(batch, now)

    env = make_env("toy/pendulum", num_envs=4, seed=0)
    agent = ActorCriticConfig(distribution=DistributionConfig("beta"), init="default")
    config = PPOConfig(rollout_steps=8, minibatches=1)
    runner = make_runner(env, agent, config, terms=[Spy(), ValueLoss()])
    runner.learn(32)
    assert max(seen) <= 2.0
    with pytest.raises(ValueError, match="never leaves the limits"):
        PPO(runner.policy, PPOConfig(rollout_steps=8, minibatches=1, action_bound_coef=1.0), num_envs=4)


def test_combinations_that_cannot_work_are_refused():
    env = make_env("toy/pendulum", num_envs=6, seed=0)
    policy = ActorCritic(env.spec, ActorCriticConfig())
    with pytest.raises(ValueError, match=r"does not divide the 48 samples.*use algorithm.minibatches=4"):
        PPO(policy, PPOConfig(rollout_steps=8, minibatches=5), num_envs=6)
    recurrent = ActorCritic(env.spec, ActorCriticConfig(memory=MemoryConfig("gru")))
    with pytest.raises(ValueError, match=r"does not divide the 6 environments.*use algorithm.minibatches=3"):
        PPO(recurrent, PPOConfig(rollout_steps=8, minibatches=4), num_envs=6)
    with pytest.raises(ValueError, match="feed-forward critic"):
        PPO(recurrent, PPOConfig(minibatches=2, recompute_advantage=True), num_envs=6)
    with pytest.raises(ValueError, match="share a name"):
        PPO(policy, PPOConfig(), num_envs=6, terms=[Entropy(), Entropy()])
    with pytest.raises(ValueError, match="twice"):
        PPOConfig(scale_reward=True, normalise_value=True)


def test_value_normalisation_learns_in_units_of_the_return():
    env = make_env("toy/constant", num_envs=16, seed=0)
    runner = make_runner(env, ppo=PPOConfig(rollout_steps=16, minibatches=1, normalise_value=True, gamma=0.9))
    runner.learn(16 * 16 * 3)
    fields = runner.algorithm.prepare(runner.rollout)
    assert fields["return"].abs().mean() < 3.0  # raw targets are around 5 to 10
    assert runner.algorithm.streams[0].norm.denormalise(fields["return"]).mean() > 1.0


def test_critic_groups_may_differ_from_the_actors():
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    agent = ActorCriticConfig(observations=Observations(actor=("pos",), critic=("vel", "pos")))
    runner = make_runner(env, agent, PPOConfig(rollout_steps=8, minibatches=2))
    assert runner.policy.actor.network.layers[0].in_features == 2
    assert runner.policy.critic.network.layers[0].in_features == 3
    runner.learn(64)
    with pytest.raises(ValueError, match=r"agent.observations.critic names 'speed'.*\['pos', 'vel'\]"):
        ActorCritic(env.spec, ActorCriticConfig(observations=Observations(critic=("speed",))))


# --- The critic first ------------------------------------------------------------------------------------------------

SHARED = {"name": "mlp", "reads": ["policy"], "writes": "shared", "size": 4, "hidden": [6]}
JUDGED = {"name": "mlp", "reads": ["policy"], "writes": "judged", "size": 4, "hidden": [6]}
SEEN = Observations(("shared",), ("shared", "judged"))
PARTS = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), blocks=(SHARED, JUDGED), observations=SEEN)
PLAIN = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,))
FIRST = PPOConfig(
    rollout_steps=12,
    minibatches=2,
    epochs=2,
    critic_warmup=2,
    learning_rate=1e-2,
    schedule="constant",
    entropy_coef=0.1,
)


@pytest.mark.parametrize(("agent", "critic"), [(PLAIN, ("critic.",)), (PARTS, ("critic.", "blocks.1."))])
def test_the_critic_learns_first(agent, critic):
    policy = make_policy(FORCES, agent)
    ppo = PPO(policy, FIRST, num_envs=5)
    assert (ppo._direct is not None) is (agent is PLAIN)
    ws = rollout_of(policy)
    assert policy.critic_parameters() == {name for name, _ in policy.named_parameters() if name.startswith(critic)}
    for iteration in range(2):
        before = {name: value.detach().clone() for name, value in policy.named_parameters()}
        ppo.update(ws, Now(iteration=iteration))
        for name, value in policy.named_parameters():
            assert torch.equal(value, before[name]) is not name.startswith(critic), name
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    ppo.update(ws, Now(iteration=2))
    moved = {name: (value - before[name]).abs().max().item() for name, value in policy.named_parameters()}
    assert min(moved.values()) > 0.0
    # Adam moves a number by its rate at most, as it does in its first steps; with old counts and no moments it would
    # be 0.1 / sqrt(0.001) = 3.2 times as far
    assert max(moved.values()) < 4 * 1.05 * FIRST.learning_rate


def test_a_critic_first_run_resumes(tmp_path):
    def learner():
        policy = make_policy(FORCES, PLAIN)
        return PPO(policy, FIRST, num_envs=5), rollout_of(policy)

    whole, ws = learner()
    for iteration in range(4):
        whole.update(ws, Now(iteration=iteration))
    parts, _ = learner()
    for iteration in range(2):
        parts.update(ws, Now(iteration=iteration))
    again, _ = learner()
    again.load_state_dict(parts.state_dict())
    for iteration in range(2, 4):
        again.update(ws, Now(iteration=iteration))
    assert torch.equal(again.flat_parameters()[0], whole.flat_parameters()[0])


def test_the_actor_cannot_rest_beside_weight_decay():
    with pytest.raises(
        ValueError, match="critic_warmup keeps the actor as it is, which weight_decay does not; set one"
    ):
        PPOConfig(critic_warmup=3, weight_decay=0.1, optimiser="adamw")


# --- options: rates, floors, activations, statistics that rest ---


def test_a_schedule_may_be_the_rate():
    env = make_env("toy/pendulum", num_envs=8)
    rate = Schedule(1e-3, 1e-5, over=4, kind="linear")
    runner = make_runner(env, ppo=PPOConfig(learning_rate=rate, rollout_steps=4, minibatches=1, epochs=1))
    found = []
    for iteration in range(6):
        runner._collect()
        metrics = runner.algorithm.update(runner.rollout, Now(iteration, 0, 0.9))  # `fraction` has no say
        found.append(metrics["learning_rate"].item())
    assert found == pytest.approx([1e-3, 7.525e-4, 5.05e-4, 2.575e-4, 1e-5, 1e-5], rel=1e-5)
    with pytest.raises(ValueError, match="learning_rate is a schedule, and schedule=adaptive moves it too"):
        PPOConfig(learning_rate=rate, schedule="adaptive")
    with pytest.raises(ValueError, match=r"momentum is 0\.9, which adam does not have"):
        PPOConfig(momentum=0.9)


@pytest.mark.parametrize("optimiser", ["sgd", "rmsprop"])
def test_other_optimisers_move_the_policy_and_the_direct_path_agrees(optimiser):
    moved = []
    for direct in (True, False):
        env = make_env("toy/pendulum", num_envs=8, seed=1)
        options = {"optimiser": optimiser, "learning_rate": 1e-2, "clip_networks_apart": True}
        runner = make_runner(env, ppo=PPOConfig(rollout_steps=8, minibatches=2, **options))
        assert runner.algorithm._direct is not None
        runner.algorithm._direct = runner.algorithm._direct if direct else None
        before = runner.algorithm.engine.parameters.value.detach().clone()
        runner._collect()
        metrics = runner.algorithm.update(runner.rollout, Now())
        moved.append(runner.algorithm.engine.parameters.value.detach() - before)
        assert {"gradient_norm/critic", "gradient_norm/rest"} <= set(metrics)
    assert moved[0].abs().max() > 1e-4
    assert_close(moved[0], moved[1], atol=1e-4, rtol=1e-3)


def test_statistics_rest_after_so_many_rows():
    env = make_env("toy/pendulum", num_envs=8)
    runner = make_runner(env, ActorCriticConfig(normaliser_until=100), PPOConfig(rollout_steps=8, minibatches=2))
    counts = []
    for _ in range(4):
        runner._iterate(10**9)
        counts.append(runner.policy.normalisers.of("pos").count.item())
    assert counts == [64, 128, 128, 128]


def test_floors_and_bounded_means_reach_the_policy():
    env = make_env("toy/pendulum", num_envs=8)
    agent = ActorCriticConfig(distribution=DistributionConfig(std_floor=(0.5,), mean_activation="tanh"))
    runner = make_runner(env, agent)
    assert runner.algorithm._direct is None  # what it does not know is left to autograd
    with torch.no_grad():
        runner.policy.head.log_std.fill_(-5.0)
        runner.policy.actor.network.last.bias.fill_(50.0)
    runner._collect()
    mean, std = runner.rollout["policy/params"].chunk(2, -1)
    assert_close(std, torch.full_like(std, 1.0))  # half of the range of +- 2
    assert_close(mean, torch.full_like(mean, 2.0))
