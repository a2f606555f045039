"""Imitation as loss terms: forms on distributions, labels of the cast, latents; what cannot be compared is refused."""

import math

import pytest
import torch
from policy_gradient_cases import CHOICE, FORCES, SMALL, make_policy, rollout_of
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.observations import Observations
from gaitway.algorithms.algorithm import DeviceNow, Now
from gaitway.algorithms.imitation import FORMS, ActionDistance, ActionForm, Imitation, LatentImitation
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.algorithms.terms import TERMS
from gaitway.core.config import ConfigError
from gaitway.core.parts import make_part
from gaitway.core.seeding import stream
from gaitway.envs.spec import Component, EnvSpec, ObservationGroup
from gaitway.functional.imitation import DISTANCES

SQUASHED = ActorCriticConfig(
    actor_hidden=(12,), critic_hidden=(12,), distribution=DistributionConfig(kind="squashed_gaussian")
)


def labelled(policy, seed=3):
    """A rollout with labels of the teacher, of which the policy has gone over the first rows."""
    ws = rollout_of(policy)
    generator = stream(seed, "labels")
    limits = torch.tensor(policy.spec.action.high)
    ws["teacher/action"] = limits * (1.8 * torch.rand(12, 5, 2, generator=generator) - 0.9)
    ws["teacher/params"] = torch.cat((ws["teacher/action"], 0.3 + torch.rand(12, 5, 2, generator=generator)), -1)
    return ws


def loss_of(term, policy, ws):
    ppo = PPO(policy, PPOConfig(rollout_steps=12, minibatches=1), num_envs=5, terms=[term])
    ppo.terms.begin(Now())
    batch = {name: value.flatten(0, 1) for name, value in ppo.prepare(ws).items()}
    return ppo.terms.loss(batch)[1], ppo, batch


@pytest.mark.parametrize("form", FORMS)
def test_every_form_by_hand(form):
    agent = SQUASHED if "tanh" in form else SMALL
    policy = make_policy(FORCES, agent)
    ws = labelled(policy)
    found, _, batch = loss_of(Imitation(policy, form), policy, ws)
    label = ws["teacher/action"].flatten(0, 1).double()
    params = policy.evaluate(batch)[0].detach().double()
    mean, std = params.chunk(2, -1)
    half = torch.tensor((1.0, 2.0), dtype=torch.float64)
    if form in DISTANCES:
        action = half * mean.tanh() if agent is SQUASHED else mean
        wanted = DISTANCES[form](action / half, label / half)
    elif form == "log_prob":
        normal = torch.distributions.Normal(mean, std)
        wanted = -normal.log_prob(label).sum(-1)
    else:
        theirs = ws["teacher/params"].flatten(0, 1).double().chunk(2, -1)
        normals = torch.distributions.Normal(*theirs), torch.distributions.Normal(mean, std)
        wanted = torch.distributions.kl_divergence(*normals).sum(-1)
    assert found["loss/imitation"].item() == pytest.approx(wanted.mean().item(), rel=1e-4)


def test_kl_begins_at_the_teacher():
    """KL(teacher || student), which covers the teacher, and not the other way round."""
    policy = make_policy(FORCES)
    ws = labelled(policy)
    _, _, batch = loss_of(Imitation(policy, "kl"), policy, ws)
    with torch.no_grad():
        said = {"new/params": policy.evaluate(batch)[0]}
    right = ActionForm(policy, "kl")(said, batch["teacher/params"])
    wrong = ActionForm(policy, "kl")({"new/params": batch["teacher/params"]}, said["new/params"])
    assert not torch.allclose(right, wrong, rtol=0.1)


def test_rows_of_the_teacher_are_learnt_from_too():
    policy = make_policy(FORCES)
    ws = labelled(policy)
    found, _, _ = loss_of(Imitation(policy), policy, ws)
    ws["weight/policy"] = (torch.rand(12, 5, generator=stream(1, "acted")) < 0.3).float()
    others, _, _ = loss_of(Imitation(policy), policy, ws)
    assert found["loss/imitation"] == others["loss/imitation"]


def test_rows_that_only_reset_are_not():
    policy = make_policy(FORCES)
    ws = rollout_of(policy, valid=True)
    ws["teacher/action"] = torch.where(ws["env/valid"].unsqueeze(-1), 0.5, 1e6) * torch.ones(ws.T, 5, 2)
    found, _, _ = loss_of(Imitation(policy), policy, ws)
    assert found["loss/imitation"] < 10.0


def test_errors_are_per_action_and_in_its_unit():
    policy = make_policy(FORCES)
    ws = labelled(policy)
    found, _, batch = loss_of(Imitation(policy), policy, ws)
    with torch.no_grad():
        mean = policy.head.mode(policy.evaluate(batch)[0])
    error = (mean - batch["teacher/action"]).abs().mean(0)
    assert_close(found["imitation/error/left"], error[0])
    assert_close(found["imitation/error/right"], error[1])


def test_the_error_before_tanh_is_told():
    policy = make_policy(FORCES, SQUASHED)
    ws = labelled(policy)
    found, _, batch = loss_of(Imitation(policy, "tanh"), policy, ws)
    with torch.no_grad():
        inner = policy.evaluate(batch)[0].chunk(2, -1)[0]
    half = torch.tensor((1.0, 2.0))
    wanted = (inner - (batch["teacher/action"] / half).atanh()).abs().sum(-1).mean()
    assert found["imitation/error_before_tanh"].item() == pytest.approx(wanted.item(), rel=1e-4)


def test_choices_are_imitated_by_probability():
    policy = make_policy(CHOICE)
    ws = rollout_of(policy)
    ws["teacher/action"] = torch.randint(3, (12, 5), generator=stream(2, "labels"))
    found, _, batch = loss_of(Imitation(policy), policy, ws)
    with torch.no_grad():
        logits = policy.outputs(batch)["output"].double()
    label = batch["teacher/action"]
    wanted = -logits.log_softmax(-1).gather(-1, label.unsqueeze(-1)).mean()
    assert found["loss/imitation"].item() == pytest.approx(wanted.item(), rel=1e-5)
    assert found["imitation/agreement"].item() == pytest.approx((logits.argmax(-1) == label).double().mean().item())


def test_action_distance_takes_every_form():
    frozen, policy = make_policy(FORCES, seed=1).requires_grad_(False), make_policy(FORCES)
    ws = rollout_of(policy)
    for form in ("l1", "kl"):
        found, _, batch = loss_of(ActionDistance(frozen, policy, form=form), policy, ws)
        obs = {"policy": ws["env/obs/policy"][:12].flatten(0, 1)}
        theirs = frozen.answer(obs, None).params
        with torch.no_grad():
            ours = policy.evaluate(batch)[0]
        half = torch.tensor((1.0, 2.0))
        gap = ((theirs - ours)[:, :2] / half).abs().sum(-1)
        wanted = gap if form == "l1" else policy.head.kl(theirs, ours)
        assert found["loss/action_distance"].item() == pytest.approx(wanted.mean().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("action", "agent", "form", "said"),
    [
        (FORCES, SMALL, "l3", r"there is no form 'l3' \(did you mean 'l2'\?\); use one of l2, squared, l1"),
        (CHOICE, SMALL, "l2", "the form 'l2' measures distances, which choices have none of; use log_prob or kl"),
        (FORCES, SMALL, "tanh", "the form 'tanh' needs mean actions within the limits; set agent.distribution.kind to"),
    ],
)
def test_forms_that_do_not_fit_are_refused(action, agent, form, said):
    with pytest.raises(ValueError, match=said):
        Imitation(make_policy(action, agent), form)


def test_an_unknown_form_in_a_configuration_is_told_with_its_key():
    with pytest.raises(ConfigError, match=r"algorithm.terms\[0\].form is the text 'l3'; expected 'l2', 'squared'"):
        make_part(
            {"name": "imitation", "form": "l3"}, TERMS, "algorithm.terms[0]", given={"policy": make_policy(FORCES)}
        )


def test_kl_with_another_distribution_is_refused():
    with pytest.raises(ValueError, match="has no distribution of the kind Gaussian over the same actions, which the"):
        ActionDistance(make_policy(FORCES, SQUASHED), make_policy(FORCES), form="kl")


# --- Latents ---------------------------------------------------------------------------------------------------------


def encoder(size=4, group="policy", seed=0):
    groups = [ObservationGroup(name, (Component("x", 3),), (3,)) for name in ("policy", "clean")]
    spec = EnvSpec("test", tuple(groups), FORCES, control_dt=0.02, max_episode_steps=6)
    block = {"name": "mlp", "reads": [group], "writes": "seen", "size": size, "hidden": [16]}
    config = ActorCriticConfig(
        actor_hidden=(12,), critic_hidden=(12,), blocks=(block,), observations=Observations(("seen",), ("seen",))
    )
    return ActorCritic(spec, config, stream(seed, "parameters"))


@pytest.mark.parametrize(("broken", "learns"), [(False, True), (True, False)], ids=["", "another row's latent"])
def test_latents_come_together(broken, learns):
    """T-LATENT: a student's encoder of noisy observations learns what the teacher's makes of clean ones."""
    teacher, student = encoder(group="clean", seed=1).eval().requires_grad_(False), encoder()
    generator, before = stream(0, "noise"), {name: value.clone() for name, value in teacher.state_dict().items()}
    term = LatentImitation(student, {"seen": "seen"}, "squared")
    assert term.reads == ("new/seen", "teacher/latent/seen")
    optimiser, now, losses = torch.optim.Adam(student.parameters(), 1e-2), DeviceNow(), []
    for _ in range(200):
        clean = torch.randn(256, 3, generator=generator)
        noisy = clean + 0.05 * torch.randn(256, 3, generator=generator)
        label = teacher.answer({"clean": clean}, None).written["seen"]
        batch = {"obs/policy": noisy, "obs/clean": clean}
        outputs = {f"new/{name}": value for name, value in student.outputs(batch).items()}
        loss, found = term(outputs | {"teacher/latent/seen": label.roll(1, 0) if broken else label}, now)
        assert_close(found["loss/latent/seen"], loss.detach())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    likeness = torch.cosine_similarity(outputs["new/seen"], label, dim=-1).mean().item()
    assert (likeness >= 0.95 and losses[-1] <= 0.05 * losses[0]) is learns
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_latents_that_do_not_fit_are_refused():
    student = encoder()
    with pytest.raises(ValueError, match=r"latents is empty; write \{feature of this policy: feature of the teacher\}"):
        LatentImitation(student, {})
    with pytest.raises(ValueError, match="there is no form 'kl' of latents; use one of l2"):
        LatentImitation(student, {"seen": "seen"}, "kl")
    with pytest.raises(ValueError, match="reads 'new/sen', which neither the policy nor a block of it writes"):
        PPO(student, PPOConfig(rollout_steps=4), num_envs=4, terms=[LatentImitation(student, {"sen": "seen"})])
    batch = {"new/seen": torch.zeros(5, 4), "teacher/latent/seen": torch.zeros(5, 7)}
    with pytest.raises(ValueError, match="the latent 'seen' has 4 numbers and 'seen' of the teacher has 7; give the"):
        LatentImitation(student, {"seen": "seen"})(batch, DeviceNow())


def test_math_of_unit_margin_is_finite():
    policy = make_policy(FORCES, SQUASHED)
    form = ActionForm(policy, "tanh")
    label = torch.tensor([[1.0, -2.0]])
    value = form({"new/mean": torch.tensor([[-1.0, 2.0]])}, label)
    assert value.item() == pytest.approx(-2 * math.log(1e-6), rel=1e-3)
