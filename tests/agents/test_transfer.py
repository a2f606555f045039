"""T-LOADMAP: weights for a policy that is not quite the same. Encoders replaced, inputs matched by name, rules."""

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.transfer import SEEN, Report, Rule, check_units, transfer
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

ACTION = ActionSpec("continuous", ("hip", "knee"), (-1.0, -1.0), (1.0, 1.0))
SIZES = {"angle": 2, "speed": 3, "gravity": 1, "height": 2}


def spec(*names, critic=("angle", "speed")):
    """A world whose group `policy` has these components; `critic` its own."""
    groups = {"policy": names, "critic": critic}
    made = (
        ObservationGroup(
            name, tuple(Component(each, SIZES[each]) for each in parts), (sum(SIZES[each] for each in parts),)
        )
        for name, parts in groups.items()
    )
    return EnvSpec("test/robot", tuple(made), ACTION, 0.02, 0)


def observation(world, values):
    """Each component shows the same numbers wherever it stands."""
    return {
        group.name: torch.cat([values[component.name] for component in group.components], -1) for group in world.groups
    }


def policy(world, seed, **options):
    made = ActorCritic(
        world,
        ActorCriticConfig(actor_hidden=(8,), critic_hidden=(8,), **options),
        generator=torch.Generator().manual_seed(seed),
    )
    with torch.no_grad():  # a last layer that is not nearly zero
        made.actor.network.last.weight.normal_(generator=torch.Generator().manual_seed(seed + 1))
    return made


def trained(world, seed=0, **options):
    """A policy whose normalisers have seen something, each component something else."""
    made = policy(world, seed, **options)
    generator = torch.Generator().manual_seed(5)
    values = {name: torch.randn(50, 4, size, generator=generator) * 3 + len(name) for name, size in SIZES.items()}
    rows = {f"env/obs/{name}": value for name, value in observation(world, values).items()}
    made.update_normalisers(Workspace.packed(rows))
    return made


def values_of(batch=6, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(batch, size, generator=generator) for name, size in SIZES.items()}


def acts(made, values):
    obs = observation(made.spec, values)
    state = made.initial_state(6, torch.device("cpu"))
    with torch.no_grad():
        first, state = made.act(obs, state, stochastic=False)
        return torch.stack((first, made.act(obs, state, stochastic=False)[0]))


KINDS = {
    "plain": {},
    "gru": {"memory": MemoryConfig("gru", 8)},
    "lstm": {"memory": MemoryConfig("lstm", 6, layers=2)},
    "mlp": {
        "blocks": ({"name": "mlp", "reads": ("policy",), "writes": "latent", "size": 4},),
        "observations": Observations(actor=("latent",)),
    },
    "history": {
        "blocks": ({"name": "history", "reads": ("policy",), "writes": "latent", "size": 4, "length": 3},),
        "observations": Observations(actor=("latent", "policy")),
    },
}


@pytest.mark.parametrize("kind", list(KINDS))
class TestInputs:
    def test_components_in_another_order_give_equal_outputs(self, kind):
        source = trained(spec("angle", "speed", "gravity"), **KINDS[kind])
        target = policy(spec("gravity", "angle", "speed"), 9, **KINDS[kind])
        report = transfer(source, target, new_inputs="zero")
        values = values_of()
        assert_close(acts(target, values), acts(source, values), rtol=1e-5, atol=1e-6)
        assert not report.new
        assert set(report.resized.values()) == {"other order"}
        assert target.normalisers.of("policy").count == source.normalisers.of("policy").count == 200

    def test_new_components_do_not_change_the_first_actions(self, kind):
        source = trained(spec("angle", "speed"), **KINDS[kind])
        target = policy(spec("height", "speed", "gravity", "angle"), 9, **KINDS[kind])
        report = transfer(source, target, new_inputs="zero")
        values = values_of()
        expected = acts(source, values)
        assert_close(acts(target, values), expected, rtol=1e-5, atol=1e-6)
        values["height"] += 100  # whatever they show
        assert_close(acts(target, values), expected, rtol=1e-5, atol=1e-6)
        assert any("3 new: policy.height[0]" in how for how in report.resized.values())
        norm = target.normalisers.of("policy")
        assert norm.mean[:2].tolist() == [0, 0]  # nothing was seen of height
        assert norm.mean[2:5].tolist() == source.normalisers.of("policy").mean[2:5].tolist()

    def test_new_components_are_refused_unless_told(self, kind):
        source, target = trained(spec("angle"), **KINDS[kind]), policy(spec("angle", "height"), 9, **KINDS[kind])
        before = {name: value.clone() for name, value in target.state_dict().items()}
        with pytest.raises(ValueError, match=r"reads policy.height\[0\], policy.height\[1\] here, which is new"):
            transfer(source, target)
        assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def test_the_twins_that_ignore_names_differ():
    """What the tests above would not find is no test: copying by place, or drawn weights for new inputs."""
    source, target = trained(spec("angle", "speed")), policy(spec("speed", "angle"), 9)
    target.load_state_dict(source.state_dict())
    values = values_of()
    assert (acts(target, values) - acts(source, values)).abs().max() > 0.05
    target = policy(spec("angle", "speed", "height"), 9)
    transfer(source, target, new_inputs="zero")
    with torch.no_grad():
        target.actor.network.layers[0].weight[:, 5:].normal_(generator=torch.Generator().manual_seed(0))
    assert (acts(target, values) - acts(source, values)).abs().max() > 0.05


def test_statistics_of_a_group_with_new_components_stay_movable():
    source = trained(spec("angle"))
    source.normalisers.of("policy").count.fill_(10**7)
    target = policy(spec("angle", "height"), 9)
    transfer(source, target, new_inputs="zero")
    assert int(target.normalisers.of("policy").count) == SEEN
    assert int(target.normalisers.of("critic").count) == 200


ENCODERS = {
    "blocks": (
        {"name": "mlp", "reads": ("policy",), "writes": "encoder", "size": 4},
        {"name": "mlp", "reads": ("critic",), "writes": "encoder_critic", "size": 4},
    ),
    "observations": Observations(actor=("encoder",), critic=("encoder_critic",)),
}


class TestRules:
    def test_a_replaced_encoder_leaves_the_critics(self):
        source, target = trained(spec("angle"), **ENCODERS), policy(spec("angle"), 9, **ENCODERS)
        drawn = target.blocks[0].network.layers[0].weight.clone()
        report = transfer(source, target, rules=[Rule.of({"match": r"blocks\.encoder", "from": "fresh"})])
        assert torch.equal(target.blocks[0].network.layers[0].weight, drawn)
        for name, value in target.blocks[1].state_dict().items():
            assert torch.equal(value, source.blocks[1].state_dict()[name])
        assert torch.equal(target.actor.network.layers[0].weight, source.actor.network.layers[0].weight)
        assert {name.split(".")[1] for name in report.new} == {"encoder"}
        assert "skipped  blocks.encoder (4)" in report.lines()

    def test_an_encoder_of_another_size_with_a_rule_and_without(self):
        source = trained(spec("angle"), **ENCODERS)
        wide = ({**ENCODERS["blocks"][0], "hidden": (5, 5)}, ENCODERS["blocks"][1])
        target = policy(spec("angle"), 9, blocks=wide, observations=ENCODERS["observations"])
        with pytest.raises(ValueError, match=r"set agent as it is there, or leave it out by a rule"):
            transfer(source, target, rules=[Rule.of({"match": "critic", "from": "source"})])
        transfer(source, target, rules=[Rule.of({"match": "blocks.encoder", "from": "fresh"})])

    def test_renamed(self):
        """The critic's encoder of the source as the one of the target's actor; blocks are known by what they write."""
        source = trained(spec("angle", critic=("angle",)), **ENCODERS)
        other = (ENCODERS["blocks"][1], {**ENCODERS["blocks"][0], "writes": "seen"})
        target = policy(
            spec("angle", critic=("angle",)), 9, blocks=other, observations=Observations(("seen",), ("encoder_critic",))
        )
        rule = Rule.of({"match": r"blocks\.seen\.(network)", "from": r"rename:blocks.encoder.\1"})
        report = transfer(source, target, rules=[rule], new_inputs="zero")
        assert torch.equal(target.blocks[1].network.layers[0].weight, source.blocks[0].network.layers[0].weight)
        assert torch.equal(target.blocks[0].network.layers[0].weight, source.blocks[1].network.layers[0].weight)
        assert any("actor.network" in name for name in report.resized)  # it reads seen[0..3], which is new

    def test_the_first_rule_decides(self):
        source, target = trained(spec("angle")), policy(spec("angle"), 9)
        drawn = target.actor.network.layers[0].weight.clone()
        rules = [{"match": r"actor\.network\.layers\.0", "from": "source"}, {"match": "actor", "from": "fresh"}]
        transfer(source, target, rules=[Rule.of(rule) for rule in rules])
        assert torch.equal(target.actor.network.layers[0].weight, source.actor.network.layers[0].weight)
        assert not torch.equal(target.actor.network.layers[2].weight, source.actor.network.layers[2].weight)
        transfer(source, target, rules=[Rule.of(rule) for rule in rules[::-1]])
        assert not torch.equal(drawn, target.actor.network.layers[0].weight)  # as it stood, not drawn again

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ({"match": "blocks.encodr", "from": "fresh"}, r"'blocks\.encodr' matches nothing; there are .*blocks\.enc"),
            ({"match": "blocks.enc", "from": "fresh"}, "matches nothing"),  # the beginning of a word is no name
            ({"match": "actor(", "from": "fresh"}, r"'actor\(' is not a regular expression"),
            ({"match": "actor", "from": "somewhere"}, "use source, fresh or rename:NAME"),
            ({"match": "actor"}, r"a rule is \{match: \.\.\., from: \.\.\.\}"),
            ({"match": r"actor", "from": "rename:aktor"}, r"takes actor\.\S+ from aktor\.\S+, which is not there"),
        ],
    )
    def test_bad_rules_are_named(self, entry, said):
        source, target = trained(spec("angle"), **ENCODERS), policy(spec("angle"), 9, **ENCODERS)
        with pytest.raises(ValueError, match=said):
            transfer(source, target, rules=[Rule.of(entry)])


class TestParts:
    def test_the_actor_alone(self):
        source, target = trained(spec("angle")), policy(spec("angle"), 9)
        before = {name: value.clone() for name, value in target.state_dict().items()}
        report = transfer(source, target, parts=["actor", "normalisers"])
        for name, value in target.state_dict().items():
            taken = name.startswith(("actor", "normalisers"))
            assert torch.equal(value, source.state_dict()[name] if taken else before[name]), name
        assert {name.split(".")[0] for name in report.new} == {"critic", "head"}
        assert {name.split(".")[0] for name in report.skipped} == {"critic", "head"}

    def test_a_part_that_is_not_there(self):
        source, target = trained(spec("angle")), policy(spec("angle"), 9)
        with pytest.raises(ValueError, match="parts names 'brain', which is not there; there are actor, critic, head"):
            transfer(source, target, parts=["brain"])

    def test_components_in_other_units(self):
        one = EnvSpec("a", (ObservationGroup("policy", (Component("tilt", 1, "rad"),), (1,)),), ACTION, 0.02, 0)
        other = EnvSpec("b", (ObservationGroup("policy", (Component("tilt", 1, "deg"),), (1,)),), ACTION, 0.02, 0)
        with pytest.raises(ValueError, match=r"policy\.tilt is shown in rad times 1 there and in deg times 1 here"):
            check_units(one, other)


def test_the_table():
    report = Report(
        ["actor.network.a", "actor.network.b"], ["critic.network.a"], ["head.log_std"], {"actor.w": "1 new"}
    )
    assert report.lines() == [
        "loaded   actor.network (2)",
        "new      critic.network (1)",
        "skipped  head.log_std (1)",
        "resized  actor.w: 1 new",
    ]


def test_a_standard_deviation_to_begin_with():
    made = policy(spec("angle"), 0)
    made.head.set_std(0.25)
    obs = observation(made.spec, values_of())
    found = made.head.std(made.head(made.actor(made.network_input(obs, "actor"), None)[0]))
    assert_close(found, torch.full_like(found, 0.25))
    with pytest.raises(ValueError, match="must lie in std_range"):
        made.head.set_std(1e9)
