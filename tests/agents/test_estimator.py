"""Estimators: what they are trained on, what they take the place of, and which gradients reach them."""

import re

import numpy as np
import pytest
import torch
from block_cases import LEGS, ends_of, learn_once, make, played

from gaitway.agents.actor_critic import MemoryConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.a2c import A2C
from gaitway.algorithms.algorithm import DeviceNow, Now
from gaitway.algorithms.estimation import Estimation
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.terms import scored
from gaitway.core.config import ConfigError
from gaitway.core.seeding import stream
from gaitway.envs.spec import Component, EnvSpec, ObservationGroup

BODY = (Component("gyro", 2), Component("velocity", 2), Component("friction", 1))
TRUTH = (Component("friction", 1), Component("velocity", 2), Component("mass", 1))
ROBOT = EnvSpec(
    "robot",
    (ObservationGroup("policy", BODY, (5,)), ObservationGroup("critic", TRUTH, (4,))),
    LEGS,
    control_dt=0.02,
    max_episode_steps=10,
)
"""A robot that feels its gyro, velocity and friction, and a critic that knows the last two in another order."""
MEMORIES = {"none": {}, "gru": {"memory": "gru"}, "lstm": {"memory": "lstm", "layers": 2}}


def estimator(writes="velocity", reads=("policy.gyro",), target=("critic.velocity",), **options):
    options = {"hidden": [7], "memory_size": 6} | options
    into = {"into": [f"policy.{writes}"]} if options.get("replace") else {}
    return {"name": "estimator", "reads": list(reads), "writes": writes, "target": list(target)} | into | options


def policy_with(*blocks, **options):
    """Statistics of all that is normalised are not those of the start, and differ from group to group."""
    options = {"actor": ("policy",), "made": ROBOT, "normalise_observations": True} | options
    policy = make(*blocks, **options)
    generator = stream(0, "statistics")
    for module in policy.modules():
        if hasattr(module, "_inverse_std"):
            module.update(1.0 + 2.0 * torch.randn(50, *module.shape, generator=generator))
    return policy


def ratio(policy, ws, **changes):
    """The largest change of a log-probability between the rollout and the way through the update."""
    params, _ = policy.evaluate(policy.learner_inputs(ws) | changes)
    old, new = (policy.head.log_prob(each, policy.raw_actions(ws)) for each in (ws["policy/params"], params))
    return float((new - old).detach().abs().max())


class TestReplacement:
    @pytest.mark.parametrize("memory", MEMORIES)
    def test_the_actor_reads_the_estimate_in_its_own_units_and_the_critic_the_truth(self, memory):
        policy = policy_with(estimator(replace=1.0, **MEMORIES[memory]))
        ws = played(policy)
        batch = policy.learner_inputs(ws)
        found, _ = policy._inputs_of(batch)
        estimate = policy.outputs(batch)["estimate/velocity"]
        block, norm = policy.blocks[0], policy.normalisers.of("policy")
        raw = estimate.double() * (block.scale.std + block.scale.eps) + block.scale.mean  # by hand, in float64
        shown = ((raw - norm.mean[2:4]) / (norm.std[2:4] + norm.eps)).clamp(-10, 10)
        truth = policy.normalised({"policy": ws["env/obs/policy"][:9]})["policy"]
        torch.testing.assert_close(found.networks["actor"][..., 2:4].double(), shown, rtol=1e-5, atol=1e-5)
        assert torch.equal(found.networks["actor"][..., :2], truth[..., :2])
        assert torch.equal(found.networks["actor"][..., 4:], truth[..., 4:])
        seen = policy.normalised({"critic": ws["env/obs/critic"][:9]})["critic"]
        assert torch.equal(found.networks["critic"], seen)
        assert (found.networks["actor"][..., 2:4] - truth[..., 2:4]).abs().max() > 0.1

    @pytest.mark.parametrize("memory", MEMORIES)
    @pytest.mark.parametrize("actor_memory", ["none", "gru"])
    def test_the_stored_mask_is_the_one_that_is_learnt_from(self, memory, actor_memory):
        policy = policy_with(estimator(replace=0.5, **MEMORIES[memory]), memory=MemoryConfig(actor_memory, 4))
        policy.seed(0)
        ws = played(policy, steps=20)
        mask = ws["replaced/velocity"]
        assert mask.dtype is torch.bool
        assert 20 < int(mask.sum()) < 60  # of 80
        assert ratio(policy, ws) < 1e-5
        again = torch.rand(mask.shape, generator=stream(1, "test")) < 0.5
        assert ratio(policy, ws, **{"replaced/velocity": again}) > 1e-3  # a broken twin: drawn again

    def test_a_share_is_drawn_per_step_and_only_while_training(self):
        policy = policy_with(estimator(replace=0.25)).seed(0)
        ws = played(policy, steps=100, envs=20)
        mask = ws["replaced/velocity"].float()
        assert mask.mean() == pytest.approx(0.25, abs=0.04)  # 2,000 draws: +- 0.01
        assert (mask[1:] * mask[:-1]).mean() == pytest.approx(0.0625, abs=0.03)  # independent from step to step
        policy.eval()
        assert "replaced/velocity" not in played(policy)
        # evaluations always replace: what was observed there may be anything
        obs = {"policy": ws["env/obs/policy"][0]}
        spoilt = {"policy": obs["policy"].clone().index_fill_(-1, torch.tensor([2, 3]), float("nan"))}
        assert torch.equal(policy.act(obs, None, False)[0], policy.act(spoilt, None, False)[0])
        policy.train()
        assert torch.equal(policy.act(obs, None, False)[0], policy.act(spoilt, None, False)[0])

    def test_a_group_of_which_all_is_replaced_is_not_needed_to_act(self):
        groups = ("pos", 2), ("vel", 3)
        spec = EnvSpec("test", tuple(ObservationGroup(n, (Component("a"), Component("b", s - 1)), (s,))
                                     for n, s in groups), LEGS, 0.02, 10)  # fmt: skip
        whole = {"name": "estimator", "reads": ["pos"], "writes": "speed", "target": ["vel"], "replace": 1.0}
        halves = [{**whole, "writes": each, "target": [f"vel.{each}"]} for each in "ab"]
        for blocks in ([whole], halves):
            policy = make(*blocks, actor=("pos", "vel"), made=spec)
            assert (policy.all_groups, policy.actor_groups) == (("pos", "vel"), ("pos",))
            ws = played(policy, stochastic=False)
            act = InferencePolicy(policy)
            assert torch.equal(act({"pos": ws["env/obs/pos"][0]}), ws["action"][0])
        seen = make(halves[0], actor=("pos", "vel"), made=spec)
        assert seen.actor_groups == ("pos", "vel")  # half of it is still looked at
        before = {"name": "mlp", "reads": ["vel"], "writes": "latent", "size": 2}
        seen = make(before, whole, actor=("pos", "vel", "latent"), made=spec)
        assert seen.actor_groups == ("pos", "vel")  # a block in front of the estimator reads what was observed

    def test_the_estimate_may_be_a_feature_of_its_own(self):
        policy = policy_with(estimator(), actor=("policy", "estimate/velocity"))
        assert policy.input_size("actor") == 7
        ws = played(policy)
        assert ratio(policy, ws) < 1e-5
        found = policy.outputs(policy.learner_inputs(ws))
        parameters = list(policy.blocks.parameters())
        total = found["output"].square().sum()
        assert not any(bool(g.any()) for g in torch.autograd.grad(total, parameters, materialize_grads=True))


class TestLoss:
    @pytest.mark.parametrize("memory", MEMORIES)
    @pytest.mark.parametrize(("name", "options"), [("mse_loss", {}), ("smooth_l1_loss", {"beta": 0.3})])
    def test_against_float64(self, memory, name, options):
        policy = policy_with(estimator(**MEMORIES[memory]))
        ws = played(policy)
        term = Estimation(policy, "velocity", name, options, coef=2.0)
        batch = policy.learner_inputs(ws) | term.prepare(ws)
        outputs = {f"new/{key}": value for key, value in policy.outputs(batch).items()}
        loss, stats = term(batch | outputs, DeviceNow(torch.device("cpu")))
        scale = policy.blocks[0].scale
        target = ws["env/obs/critic"][:9, :, 1:3].double()  # by the name of the component: friction comes first there
        target = (target - scale.mean) / (scale.std + scale.eps)
        error = outputs["new/estimate/velocity"].double() - target
        square = error**2
        huber = torch.where(error.abs() < 0.3, square / 0.6, error.abs() - 0.15)
        wanted = (square if name == "mse_loss" else huber).sum(-1).mean()
        assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
        around = (target - target.flatten(0, 1).mean(0)) ** 2
        r2 = 1 - square.sum() / around.sum()
        assert float(stats["estimate/velocity/r2"]) == pytest.approx(float(r2.detach()), rel=1e-4, abs=1e-5)
        # rows that do not count, and broken twins: the next step's target, another order of components
        half = torch.arange(36).view(9, 4) % 2 == 0
        weighted, _ = term(batch | outputs | {"weight": half.float()}, DeviceNow(torch.device("cpu")))
        if name == "mse_loss":
            assert float(weighted.detach()) == pytest.approx(float(square.sum(-1)[half].mean()), rel=1e-5)
            late = scale(ws["env/obs/critic"][1:10, :, 1:3])
            turned = batch["estimate/velocity/target"].flip(-1)
            for twin in (late, turned):
                other, _ = term(batch | outputs | {"estimate/velocity/target": twin}, DeviceNow(torch.device("cpu")))
                assert abs(float((other - loss).detach())) > 1e-3

    def test_statistics_of_targets_count_each_row_once(self):
        policy = make(estimator(), actor=("policy",), made=ROBOT)
        ws = played(policy, steps=5)
        ws["env/valid"] = torch.rand(5, 4, generator=stream(0, "test")) < 0.7
        policy.update_normalisers(ws)
        rows = ws["env/obs/critic"][:5, :, 1:3][ws["env/valid"]].double()
        scale = policy.blocks[0].scale
        assert scale.count == len(rows)
        np.testing.assert_allclose(scale.mean, rows.mean(0), atol=1e-6)
        np.testing.assert_allclose(scale.var, rows.var(0, correction=0), atol=1e-6)

    def test_every_estimator_has_a_term_and_a_listed_one_takes_its_place(self):
        policy = policy_with(estimator(), estimator("grip", target=["critic.friction"]))
        config = PPOConfig(rollout_steps=9, minibatches=1)
        names = [term.name for term in PPO(policy, config, num_envs=4).terms.terms]
        assert names[-2:] == ["estimate/velocity", "estimate/grip"]
        own = Estimation(policy, "velocity", "l1_loss", coef=0.5)
        terms = PPO(policy, config, num_envs=4, terms=[own]).terms.terms
        assert [term.name for term in terms] == names
        assert own in terms
        assert "estimate/grip" in [term.name for term in A2C(policy, num_envs=4).terms.terms]
        metrics = PPO(policy, config, num_envs=4).update(played(policy), Now())
        assert {"loss/estimate/velocity", "loss/estimate/grip", "estimate/grip/r2"} <= set(metrics)

    def test_a_linear_target_is_learnt(self):
        policy = make(estimator(hidden=[32], replace=1.0), made=ROBOT, actor=("policy",))
        ws = played(policy, steps=32, envs=16)
        gyro = ws["env/obs/policy"][..., :2]
        ws["env/obs/critic"][..., 1:3] = 5.0 + gyro @ torch.tensor([[2.0, 0.0], [-1.0, 3.0]])
        policy.update_normalisers(ws)
        config = PPOConfig(rollout_steps=32, epochs=20, minibatches=4, learning_rate=1e-2, schedule="constant",
                           max_grad_norm=10.0)  # fmt: skip
        ppo = PPO(policy, config, num_envs=16)
        first, second = (float(ppo.update(ws, Now())["estimate/velocity/r2"]) for _ in range(2))
        assert first < 0.95
        assert second > 0.99


class TestGradients:
    """T-EST-G: who trains whom."""

    def gradients(self, policy, ws, parts):
        """Whether each of `parts` of the policy is reached by the losses of PPO, and by that of the estimator."""
        ppo = PPO(policy, PPOConfig(rollout_steps=9, minibatches=1), num_envs=4)
        ppo.terms.begin(Now())
        batch = ppo.prepare(ws)
        batch = batch | scored(policy.head, policy.outputs(batch), batch["raw"])
        reached = {}
        for name, which in (("ppo", range(3)), ("estimation", range(3, len(ppo.terms.terms)))):
            total, _ = ppo.terms.weighed(batch, which)
            for part, module in parts.items():
                gradient = torch.autograd.grad(
                    total, list(module.parameters()), retain_graph=True, materialize_grads=True
                )
                reached[name, part] = any(bool(each.any()) for each in gradient)
        return reached

    @pytest.mark.parametrize("memory", MEMORIES)
    @pytest.mark.parametrize("replace", [0.5, 1.0])
    def test_apart(self, memory, replace):
        policy = policy_with(estimator(replace=replace, **MEMORIES[memory])).seed(0)
        parts = {"actor": policy.actor, "critic": policy.critic, "estimator": policy.blocks[0]}
        assert self.gradients(policy, played(policy), parts) == {
            ("ppo", "actor"): True, ("ppo", "critic"): True, ("ppo", "estimator"): False,
            ("estimation", "actor"): False, ("estimation", "critic"): False, ("estimation", "estimator"): True,
        }  # fmt: skip

    def test_a_missing_detach_is_seen(self, monkeypatch):
        policy = policy_with(estimator(replace=1.0))
        ws = played(policy)
        monkeypatch.setattr(torch.Tensor, "detach", lambda self: self)
        parts = {"estimator": policy.blocks[0]}
        assert self.gradients(policy, ws, parts)["ppo", "estimator"]

    def test_behind_the_actors_memory(self):
        policy = policy_with(estimator(reads=["actor/memory"]), memory=MemoryConfig("gru", 4))
        assert policy.output_names == ("output", "value", "estimate/velocity")
        assert not policy.behind[0].state_size
        ws = played(policy)
        parts = {"memory": policy.actor.memory, "network": policy.actor.network, "estimator": policy.blocks[0]}
        assert self.gradients(policy, ws, parts) == {
            ("ppo", "memory"): True, ("ppo", "network"): True, ("ppo", "estimator"): False,
            ("estimation", "memory"): True, ("estimation", "network"): False, ("estimation", "estimator"): True,
        }  # fmt: skip
        assert ratio(policy, ws) < 1e-5
        # by hand: the head on what the memory puts out, step by step
        found = policy.outputs(policy.learner_inputs(ws))["estimate/velocity"]
        observed = policy.normalised({"policy": ws["env/obs/policy"]})["policy"]
        with torch.no_grad():
            for t in range(9):
                x, _ = policy.actor.memory.step(observed[t], ws["actor/memory"][t])
                torch.testing.assert_close(found[t], policy.blocks[0](x), rtol=1e-5, atol=1e-6)


class TestStack:
    """T-STACK: an adaptor, then an estimator that reads what the adaptor says."""

    ADAPTOR = estimator("friction", ("policy.gyro",), ("critic.friction",), memory="gru", replace=0.5)
    ESTIMATOR = estimator("velocity", ("policy.gyro", "policy.friction"), memory="lstm", replace=0.5)

    def made(self, *blocks):
        return policy_with(*blocks).seed(0)

    def test_each_has_its_own_loss_mask_and_memory(self):
        policy = self.made(self.ADAPTOR, self.ESTIMATOR)
        ws = played(policy, steps=40)
        masks = ws["replaced/friction"], ws["replaced/velocity"]
        assert 0.3 < float((masks[0] ^ masks[1]).float().mean()) < 0.7
        assert {name: memory.size for name, memory in policy.memories.items()} == {
            "estimate/friction/memory": 6, "estimate/velocity/memory": 12,
        }  # fmt: skip
        assert ratio(policy, ws) < 1e-5
        names = [term.name for term in PPO(policy, PPOConfig(minibatches=1), num_envs=4).terms.terms]
        assert names[-2:] == ["estimate/friction", "estimate/velocity"]

    def test_the_second_reads_the_first_without_gradient(self):
        policy = self.made(self.ADAPTOR, self.ESTIMATOR)
        ws = played(policy)
        batch = policy.learner_inputs(ws)
        found = policy.outputs(batch)
        first, second = (list(block.parameters()) for block in policy.blocks)
        by_second = torch.autograd.grad(
            found["estimate/velocity"].square().sum(), first, retain_graph=True, materialize_grads=True
        )
        assert not any(bool(each.any()) for each in by_second)
        assert any(bool(g.any()) for g in torch.autograd.grad(found["estimate/velocity"].square().sum(), second))
        # where the adaptor took the place, the estimator's input moves with it
        everywhere = {name: torch.ones_like(batch[name]) for name in policy.masks}
        nowhere = {name: torch.zeros_like(batch[name]) for name in policy.masks}
        outputs = [policy.outputs(batch | masks)["estimate/velocity"] for masks in (everywhere, nowhere)]
        assert (outputs[0] - outputs[1]).abs().max() > 1e-3
        only_own = batch | nowhere | {"replaced/velocity": everywhere["replaced/velocity"]}
        assert torch.equal(policy.outputs(only_own)["estimate/velocity"], outputs[1])

    def test_swapped_they_differ(self):
        policy, swapped = self.made(self.ADAPTOR, self.ESTIMATOR), self.made(self.ESTIMATOR, self.ADAPTOR)
        names = {f"blocks.{a}.": f"blocks.{1 - a}." for a in (0, 1)}
        state = policy.state_dict()
        swapped.load_state_dict({names.get(key[:9], key[:9]) + key[9:]: value for key, value in state.items()})
        ws = played(policy)
        batch = policy.learner_inputs(ws) | {name: torch.ones(9, 4, dtype=torch.bool) for name in policy.masks}
        found, other = policy.outputs(batch), swapped.outputs(batch)
        assert torch.equal(found["estimate/friction"], other["estimate/friction"])  # it reads nothing of the other
        assert (found["estimate/velocity"] - other["estimate/velocity"]).abs().max() > 1e-3
        assert (found["output"] - other["output"]).abs().max() > 1e-4


@pytest.mark.parametrize("memory", MEMORIES)
def test_evaluation_acts_as_the_rollout_did_and_an_update_trains_it(memory):
    policy = policy_with(estimator(replace=1.0, **MEMORIES[memory]), memory=MemoryConfig("gru", 4))
    ws = played(policy, steps=12, stochastic=False)
    act = InferencePolicy(policy)
    for t in range(12):
        if t:
            act.reset(ends_of(ws)[t - 1])
        torch.testing.assert_close(act({"policy": ws["env/obs/policy"][t]}), ws["action"][t])
    before = [parameter.detach().clone() for parameter in policy.blocks.parameters()]
    learn_once(policy, ws, steps=12)
    assert all(not torch.equal(now, old) for now, old in zip(policy.blocks.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("blocks", "options", "message"),
    [
        ([estimator()], {"critic": ("policy",)},
         "'estimate/velocity' has the target 'critic.velocity', which the critic does not read: it reads ['policy']; "
         "add 'critic' to agent.observations.critic"),
        ([estimator(reads=["actor/memory"], replace=0.5)], {"memory": MemoryConfig("gru", 4)},
         "agent.blocks[0]: 'estimate/velocity' reads the actor's memory and has replace: 0.5"),
        ([estimator(reads=["actor/memory"], memory="gru")], {"memory": MemoryConfig("gru", 4)},
         "reads the actor's memory and has one of its own"),
        ([estimator(reads=["actor/memory"])], {}, "no feature 'actor/memory'"),
        ([estimator(target=["critic.velocty"])], {}, "no feature 'critic.velocty'"),
        ([estimator(target=[])], {}, "target is empty"),
        ([estimator(replace=1.5)], {}, "agent.blocks[0].replace is 1.5"),
        ([estimator(replace=1.0, into=["policy.friction"])], {}, "into has 'policy.friction', 1 numbers, in the place"),
        ([estimator(into=["policy.velocity"])], {}, "but replace is 0"),
        ([estimator(replace=1.0, into=["critic.velocity"])], {}, "which neither the actor nor a block behind it reads"),
        ([{"name": "recurrent", "reads": ["actor/memory"], "writes": "deep"}], {"memory": MemoryConfig("gru", 4)},
         "reads the actor's memory and has one of its own; drop one"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(blocks, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        policy_with(*blocks, **options)


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        ("mse_los", {}, "loss is 'mse_los' (did you mean 'mse_loss'?); use an elementwise loss"),
        ("cross_entropy", {}, "loss is 'cross_entropy'"),
        ("softmax", {}, "loss is 'softmax'"),
        ("smooth_l1_loss", {"bta": 1.0}, "loss is 'smooth_l1_loss' with {'bta': 1.0}"),
    ],
)
def test_unknown_losses_are_refused(loss, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Estimation(policy_with(estimator()), "velocity", loss, options)
    with pytest.raises(ValueError, match=r"of is 'velocty' \(did you mean 'velocity'\?\)"):
        Estimation(policy_with(estimator()), "velocty")


def test_algorithms_without_loss_terms_refuse_estimators():
    config = SoftActorCriticConfig(blocks=(estimator(),))
    with pytest.raises(ValueError, match="learns by a loss term of its own, which there is on-policy alone"):
        SoftActorCritic(ROBOT, config, stream(0, "parameters"))
    assert issubclass(ConfigError, ValueError)
