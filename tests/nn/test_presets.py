"""Networks by name: what each computes, written out in float64, how it starts, and what is refused."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.core.seeding import stream
from gaitway.nn.presets import make_network

WALKER = {"desired_goal": 7, "observation": 59, "task": 7}
HUMANOID = {"desired_goal": 10, "observation": 149, "task": 10}
PUBLISHED = [
    *(f"pi_d2rl{d}_{width}" for d in ("", "_d") for width in (256, 512, 1024)),
    *(f"pi_d2rl_{variant}_d_{width}" for variant in ("mt", "discrete") for width in (256, 512)),
    *(f"{kind}_d2rl{d}_{width}" for kind in ("q", "qd") for d in ("", "_d") for width in (256, 512, 1024)),
    *(f"qd_d2rl_flattsg_d_{width}" for width in (256, 512, 1024)),
    "qd_relu_d_3x256",
    "pi_bilinear_d2rl_d_256",
    "q_bilinear_d2rl_d_256",
    "double_q(q_d2rl_d_256)",
    "double_q(q_bilinear_d2rl_d_256)",
    "pi_diayn_cskill",
    "phi_diayn_d2rl_256",
    "phi_diayn_d2rl_1024",
]


def batch(inputs, rows=5, dtype=torch.float64):
    return {
        name: torch.randn(rows, size, generator=stream(index, "test"), dtype=dtype)
        for index, (name, size) in enumerate(inputs.items())
    }


def made(name, inputs, outputs, **options):
    return make_network(name, inputs, outputs, generator=stream(0, "parameters"), **options).double()


def d2rl(x, trunk, member=None):
    """Layers on [hidden, input], with weights and biases cut out of the trunk."""
    pick = (lambda p: p) if member is None else (lambda p: p[member])
    bias, first, h = pick(trunk.bias).reshape(-1), 0, None
    for index, width in enumerate(trunk.widths):
        columns = slice(first, first + width)
        weight = pick(trunk.input.weight)[:, columns]
        if h is None:
            h = x @ weight + bias[columns]
        else:
            h = torch.cat((h, x), -1) @ torch.cat((pick(trunk.hidden[index - 1].weight), weight), 0) + bias[columns]
        h, first = h.clamp(min=0), first + width
    return h


def joined(x, *leave_out):
    return torch.cat([value for name, value in x.items() if name not in leave_out], -1)


def randomised(network):
    """Zero and small starts hide mistakes: other parameters everywhere."""
    with torch.no_grad():
        for index, p in enumerate(network.parameters()):
            p.copy_(0.3 * torch.randn(p.shape, generator=stream(index, "noise"), dtype=p.dtype))
    return network


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_name_makes_a_network_of_float32(name):
    inputs, outputs = {"observation": 9, "task": 4, "subgoal": 3}, 1 if name.startswith(("q", "double")) else 6
    network, x = make_network(name, inputs, outputs), batch(inputs, dtype=torch.float32)
    assert all(p.dtype == torch.float32 and p.device.type == "cpu" for p in network.parameters())
    assert list(network.inputs.items()) == list(inputs.items())
    found = network(x)
    if name.startswith("pi") and "discrete" not in name:
        mean, std = found
        assert mean.shape == std.shape == ((5, 4, 6) if "_mt" in name else (5, 6))
        assert (std > 0).all()
        assert mean.dtype == torch.float32
    else:
        shape = (5,) if name.startswith("q_") else (5, 2) if name.startswith(("qd", "double")) else (5, 6)
        assert found.shape == shape
        assert found.dtype == torch.float32


def test_sizes_of_the_published_robots():
    assert made("pi_d2rl_d_8", WALKER, 6).network.trunk.input.weight.shape[0] == 73
    assert made("pi_d2rl_d_8", HUMANOID, 21).network.trunk.input.weight.shape[0] == 169
    walker = made("qd_d2rl_flattsg_d_8", {"observation": 64, "task": 31, "subgoal": 7}, 2)
    humanoid = made("qd_d2rl_flattsg_d_8", {"observation": 155, "task": 31, "subgoal": 10}, 2)
    assert walker.network.network.trunk.input.weight.shape == (2, 312, 32)
    assert humanoid.network.network.trunk.input.weight.shape == (2, 496, 32)
    policy = make_network("pi_d2rl_d_1024", WALKER, 6)
    # 73 -> 1024, three times 1097 -> 1024, then 1024 -> 6 means and 6 logarithms
    assert sum(p.numel() for p in policy.parameters()) == 74 * 1024 + 3 * 1098 * 1024 + 1025 * 12


@pytest.mark.parametrize("order", [list(WALKER), list(reversed(WALKER))])
def test_policies(order):
    inputs = {name: WALKER[name] for name in order}
    network, x = randomised(made("pi_d2rl_d_16", inputs, 6)), batch(WALKER)
    mean, std = network({"unknown": torch.zeros(5, 3)} | x)  # found by name, joined in the order given at first
    assert len(network.network.trunk.widths) == 4
    h = d2rl(torch.cat([x[name] for name in order], -1), network.network.trunk)
    last = network.network.last
    assert_close(mean, h @ last.weight[:6].T + last.bias[:6], atol=1e-12, rtol=1e-12)
    log_std = h @ last.weight[6:].T + last.bias[6:]
    assert log_std.min() < -5
    assert log_std.max() > 2
    assert_close(std, log_std.clamp(-5, 2).exp(), atol=1e-12, rtol=1e-12)


def test_multi_head_policies_read_all_but_the_task():
    inputs = {"task": 3, "observation": 5, "time": 1}
    network, x = randomised(made("pi_d2rl_mt_d_16", inputs, 2)), batch(inputs)
    mean, std = network(x)
    h, last = d2rl(joined(x, "task"), network.network.trunk), network.network.last
    for head in range(3):  # a policy of its own on the common trunk
        rows = slice(2 * head, 2 * head + 2)
        assert_close(mean[:, head], h @ last.weight[:6][rows].T + last.bias[:6][rows], atol=1e-12, rtol=1e-12)
        log_std = h @ last.weight[6:][rows].T + last.bias[6:][rows]
        assert_close(std[:, head], log_std.clamp(-5, 2).exp(), atol=1e-12, rtol=1e-12)
    del x["task"]
    assert_close(network(x), (mean, std), atol=0, rtol=0)


@pytest.mark.parametrize("name", ["pi_d2rl_discrete_d_16", "phi_diayn_d2rl_16"])
def test_logits(name):
    network, x = randomised(made(name, WALKER, 4)), batch(WALKER)
    h, last = d2rl(joined(x), network.network.trunk), network.network.last
    assert_close(network(x), h @ last.weight.T + last.bias, atol=1e-12, rtol=1e-12)


def test_critics():
    inputs = {"action": 6} | WALKER
    network, x = randomised(made("q_d2rl_d_16", inputs, 1)), batch(inputs)
    h, last = d2rl(joined(x), network.network.trunk), network.network.last
    assert_close(network(x), (h @ last.weight.T + last.bias)[:, 0], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("outputs", [1, 2])
def test_double_critics_are_two_networks(outputs):
    inputs = {"action": 6} | WALKER
    network, x = randomised(made("qd_d2rl_d_16", inputs, outputs)), batch(inputs)
    trunk, last = network.network.network.trunk, network.network.network.last
    values = [d2rl(joined(x), trunk, member) @ last.weight[member] + last.bias[member] for member in range(2)]
    assert_close(network(x), torch.cat(values, -1), atol=1e-12, rtol=1e-12)


def test_expanded_critics_read_the_subgoal_last():
    inputs = {"observation": 4, "subgoal": 2, "task": 3}
    network, x = randomised(made("qd_d2rl_flattsg_d_16", inputs, 2)), batch(inputs)
    expanded = torch.stack([x["task"][:, d] * x["subgoal"][:, g] for d in range(3) for g in range(2)], -1)
    flat = torch.cat((x["observation"], x["task"], expanded), -1)
    trunk, last = network.network.network.trunk, network.network.network.last
    values = [d2rl(flat, trunk, member) @ last.weight[member] + last.bias[member] for member in range(2)]
    assert_close(network(x), torch.cat(values, -1), atol=1e-12, rtol=1e-12)
    assert list(network.inputs) == ["observation", "subgoal", "task"]


SQUASHED = {
    "none": lambda y: y,
    "softplus": lambda y: (1 + y.exp()).log(),
    "sigmoid": lambda y: 1 / (1 + (-y).exp()),
    "sigmoid2.5": lambda y: 2.5 / (1 + (-y).exp()),
}


@pytest.mark.parametrize("activation", SQUASHED)
def test_plain_double_critics_and_their_outputs(activation):
    network, x = randomised(made("qd_relu_d_2x16", WALKER, 2, activation=activation)), batch(WALKER)
    layers, last = network.network.network.trunk.linears, network.network.network.last
    assert len(layers) == 2
    values = []
    for member in range(2):
        h = joined(x)
        for layer in layers:
            h = (h @ layer.weight[member] + layer.bias[member]).clamp(min=0)
        values.append(h @ last.weight[member] + last.bias[member])
    assert_close(network(x), SQUASHED[activation](torch.cat(values, -1)), atol=1e-12, rtol=1e-12)
    start = made("qd_relu_d_3x16", WALKER, 2, activation=activation)
    usual = made("qd_relu_d_3x16", WALKER, 2)
    shift = 0.0 if activation == "none" else -3.0  # added to a bias drawn within 0.003
    bias, weight = (getattr(start.network.network.last, name) for name in ("bias", "weight"))
    assert_close(bias, usual.network.network.last.bias + shift)
    assert 0 < (bias - shift).abs().max() <= 0.0030001
    assert 0.002 < weight.abs().max() <= 0.0030001


@pytest.mark.parametrize("name", ["pi_bilinear_d2rl_d_8", "q_bilinear_d2rl_d_8"])
def test_bilinear_networks(name):
    inputs = {"action": 2, "task": 3, "observation": 4}
    network, x = randomised(made(name, inputs, 1)), batch(inputs)
    rest, unit = joined(x, "task"), x["task"] / x["task"].square().sum(-1, keepdim=True).sqrt()
    h = rest
    for index, layer in enumerate([*network.network.layers, network.network.last]):
        h = torch.cat((h, rest), -1) if 0 < index < 4 else h
        h = torch.einsum("bj,ijk,bk->bi", h, layer.weight, unit) + layer.bias
        h = h.clamp(min=0) if index < 4 else h
    found = network(x)
    if name.startswith("pi"):
        assert_close(found[0], h[:, :1], atol=1e-12, rtol=1e-12)
        assert_close(found[1], h[:, 1:].clamp(-2, 20).exp(), atol=1e-12, rtol=1e-12)
    else:
        assert_close(found, h[:, 0], atol=1e-12, rtol=1e-12)


def test_two_copies_of_a_critic():
    network, x = made("double_q(q_d2rl_d_16)", WALKER, 2), batch(WALKER)
    values = network(x)
    first, second = network.networks
    assert_close(values, torch.stack((first(x), second(x)), -1), atol=0, rtol=0)
    assert not torch.equal(first.network.trunk.input.weight, second.network.trunk.input.weight)
    assert_close(made("double_q", WALKER, 2, q_name="q_d2rl_d_16")(x), values, atol=0, rtol=0)
    assert network.name == "double_q(q_d2rl_d_16)"


def test_embedded_skills():
    inputs = {"observation": 4, "skill": 10}
    options = {"base": "pi_d2rl_16", "n_skills": 10, "n_embed": 7, "activation": "tanh"}
    network = randomised(made("pi_diayn_cskill", inputs, 2, **options))
    x = {"observation": batch(inputs, 10)["observation"], "skill": torch.eye(10, dtype=torch.float64)}
    embedded = torch.tanh(network.embedding.linear.weight.T)  # what a one-hot picks
    assert_close(network(x), network.base({"observation": x["observation"], "skill": embedded}), atol=0, rtol=0)
    assert network.base.inputs == {"observation": 4, "skill": 7}
    h = d2rl(torch.cat((x["observation"], embedded), -1), network.base.network.trunk)
    last = network.base.network.last
    assert_close(network(x)[0], h @ last.weight[:2].T + last.bias[:2], atol=1e-12, rtol=1e-12)
    flat = made("pi_diayn_cskill", {"observation": 14}, 2, **options)  # the skill is the end of one input
    flat.load_state_dict(network.state_dict())
    assert_close(flat({"observation": torch.cat((x["observation"], x["skill"]), -1)}), network(x), atol=0, rtol=0)
    assert flat.base.inputs == {"observation": 11}


def test_starts():
    inputs, x = {"action": 6} | WALKER, batch({"action": 6} | WALKER)
    for name in ("qd_d2rl_d_64", "q_bilinear_d2rl_d_64", "qd_d2rl_64"):
        assert (made(name, inputs, 1)(x) == 0).all()
    last = made("q_d2rl_d_64", inputs, 1).network.last
    assert 0.0025 < last.weight.abs().max() <= 0.0030001
    bound = 1 / math.sqrt(64)
    biases = [made("double_q(q_d2rl_d_64)", inputs, 1).networks[1].network.last.bias.item() for _ in range(2)]
    assert biases[0] == biases[1]  # from the generator
    biases = [make_network("q_d2rl_d_64", inputs, 1).network.last.bias.item() for _ in range(20)]
    assert 0.5 * bound < max(map(abs, biases)) <= bound  # as usual, not within 0.003
    policy = made("pi_d2rl_d_64", WALKER, 6).network
    assert 0.9 * bound < policy.last.weight.abs().max() <= bound
    first = made("pi_d2rl_d_64", WALKER, 6).network.trunk.input.weight[:, :64]
    assert 0.95 / math.sqrt(73) < first.abs().max() <= 1 / math.sqrt(73)
    later = made("pi_d2rl_d_64", WALKER, 6).network.trunk.input.weight[:, 64:]
    assert 0.95 / math.sqrt(137) < later.abs().max() <= 1 / math.sqrt(137)


def test_the_published_scale_of_double_critics():
    inputs = {"action": 6} | WALKER
    scaled, usual = (made("qd_d2rl_d_64", inputs, 2, published_scale=scale).network.network.trunk
                     for scale in (True, False))  # fmt: skip
    assert_close(scaled.input.weight[..., :64], usual.input.weight[..., :64])
    assert_close(scaled.hidden[1].weight, usual.hidden[1].weight / math.sqrt(2))
    assert scaled.input.weight[..., 64:].abs().max() <= 1 / math.sqrt(
        2 * (79 + 64)
    )  # the full fan-in of a masked matrix


def test_bits_whole_numbers_and_vectors_are_inputs_too():
    inputs = {"observation": 6, "time": 1, "task": 3}
    network = make_network("pi_d2rl_d_16", inputs, 2, generator=stream(0, "parameters"))
    x = {"observation": torch.randn(5, 2, 3), "time": torch.arange(5), "task": torch.ones(5, 3, dtype=torch.bool)}
    flat = {
        "observation": x["observation"].reshape(5, 6),
        "time": torch.arange(5.0).view(5, 1),
        "task": torch.ones(5, 3),
    }
    assert_close(network(x), network(flat), atol=0, rtol=0)
    assert network({name: value[:0] for name, value in x.items()})[0].shape == (0, 2)


def test_copies_and_states():
    network, x = made("qd_relu_d_3x16", WALKER, 2, activation="sigmoid3"), batch(WALKER)
    twin = copy.deepcopy(network)
    other = make_network("qd_relu_d_3x16", WALKER, 2, activation="sigmoid3").double()
    assert not torch.equal(other(x), network(x))
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x), network(x))
    assert torch.equal(twin(x), network(x))


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "options", "message"),
    [
        ("pi_d2lr_d_1024", WALKER, 6, {}, "no network 'pi_d2lr_d_1024'; did you mean 'pi_d2rl_d_1024'"),
        ("qd_relu_d", WALKER, 2, {}, "did you mean 'qd_relu_256'"),
        ("qd_relu_d_3x", WALKER, 2, {}, "no network"),
        ("pi_diayn_skill", WALKER, 6, {}, "did you mean 'pi_diayn_cskill'"),
        ("something", WALKER, 6, {}, "no network 'something'; known: pi_d2rl"),
        ("", WALKER, 6, {}, "no network ''"),
        ("pi_d2rl_d_٢", WALKER, 6, {}, "no network"),
        (None, WALKER, 6, {}, "name of a network is text"),
        ("pi_d2rl_d_0", WALKER, 6, {}, "layers of width 0"),
        ("pi_d2rl_d_100000", WALKER, 6, {}, "width 100000"),
        ("pi_d2rl_d_0x8", WALKER, 6, {}, "0 layers"),
        ("pi_d2rl_d_8", {}, 6, {}, "give sizes by name"),
        ("pi_d2rl_d_8", ["observation"], 6, {}, "give sizes by name"),
        ("pi_d2rl_d_8", {"observation": 0}, 6, {}, "size of input 'observation' of 'pi_d2rl_d_8' is 0"),
        ("pi_d2rl_d_8", {"observation": 2.5}, 6, {}, "is 2.5; use a whole number"),
        ("pi_d2rl_d_8", WALKER, 0, {}, "outputs of 'pi_d2rl_d_8' is 0"),
        ("pi_d2rl_d_8", WALKER, "6", {}, "outputs of 'pi_d2rl_d_8' is '6'"),
        ("q_d2rl_d_8", WALKER, 2, {}, "says 1 per row, but outputs is 2"),
        ("qd_d2rl_d_8", WALKER, 3, {}, "says 2 per row, but outputs is 3"),
        ("pi_d2rl_mt_d_8", {"observation": 3}, 6, {}, "needs an input 'task'"),
        ("pi_d2rl_mt_d_8", {"task": 3}, 6, {}, "its only input"),
        ("q_bilinear_d2rl_d_8", {"observation": 3}, 1, {}, "needs an input 'task'"),
        ("qd_d2rl_flattsg_d_8", {"observation": 3, "task": 3}, 2, {}, "needs an input 'subgoal'"),
        ("pi_d2rl_d_8", WALKER, 6, {"published_scale": True}, "no option 'published_scale'; it takes generator"),
        ("qd_relu_d_3x8", WALKER, 2, {"activation": "sigmoidx"}, "sigmoid<x>"),
        ("qd_relu_d_3x8", WALKER, 2, {"activation": "sigmoid0"}, "sigmoid<x>"),
        ("double_q", WALKER, 2, {}, "two of a critic"),
        ("double_q(pi_d2rl_8)", WALKER, 2, {}, "two of a critic, found 'pi_d2rl_8'"),
        ("double_q(q_d2rl_8)", WALKER, 2, {"speed": 3}, "'q_d2rl_8' has no option 'speed'"),
        ("pi_diayn_cskill", {"observation": 5}, 6, {"n_skills": 6}, "the last input, 'observation', has only 5"),
        ("pi_diayn_cskill", WALKER, 6, {"n_embed": 0}, "n_embed of 'pi_diayn_cskill' is 0"),
        ("pi_diayn_cskill", WALKER, 6, {"base": "q_d2rl_8"}, "name of a policy"),
        ("pi_diayn_cskill", WALKER, 6, {"activation": "tahn"}, "did you mean 'tanh'"),
        ("phi_diayn_d2rl_8", WALKER, 6, {"n_skills": 5}, "n_skills of 'phi_diayn_d2rl_8' is 5, but it has 6 outputs"),
        ("phi_diayn_d2rl_8", WALKER, 6, {"obs_dim": 7}, "obs_dim of 'phi_diayn_d2rl_8' is 7, but it has 73 inputs"),
    ],
)  # fmt: skip
def test_mistakes_in_the_making_are_named(name, inputs, outputs, options, message):
    with pytest.raises(ValueError) as caught:
        make_network(name, inputs, outputs, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["pi_d2rl_d_8", "pi_diayn_cskill", "double_q(q_bilinear_d2rl_d_8)"])
def test_mistakes_in_the_inputs_are_named(name):
    network, x = make_network(name, WALKER, 1 if "q(" in name else 6), batch(WALKER, dtype=torch.float32)
    for bad, message in [
        ({key: value for key, value in x.items() if key != "observation"}, "reads 'observation', found"),
        (x | {"observation": torch.zeros(5, 60)}, r"input 'observation' of .* is \[5, 60\]; pass \[B, 59\]"),
        (x | {"observation": torch.zeros(59)}, r"pass \[B, 59\]"),
        (x | {"observation": torch.zeros(())}, r"pass \[B, 59\]"),
        (x | {"task": torch.zeros(4, 7)}, "different numbers of rows"),
        (x | {"task": [1.0] * 7}, "is a list; pass a tensor"),
        (torch.zeros(5, 73), "takes a mapping with"),
    ]:
        with pytest.raises(ValueError, match=message):
            network(bad)
