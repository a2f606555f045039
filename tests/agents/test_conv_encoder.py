"""Convolutions as blocks: pictures stay bytes, vectors get a shape, one pass serves actor and critic."""

import re

import pytest
import torch
from block_cases import learn_once, make, played, spec

from gaitway.agents.conv_encoder import Conv1dEncoder, Conv2dEncoder
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.core.config import ConfigError
from gaitway.core.seeding import stream

SMALL = {"channels": [2, 3], "hidden": [7], "size": 5}


def conv(kind, reads, **options):
    return {"name": kind, "reads": [reads], "writes": "latent", **SMALL, **options}


def seeing(**options):
    """A policy with a picture, a height map as a vector and a history as one."""
    return make(
        conv("conv2d", "camera"),
        conv("conv2d", "heights", writes="ground", shape=(3, 4)),
        conv("conv1d", "past", writes="motion", shape=(2, 6), paddings=[0], strides=[1]),
        actor=("policy", "latent", "ground", "motion"),
        made=spec(policy=3, camera=(2, 8, 8), heights=12, past=12),
        **options,
    )


def test_sizes_and_the_ratio_of_every_step_is_one():
    policy = seeing()
    assert [block.convolutions.shapes for block in policy.blocks] == [
        [(2, 8, 8), (2, 4, 4), (3, 2, 2)],
        [(1, 3, 4), (2, 2, 2), (3, 1, 1)],
        [(2, 6), (2, 4), (3, 2)],
    ]
    ws = played(policy)
    assert policy.learner_inputs(ws)["obs/camera"].dtype is torch.uint8
    params, _ = policy.evaluate(policy.learner_inputs(ws))
    new, old = (policy.head.log_prob(each, ws["action"]) for each in (params, ws["policy/params"]))
    assert (new - old).abs().max() < 1e-5  # T-RATIO
    before = [parameter.detach().clone() for parameter in policy.blocks.parameters()]
    learn_once(policy, ws)
    assert all(not torch.equal(now, old) for now, old in zip(policy.blocks.parameters(), before, strict=True))


def test_bytes_are_shares_of_255_and_other_numbers_stay():
    options = {"reads": ("camera",), "writes": "latent", "channels": (2,), "generator": stream(0, "parameters")}
    block = Conv2dEncoder({"camera": (2, 8, 8)}, **options)
    picture = torch.randint(0, 256, (4, 2, 8, 8), dtype=torch.uint8, generator=stream(0, "test"))
    assert torch.equal(block(picture), block(picture.float() / 255))
    assert not torch.allclose(block(picture), block(picture.float()))


def test_channels_may_come_last():
    options = {"reads": ("camera",), "writes": "latent", "channels": (2,)}
    first = Conv2dEncoder({"camera": (3, 8, 6)}, **options, generator=stream(0, "parameters"))
    last = Conv2dEncoder({"camera": (8, 6, 3)}, **options, channels_last=True, generator=stream(0, "parameters"))
    picture = torch.rand(2, 5, 3, 8, 6, generator=stream(0, "test"))
    torch.testing.assert_close(first(picture), last(picture.movedim(-3, -1)))
    signal = Conv1dEncoder({"lidar": (20,)}, ("lidar",), "rays", channels=(2,))
    assert signal.shape == (1, 20)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (conv("conv2d", "policy"), "'policy' is [3]; this block reads [channels, height, width]"),
        (conv("conv2d", "policy", shape=(2, 2)), "shape is [2, 2], 4 numbers, but 'policy' has [3]"),
        (conv("conv2d", "camra"), "no feature 'camra' (did you mean 'camera'?)"),
        (conv("conv2d", "camera", kernels=[0]), "agent.blocks[0].kernels[0] is 0"),
        (conv("conv2d", "camera", norm="batch"), "agent.blocks[0].norm is 'batch'"),
        ({**conv("conv2d", "camera"), "reads": ["camera", "policy"]}, "write a block for each"),
    ],
)
def test_what_cannot_be_seen_is_refused(entry, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make(entry, made=spec(policy=3, camera=(2, 8, 8)))


class TestOnePass:
    """T-SHARED: several heads on one pass of an encoder."""

    def counted(self, policy):
        calls = []
        policy.blocks[0].register_forward_hook(lambda *_: calls.append(1))
        return calls

    def test_the_encoder_runs_once_for_actor_critic_and_further_heads(self):
        head = {"name": "mlp", "reads": ["latent"], "writes": "head", "size": 2}
        policy = make(
            conv("conv2d", "camera"), head, actor=("policy", "latent"), critic=("latent",),
            made=spec(policy=3, camera=(2, 8, 8)),
        )  # fmt: skip
        ws, calls = played(policy), self.counted(policy)
        batch = policy.learner_inputs(ws)
        found = policy.outputs(batch)
        assert len(calls) == 1
        latent = policy.blocks[0](batch["obs/camera"])
        with torch.no_grad():  # each head on a pass of its own
            actor = policy.actor.network(torch.cat((batch["obs/policy"], latent), -1))
            torch.testing.assert_close(found["output"], actor, rtol=0, atol=0)
            torch.testing.assert_close(found["value"], policy.critic.network(latent)[..., 0], rtol=0, atol=0)
            torch.testing.assert_close(found["head"], policy.blocks[1](latent), rtol=0, atol=0)
        calls.clear()
        policy.step(ws, 0)
        assert len(calls) == 1

    def gradients(self, detach, critic=("latent",)):
        policy = make(conv("conv2d", "camera", detach=detach), critic=critic, made=spec(policy=3, camera=(2, 8, 8)))
        found = policy.outputs(policy.learner_inputs(played(policy)))
        parameters = list(policy.blocks.parameters())
        return [
            any(bool(g.any()) for g in torch.autograd.grad(
                found[name].square().sum(), parameters, retain_graph=True, materialize_grads=True))
            for name in ("output", "value")
        ]  # fmt: skip

    def test_who_trains_a_shared_encoder(self):
        assert self.gradients(False) == [True, True]
        assert self.gradients("critic") == [True, False]
        assert self.gradients("critic", critic=("policy", "latent")) == [True, False]  # as the actor, and yet its own
        assert self.gradients(True) == [False, False]

    def test_a_critic_with_an_encoder_of_its_own_or_none(self):
        own = make(
            conv("conv2d", "camera"), conv("conv2d", "camera", writes="judged"), critic=("policy", "judged"),
            made=spec(policy=3, camera=(2, 8, 8)),
        )  # fmt: skip
        found = own.outputs(own.learner_inputs(played(own)))
        for name, trained in (("output", 0), ("value", 1)):
            for number, block in enumerate(own.blocks):
                gradient = torch.autograd.grad(
                    found[name].square().sum(), list(block.parameters()), retain_graph=True, materialize_grads=True
                )
                assert any(bool(g.any()) for g in gradient) == (number == trained)
        raw = make(conv("conv2d", "camera"), critic=("policy",), made=spec(policy=3, camera=(2, 8, 8)))
        assert raw.input_size("critic") == 3
        with pytest.raises(ValueError, match="networks read vectors, so let a block"):
            make(conv("conv2d", "camera"), critic=("camera",), made=spec(policy=3, camera=(2, 8, 8)))

    def test_where_critics_alone_train_blocks_they_are_not_cut_off(self):
        blocks = ({"name": "mlp", "reads": ["policy"], "writes": "latent", "detach": "critic"},)
        with pytest.raises(ValueError, match="critics alone train blocks"):
            SoftActorCritic(spec(), SoftActorCriticConfig(blocks=blocks), stream(0, "parameters"))
