"""Losses as a list: names, what they may read, one pass of the policy, rows in which another acted, further terms."""

import copy
import math

import pytest
import torch
from policy_gradient_cases import CHOICE, FORCES, SMALL, gradients_of, make_policy, rollout_of
from test_svpg import agent as particles_of
from test_svpg import own
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.agents.particles import Particles
from gaitway.algorithms.a2c import A2C, A2CConfig
from gaitway.algorithms.algorithm import Now, Schedule
from gaitway.algorithms.imitation import TARGET, ActionDistance
from gaitway.algorithms.policy_gradient import PolicyLoss
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.reinforce import Reinforce, ReinforceConfig
from gaitway.algorithms.svpg import SVPG, SVPGConfig
from gaitway.algorithms.terms import TERMS, Entropy, Surrogate, Terms, ValueLoss, with_further
from gaitway.core.parts import find_part
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig


class Term:
    """A loss of the user: a leaf class writes `__call__`."""

    reads = ()

    def __init__(self, name="own", coef=1.0, reads=()):
        self.name, self.coef, self.reads = name, coef, reads

    def __call__(self, batch, now):
        return batch["new/value"].mean(), {}


def make_ppo(terms=(), action=FORCES, num_envs=5, agent=SMALL, **options):
    options = {"rollout_steps": 12, "minibatches": 1, "epochs": 1} | options
    return PPO(make_policy(action, agent), PPOConfig(**options), num_envs=num_envs, terms=terms)


def moved(policy, amount=0.1):
    """The policy some way from where it acted, so that ratios are not 1."""
    generator = stream(7, "moved")
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += amount * torch.randn(parameter.shape, generator=generator)


def flat(fields):
    return {name: value.flatten(0, 1) for name, value in fields.items()}


# --- Names and what may be read --------------------------------------------------------------------------------------


def test_terms_have_names_of_their_own():
    policy = make_policy()
    with pytest.raises(ValueError, match=r"two terms share a name: \['own', 'own'\]; give each its own"):
        Terms([Term(), Term()], policy, torch.device("cpu"))
    with pytest.raises(ValueError, match="share a name"):
        make_ppo([Term(), Term()])
    with pytest.raises(ValueError, match="share a name"):
        make_ppo([Entropy(), Entropy()])


def test_a_term_with_the_name_of_a_standard_one_takes_its_place():
    ours, mine, more = [Surrogate(), ValueLoss(), Entropy()], Term("value"), Term("more")
    assert with_further(ours, [more, mine]) == [ours[0], mine, ours[2], more]
    assert with_further(ours, []) == ours
    ppo = make_ppo([Entropy(0.7), more])
    assert [(term.name, term.coef) for term in ppo.terms.terms] == [
        ("surrogate", 1.0), ("value", 0.5), ("entropy", 0.7), ("more", 1.0)
    ]  # fmt: skip

    class Half(PolicyLoss):
        coef = 0.5

    a2c = A2C(make_policy(), A2CConfig(), num_envs=5, terms=[Half()])
    assert [(term.name, term.coef) for term in a2c.terms.terms] == [("policy", 0.5), ("value", 0.5), ("entropy", 0.0)]
    assert isinstance(a2c.terms.terms[0], Half)


def test_what_the_policy_does_not_say_cannot_be_read():
    with pytest.raises(
        ValueError,
        match=r"the term 'own' reads 'new/valeu', which neither the policy nor a block of it writes \(did you mean "
        r"'new/value'\?\); there are \['new/output', 'new/value', 'new/params', 'new/log_prob', 'new/entropy'",
    ):
        make_ppo([Term(reads=("new/valeu",))])
    latent = {"name": "mlp", "reads": ["policy"], "writes": "latent", "size": 2}
    with_block = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), blocks=(latent,))
    ppo = make_ppo([Term(reads=("new/latent", "env/reward"))], agent=with_block)
    assert ppo.reads == ("env/reward", "env/final_obs/policy")
    with pytest.raises(ValueError, match=r"reads 'new/latnt'.*\(did you mean 'new/latent'\?\)"):
        make_ppo([Term(reads=("new/latnt",))], agent=with_block)


def test_what_a_block_wrote_is_there_with_its_gradient():
    class Small(Term):
        def __call__(self, batch, now):
            assert batch["new/latent"].requires_grad
            assert batch["new/latent"].shape == (60, 2)
            return batch["new/latent"].square().mean(), {"latent": batch["new/latent"].detach().mean()}

    latent = {"name": "mlp", "reads": ["policy"], "writes": "latent", "size": 2}
    agent = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), blocks=(latent,), normalise_observations=False)
    ppo = make_ppo([Small("small", reads=("new/latent",))], agent=agent)
    assert ppo._direct is None
    metrics = ppo.update(rollout_of(ppo.policy), Now())
    assert metrics["loss/small"] > 0
    assert "latent" in metrics


def test_what_a_term_reads_is_cut_into_minibatches():
    seen = []

    class Spy(Term):
        def __call__(self, batch, now):
            seen.append({name: batch[name].clone() for name in (*self.reads, "obs/policy", "raw")})
            return batch["new/value"].mean(), {}

    ppo = make_ppo([Spy(reads=("env/reward", "env/obs/policy", "env/terminated"))], minibatches=4, epochs=2)
    ws = rollout_of(ppo.policy)
    ppo.update(ws, Now())
    assert len(seen) == 8
    whole = {name: torch.cat([each[name] for each in seen[:4]]) for name in seen[0]}
    assert_close(whole["env/obs/policy"], whole["obs/policy"])  # rows belong together
    expected = ws["env/reward"].flatten()
    assert_close(whole["env/reward"].sort()[0], expected.sort()[0])
    assert whole["env/terminated"].dtype == torch.bool
    for row in range(60):
        place = (ws["env/obs/policy"][:12].flatten(0, 1) == whole["obs/policy"][row]).all(-1).nonzero().item()
        assert whole["env/reward"][row] == expected[place]


def test_prepare_makes_fields_once_of_the_rollout():
    calls = []

    class Prepared(Term):
        def prepare(self, ws):
            calls.append(torch.is_grad_enabled())
            return {"own/next": ws["env/obs/policy"][1:, :, 0] * 2.0}

        def __call__(self, batch, now):
            assert "env/obs/policy" not in batch  # what is prepared stands in place of what is read
            calls.append(batch["own/next"].shape)
            return (batch["new/value"] - batch["own/next"]).square().mean(), {}

    ppo = make_ppo([Prepared(reads=("env/obs/policy",))], minibatches=2, epochs=3)
    ppo.update(rollout_of(ppo.policy), Now())
    assert calls == [False] + [(30,)] * 6


# --- One pass of the policy ------------------------------------------------------------------------------------------


class Shifted(Term):
    """Moves what the policy sees."""

    def __init__(self, by, **options):
        super().__init__(**options)
        self.by, self.calls, self.said = by, 0, []

    def transform(self, batch, now):
        assert not any(name.startswith("new/") for name in batch)
        self.calls += 1
        return batch | {"obs/policy": batch["obs/policy"] + self.by}

    def __call__(self, batch, now):
        self.said.append((batch["obs/policy"].clone(), batch["new/value"].detach().clone()))
        return batch["new/value"].mean(), {}


@pytest.mark.parametrize("direct", [False, True], ids=["autograd", "direct"])
def test_transforms_come_before_the_one_pass(direct):
    first, second = Shifted(1.0, name="first"), Shifted(0.5, name="second")
    ppo = make_ppo([first, second], minibatches=3, epochs=2)
    assert (ppo._direct is not None) is True
    count = {"actor": 0, "critic": 0}
    if direct:
        for which in count:
            stack = getattr(ppo._direct, which)
            run = stack.forward
            stack.forward = lambda x, run=run, which=which: (count.update({which: count[which] + 1}), run(x))[1]
    else:
        ppo._direct = None
        for which in count:
            module = getattr(ppo.policy, which)
            run = module.forward
            module.forward = lambda *x, run=run, which=which: (count.update({which: count[which] + 1}), run(*x))[1]
    ws = rollout_of(ppo.policy)
    fields = ppo.prepare(ws)
    before = dict(count)
    ppo.update(ws, Now())
    minibatches = 6
    assert first.calls == second.calls == minibatches
    # the critic is asked once more for the advantages of a rollout, as before
    assert count["actor"] - before["actor"] == minibatches
    assert count["critic"] - before["critic"] - (0 if direct else before["critic"]) == minibatches
    shifted, said = first.said[0]
    rows = fields["obs/policy"].flatten(0, 1)
    assert all(bool(((row - 1.5 - rows).abs().max(-1).values < 1e-5).any()) for row in shifted)
    twin = make_policy(FORCES)  # what it was before the first step
    with torch.no_grad():
        assert_close(said, twin.critic(shifted, None)[0].squeeze(-1), atol=1e-5, rtol=1e-5)


def test_a_minibatch_is_standardised_before_other_transforms():
    seen = []

    class Look(Term):
        def transform(self, batch, now):
            seen.append((batch["advantage"].mean().item(), batch["advantage"].std().item()))
            return batch

    ppo = make_ppo([Look()], normalise_advantage="minibatch", minibatches=2)
    ppo.update(rollout_of(ppo.policy), Now())
    for mean, std in seen:
        assert (mean, std) == (pytest.approx(0.0, abs=1e-5), pytest.approx(1.0, abs=1e-4))


def test_losses_know_where_training_stands():
    seen = []

    class Look(Term):
        def __call__(self, batch, now):
            seen.append((now.iteration.item(), now.env_steps.item(), now.fraction.item()))
            return batch["new/value"].mean(), {}

    ppo = make_ppo([Look(coef=Schedule(2.0, 0.0, over=4))])
    for number in range(3):
        metrics = ppo.update(rollout_of(ppo.policy), Now(number, 60 * number, number / 4))
        assert ppo.terms.weights[-1] == 2.0 - 0.5 * number
        standard = metrics["loss/surrogate"] + 0.5 * metrics["loss/value"]
        assert_close(metrics["loss/total"], standard + (2.0 - 0.5 * number) * metrics["loss/own"], atol=1e-5, rtol=1e-4)
    assert seen == [(0, 0, 0.0), (1, 60, 0.25), (2, 120, 0.5)]


# --- Rows in which another acted -------------------------------------------------------------------------------------


def with_weights(ws):
    """The same rollout, in a third of whose rows another acted."""
    found = Workspace(ws)
    found["weight/policy"] = (torch.rand(ws.T, ws.B, generator=stream(4, "acted")) < 0.66).float()
    return found


@pytest.mark.parametrize("valid", [False, True], ids=["", "with reset rows"])
@pytest.mark.parametrize("normalise", ["rollout", "minibatch", "none"])
def test_rows_of_others_by_hand(normalise, valid):
    ppo = make_ppo(entropy_coef=0.02, normalise_advantage=normalise, clip=0.1)
    ws = with_weights(rollout_of(ppo.policy, valid=valid))
    plain = make_ppo(normalise_advantage="none").prepare(ws)["advantage"].flatten().tolist()
    fields = ppo.prepare(ws)
    moved(ppo.policy)
    batch = flat(fields)
    ppo.terms.begin(Now())
    total, found = ppo.terms.loss(batch)

    counts = [True] * 60 if not valid else ws["env/valid"].flatten().tolist()
    acted = [bool(one) and two for one, two in zip(ws["weight/policy"].flatten().tolist(), counts, strict=True)]
    rows = [row for row in range(60) if acted[row]]
    assert len(rows) not in (0, sum(counts))
    advantage = plain
    if normalise != "none":  # over the rows in which the policy acted
        mean = sum(plain[row] for row in rows) / len(rows)
        std = math.sqrt(sum((plain[row] - mean) ** 2 for row in rows) / (len(rows) - 1))
        advantage = [(value - mean) / std for value in plain]
    with torch.no_grad():
        output = ppo.policy.actor(batch["obs/policy"], None)[0]
        params, log_prob, entropy = ppo.policy.head.score(output, batch["raw"])
        value = ppo.policy.critic(batch["obs/policy"], None)[0].squeeze(-1)
        divergence = ppo.policy.head.kl(batch["params"], params)
    surrogate = clipped = 0.0
    for row in rows:
        ratio = math.exp(log_prob[row].item() - batch["log_prob"][row].item())
        near = min(max(ratio, 0.9), 1.1)
        surrogate += max(-advantage[row] * ratio, -advantage[row] * near) / len(rows)
        clipped += (abs(ratio - 1) > 0.1) / len(rows)
    by_hand = {
        "loss/surrogate": surrogate,
        "clip_fraction": clipped,
        "loss/entropy": -sum(entropy[row].item() for row in rows) / len(rows),
        "kl": sum(divergence[row].item() for row in rows) / len(rows),
        # the critic learns from every row that counts, whoever acted
        "loss/value": sum((value[r] - batch["return"][r]).item() ** 2 for r in range(60) if counts[r]) / sum(counts),
    }
    by_hand["loss/total"] = by_hand["loss/surrogate"] + 0.5 * by_hand["loss/value"] + 0.02 * by_hand["loss/entropy"]
    for name, expected in by_hand.items():
        assert found[name].item() == pytest.approx(expected, rel=1e-4, abs=1e-5), name

    # the path without autograd says and does the same
    ppo.engine.parameters.differentiate(total)
    by_autograd = ppo.engine.parameters.gradient.clone()
    direct = ppo._direct(batch)
    for name in by_hand:
        assert direct[name].item() == pytest.approx(by_hand[name], rel=1e-4, abs=1e-5), name
    assert_close(ppo.engine.parameters.gradient, by_autograd, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("direct", [False, True], ids=["autograd", "direct"])
def test_what_others_did_is_not_learnt(direct):
    """Other actions in the rows of others change no bit of what is learnt; in a row of the policy they do."""
    found = []
    for poison, where in ((0.0, 0), (3.0, 0), (3.0, 1)):
        ppo = make_ppo(minibatches=2, epochs=2, target_kl=1e9)
        ppo._direct = ppo._direct if direct else None
        ws = with_weights(rollout_of(ppo.policy))
        ws["action"] = ws["action"] + poison * (ws["weight/policy"] == where).unsqueeze(-1)
        ppo.update(ws, Now())
        found.append(ppo.engine.parameters.value.detach().clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_rollout_in_which_nobody_of_ours_acted_teaches_the_critic_alone():
    for direct in (False, True):
        ppo = make_ppo(entropy_coef=0.1)
        ppo._direct = ppo._direct if direct else None
        ws = rollout_of(ppo.policy)
        ws["weight/policy"] = torch.zeros(12, 5)
        before = copy.deepcopy(ppo.policy.state_dict())
        metrics = ppo.update(ws, Now())
        for name, value in ppo.policy.state_dict().items():
            assert torch.equal(value, before[name]) != name.startswith("critic"), name
        assert metrics["loss/surrogate"] == metrics["loss/entropy"] == metrics["kl"] == 0
        assert metrics["loss/value"] > 0


@pytest.mark.parametrize("make", [A2C, Reinforce])
def test_a2c_and_reinforce_heed_who_acted(make):
    config = A2CConfig if make is A2C else ReinforceConfig
    found = []
    for poison in (0, 1):
        algorithm = make(make_policy(CHOICE), config(rollout_steps=12, normalise_advantage=True), num_envs=5)
        ws = with_weights(rollout_of(algorithm.policy))
        action = torch.where(ws["weight/policy"] == 0, (ws["action"] + poison) % 3, ws["action"])
        assert bool((action != ws["action"]).any()) == bool(poison)
        ws["action"] = action
        algorithm.update(ws, Now())
        found.append(algorithm.engine.parameters.value.detach().clone())
    assert torch.equal(found[0], found[1])


# --- Further terms of the other algorithms ---------------------------------------------------------------------------


class Still(Term):
    """Small mean actions where the reward is high: reads the rollout and the policy."""

    def __init__(self, coef=0.3):
        super().__init__("still", coef, ("env/reward", "new/mean"))

    def __call__(self, batch, now):
        return (batch["new/mean"].square().sum(-1) * batch["env/reward"]).mean(), {"still/reward": torch.tensor(1.0)}


def said(policy, ws):
    """What the policy says of a rollout now, with gradient: params, log-probabilities, entropy, mean action, value."""
    x = ws["env/obs/policy"][: ws.T]
    params, log_prob, entropy = policy.head.score(policy.actor(x, None)[0], ws["action"])
    return log_prob, entropy, policy.head.action(policy.head.mode(params)), policy.critic(x, None)[0].squeeze(-1)


def by_hand(policy, total):
    names, parameters = zip(*policy.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(total, parameters, materialize_grads=True), strict=True))


def test_a2c_follows_the_gradient_of_the_sum():
    config = A2CConfig(rollout_steps=12, max_grad_norm=None, entropy_coef=0.05, gamma=0.9)
    algorithm = A2C(make_policy(FORCES), config, num_envs=5, terms=[Still()])
    ws, policy = rollout_of(algorithm.policy), copy.deepcopy(algorithm.policy)
    with torch.no_grad():
        batch = algorithm.prepare(ws)
    log_prob, entropy, mean, value = said(policy, ws)
    total = -(log_prob * batch["advantage"]).mean() + 0.5 * (batch["return"] - value).square().mean()
    total = total - 0.05 * entropy.mean() + 0.3 * (mean.square().sum(-1) * ws["env/reward"]).mean()
    metrics = algorithm.update(ws, Now())
    assert_close(gradients_of(algorithm), by_hand(policy, total), atol=1e-6, rtol=1e-4)
    assert_close(metrics["loss/total"], total.detach(), atol=1e-5, rtol=1e-5)
    assert metrics["still/reward"] == 1.0
    without = A2C(make_policy(FORCES), config, num_envs=5)
    without.update(ws, Now())
    pairs = zip(gradients_of(algorithm).values(), gradients_of(without).values(), strict=True)
    assert max((one - other).abs().max() for one, other in pairs) > 1e-4


@pytest.mark.parametrize("baseline", [True, False])
def test_reinforce_follows_the_gradient_of_the_sum(baseline):
    config = ReinforceConfig(
        rollout_steps=12, gamma=0.9, baseline=baseline, normalise_advantage=False, entropy_coef=0.05
    )
    algorithm = Reinforce(make_policy(FORCES), config, num_envs=5, terms=[Still()])
    ws, policy = rollout_of(algorithm.policy), copy.deepcopy(algorithm.policy)
    with torch.no_grad():
        batch = algorithm.prepare(ws)
    weight = batch["weight"] / batch["weight"].sum()
    log_prob, entropy, mean, value = said(policy, ws)
    advantage = batch["return"] - (value.detach() if baseline else 0.0)
    total = -(weight * log_prob * advantage).sum() - 0.05 * (weight * entropy).sum()
    if baseline:
        total = total + 0.5 * (weight * (batch["return"] - value).square()).sum()
    total = total + 0.3 * (mean.square().sum(-1) * ws["env/reward"]).mean()
    algorithm.update(ws, Now())
    assert_close(gradients_of(algorithm), by_hand(policy, total), atol=1e-6, rtol=1e-4)


def test_svpg_follows_the_gradient_of_the_sum():
    """Without the kernel each particle follows what A2C with the same term would follow on its own columns."""
    policy = Particles(make_policy(FORCES).spec, particles_of(3), stream(0, "parameters"))
    config = {"rollout_steps": 12, "max_grad_norm": None, "entropy_coef": 0.05, "normalise_advantage": False}
    together = SVPG(policy, SVPGConfig(**config, coupled=False), num_envs=6, terms=[Still()])
    alone = []
    for member in policy.members:
        twin = ActorCritic(policy.spec, policy.config)
        twin.load_state_dict(member.state_dict())
        alone.append(A2C(twin, A2CConfig(**config), num_envs=2, terms=[Still()]))
    ws = rollout_of(policy, num_envs=6)
    together.update(ws, Now())
    found = gradients_of(together)
    for i, learner in enumerate(alone):
        learner.update(own(ws, i, 2), Now())
        for name, expected in gradients_of(learner).items():
            assert_close(found[f"members.{i}.{name}"], expected, atol=1e-6, rtol=1e-4)


# --- Distance to a frozen policy -------------------------------------------------------------------------------------

LIMITED = ActionSpec("continuous", ("left", "right"), (-1.0, -2.0), (1.0, 2.0))
FREE = ActionSpec("continuous", ("left", "right"), (-math.inf, -2.0), (math.inf, 2.0))
OFFSET = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
SEVERAL = ActionSpec("multi_discrete", ("hand", "foot"), choices=(3, 2))


def distance(action, coef=1.0, **options):
    frozen, policy = make_policy(action, seed=1).requires_grad_(False), make_policy(action)
    term = ActionDistance(frozen, policy, coef)
    ppo = PPO(policy, PPOConfig(rollout_steps=12, minibatches=1, epochs=1, **options), num_envs=5, terms=[term])
    return frozen, ppo, rollout_of(policy)


@pytest.mark.parametrize("who", ["all", "some"])
@pytest.mark.parametrize(("action", "scale"), [(LIMITED, (1.0, 2.0)), (FREE, (1.0, 2.0))], ids=["limits", "no limits"])
def test_continuous_distance_by_hand(action, scale, who):
    frozen, ppo, ws = distance(action, 0.4)
    ws = with_weights(ws) if who == "some" else ws
    batch = flat(ppo.prepare(ws))
    moved(ppo.policy)
    assert batch[TARGET].shape == (60, 2)
    obs = {"policy": ws["env/obs/policy"][:12].flatten(0, 1)}
    target = frozen.act(obs, None, stochastic=False)[0].tolist()
    mean = ppo.policy.act(obs, None, stochastic=False)[0].tolist()
    rows = range(60)  # the frozen policy is followed whoever acted
    each = [sum(((mean[r][d] - target[r][d]) / scale[d]) ** 2 for d in range(2)) for r in rows]
    ppo.terms.begin(Now())
    _, found = ppo.terms.loss(batch)
    assert found["loss/action_distance"].item() == pytest.approx(sum(each) / len(rows), rel=1e-5)
    direct = ppo._direct(batch)
    assert direct["loss/action_distance"].item() == pytest.approx(sum(each) / len(rows), rel=1e-5)


@pytest.mark.parametrize("action", [CHOICE, OFFSET, SEVERAL], ids=["discrete", "from 2", "several"])
def test_discrete_distance_by_hand(action):
    frozen, ppo, ws = distance(action)
    batch = flat(ppo.prepare(ws))
    moved(ppo.policy, 0.5)
    with torch.no_grad():
        outputs = [p.actor(batch["obs/policy"], None)[0].double().numpy() for p in (frozen, ppo.policy)]
    surprise = 0.0
    for theirs, ours in zip(*outputs, strict=True):
        begin = 0
        for n in action.choices:
            choice = theirs[begin : begin + n].argmax()
            logits = ours[begin : begin + n]
            surprise -= logits[choice] - math.log(sum(math.exp(x) for x in logits))
            begin += n
    ppo.terms.begin(Now())
    _, found = ppo.terms.loss(batch)
    assert found["loss/action_distance"].item() == pytest.approx(surprise / 60, rel=1e-4)


def test_a_policy_comes_near_the_frozen_one_which_stays():
    for action in (LIMITED, CHOICE):
        frozen, ppo, ws = distance(action, 1.0, schedule="constant", learning_rate=1e-2, value_coef=0.0)
        ppo.terms.terms[0].coef = 0.0  # nothing but the distance
        before = copy.deepcopy(frozen.state_dict())
        first = ppo.update(ws, Now())["loss/action_distance"]
        for _ in range(60):
            last = ppo.update(ws, Now())["loss/action_distance"]
        assert last < 0.2 * first
        for name, value in frozen.state_dict().items():
            assert torch.equal(value, before[name])
        assert not any("frozen" in name for name in ppo.engine.parameters.names)


def test_the_frozen_policy_may_read_other_groups():
    groups = [ObservationGroup(name, (Component("x", 3),), (3,)) for name in ("policy", "camera")]
    wide = EnvSpec("test", tuple(groups), FORCES, control_dt=0.02, max_episode_steps=6)
    narrow = EnvSpec("test", tuple(groups[1:]), FORCES, control_dt=0.02, max_episode_steps=6)
    term = ActionDistance(ActorCritic(narrow, SMALL), ActorCritic(wide, SMALL))
    assert term.reads == ("env/obs/camera",)


def test_frozen_policies_that_cannot_be_followed_are_refused():
    policy = make_policy(FORCES)
    with pytest.raises(ValueError, match=r"the frozen policy acts by \['push'\], this one by \['left', 'right'\] or"):
        ActionDistance(make_policy(CHOICE), policy)
    with pytest.raises(ValueError, match="within other limits; name a run of the same robot"):
        ActionDistance(make_policy(FREE), policy)
    recurrent = ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), memory=MemoryConfig("gru", 4))
    with pytest.raises(ValueError, match="the frozen policy remembers, which a loss cannot let it do"):
        ActionDistance(make_policy(FORCES, recurrent), policy)


def test_terms_are_known_by_their_names():
    for name in TERMS:
        assert getattr(find_part({"name": name}, TERMS, "algorithm.terms[0]")[1], "name", name) == name


def test_a_term_learns_in_a_run():
    env = make_env("toy/pendulum", num_envs=4, seed=0)
    frozen, policy = (ActorCritic(env.spec, SMALL, stream(seed, "parameters")) for seed in (1, 0))
    term = ActionDistance(frozen.requires_grad_(False), policy, Schedule(1.0, 0.5, over=10))
    algorithm = PPO(policy, PPOConfig(rollout_steps=8, minibatches=2), num_envs=4, terms=[term])
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6))
    assert next(row.readers[1:] for row in runner.wiring.rows() if row.variable == "env/obs/pos") == (
        "loss action_distance",
    )
    runner.learn(64)
