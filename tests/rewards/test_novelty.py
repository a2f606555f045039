"""Random network distillation: its reward by independent arithmetic, what it learns and what it never changes."""

import numpy as np
import pytest
import torch
from torch import nn

from gaitway.algorithms.algorithm import Now
from gaitway.algorithms.engine import Engine
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.registry import make_env
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup
from gaitway.rewards import SOURCES
from gaitway.rewards.novelty import RandomNetworkDistillation
from gaitway.rewards.source import Rewards


def spec():
    sizes = {"policy": 3, "extra": 2}
    groups = [ObservationGroup(name, (Component("x", size),), (size,)) for name, size in sizes.items()]
    picture = ObservationGroup("camera", (Component("pixels", 48),), (4, 4, 3), "uint8")
    action = ActionSpec("continuous", ("force",), (-1.0,), (1.0,))
    return EnvSpec("test", (*groups, picture), action, control_dt=0.02, max_episode_steps=10)


def make(**options):
    return RandomNetworkDistillation(spec(), **{"groups": ("policy", "extra"), "batch_size": 32} | options)


def rows_around(centre, seed=0, steps=12, spread=0.3):
    """Made-up rows whose observations lie around a place; some steps end an episode somewhere else."""
    generator = stream(seed, "rows")

    def near(rows, size):
        return centre + spread * torch.randn(rows, 5, size, generator=generator)

    ends = torch.rand(steps, 5, generator=generator) < 0.2
    kind = torch.rand(steps, 5, generator=generator) < 0.5
    ws = {"env/reward": torch.zeros(steps, 5), "env/terminated": ends & kind, "env/truncated": ends & ~kind}
    for name, size in (("policy", 3), ("extra", 2)):
        ws[f"env/obs/{name}"], ws[f"env/final_obs/{name}"] = near(steps + 1, size), near(steps, size) + 1.0
    return Workspace.packed(ws)


def error_of(source, ws):
    """The mean squared error, before it is divided by its running deviation."""
    with torch.no_grad():
        return source._error(source.observations(source._reached(ws))).mean().item()


def forward(network, x):
    """A multilayer perceptron with ReLU in float64, by numpy."""
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for number, layer in enumerate(layers):
        x = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        x = np.maximum(x, 0.0) if number < len(layers) - 1 else x
    return x


def test_the_reward_by_independent_arithmetic():
    source, ws = make(), rows_around(0.5)
    for number in range(3):
        source.update(rows_around(0.5, seed=number, spread=1.0), Now())
    source.annotate(ws)
    far = 0
    for t in range(ws.T):
        for b in range(ws.B):
            ended = bool(ws["env/done"][t, b])
            groups = ("policy", "extra")
            reached = [ws[f"env/final_obs/{g}"][t, b] if ended else ws[f"env/obs/{g}"][t + 1, b] for g in groups]
            x = torch.cat(reached).double().numpy()
            mean, var = source.observations.mean.numpy(), source.observations.var.numpy()
            x = np.clip((x - mean) / (np.sqrt(var) + source.observations.eps), -5.0, 5.0)
            far += int(np.abs(x).max() > 1.0)
            error = ((forward(source.target, x) - forward(source.predictor, x)) ** 2).mean()
            expected = error / np.sqrt(source.errors.var.item() + 1e-8)
            assert ws["reward/rnd"][t, b].item() == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert far > 10
    assert ws["reward/rnd"].dtype == torch.float32


def test_running_statistics_are_those_of_everything_seen():
    source, errors, seen = make(updates=1), [], []
    for number in range(4):
        ws = rows_around(1.0, seed=number)
        seen.append(source._reached(ws).double())
        before = {name: value.clone() for name, value in source.predictor.state_dict().items()}
        source.update(ws, Now())
        with torch.no_grad():  # with the predictor from before its step, and the statistics from after it was counted
            after = {name: value.clone() for name, value in source.predictor.state_dict().items()}
            source.predictor.load_state_dict(before)
            errors.append(source._error(source.observations(source._reached(ws))).double())
            source.predictor.load_state_dict(after)
    whole = torch.cat(seen).flatten(0, 1)
    torch.testing.assert_close(source.observations.mean, whole.mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(source.observations.var, whole.var(0, correction=0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(source.errors.var, torch.cat(errors).var(correction=0), atol=1e-6, rtol=1e-4)


def test_the_error_falls_on_what_was_seen_and_not_elsewhere():
    source, here, elsewhere = make(updates=16), rows_around(-2.0), rows_around(2.0, seed=1)
    # both places are within the range that statistics know, as in a room of which one half was visited lately
    source.observations.update(torch.cat([source._reached(here), source._reached(elsewhere)]))
    source.observations.eval()
    first = error_of(source, here), error_of(source, elsewhere)
    for number in range(40):
        metrics = source.update(rows_around(-2.0, seed=number), Now())
    last = error_of(source, here), error_of(source, elsewhere)
    assert last[0] < 0.01 * first[0]
    assert last[1] > 0.5 * first[1]
    assert set(metrics) == {"rnd/loss", "rnd/gradient_norm"}
    assert metrics["rnd/loss"].item() == pytest.approx(last[0], rel=2.0)
    for ws in (here, elsewhere):
        source.annotate(ws)
    assert elsewhere["reward/rnd"].mean() > 100 * here["reward/rnd"].mean()


def with_learning_target():
    """A broken twin: the target follows the predictor."""
    twin = make()
    twin.target.requires_grad_(True)
    both = nn.ModuleList([twin.predictor, twin.target])
    twin.engine = Engine(both, twin._loss, learning_rate=1e-3, max_grad_norm=None)
    twin._learn = lambda: twin.engine.step({"obs": twin._rows})
    return twin


@pytest.mark.parametrize(("source", "expected"), [(make(), False), (with_learning_target(), True)])
def test_the_target_never_changes(source, expected):
    before = {name: value.clone() for name, value in source.target.state_dict().items()}
    predictor = {name: value.clone() for name, value in source.predictor.state_dict().items()}
    for number in range(3):
        source.update(rows_around(0.0, seed=number), Now())
    changed = [not torch.equal(value, before[name]) for name, value in source.target.state_dict().items()]
    assert all(changed) == any(changed) == expected
    assert all(not torch.equal(value, predictor[name]) for name, value in source.predictor.state_dict().items())


def test_rows_that_only_reset_are_not_learnt_from():
    source, twin = make(), make()
    ws = rows_around(0.0)
    valid = torch.rand(ws.T, ws.B, generator=stream(0, "valid")) < 0.7
    for each, poison in ((source, 0.0), (twin, 100.0)):
        rows = Workspace(ws)
        rows["env/valid"] = valid
        # a reset row follows an end, so nothing needs replacing: row t + 1 is what was reached
        for group in ("policy", "extra"):
            after_reset = torch.cat((torch.zeros(1, ws.B, dtype=torch.bool), ~valid))
            rows[f"env/obs/{group}"] = rows[f"env/obs/{group}"] + poison * after_reset.unsqueeze(-1)
            rows.clear(f"env/final_obs/{group}")
        each.update(rows, Now())
    for name, value in source.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, twin.state_dict()[name]), name


def test_the_same_seed_gives_the_same_source_and_its_state_goes_on_alike():
    one, other, third = make(seed=3), make(seed=3), make(seed=4)
    assert torch.equal(one.target.last.weight, other.target.last.weight)
    assert not torch.equal(one.target.last.weight, third.target.last.weight)
    assert not torch.equal(one.target.last.weight, one.predictor.last.weight)
    one.update(rows_around(0.0), Now())
    third.load_state_dict(one.state_dict())
    for source in (one, third):
        source.update(rows_around(0.0, seed=7), Now())
    for name, value in one.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, third.state_dict()[name]), name


def test_only_the_predictor_is_learnt_and_the_source_is_known_by_name():
    source = make()
    assert {name.split(".")[0] for name, p in source.named_parameters() if p.requires_grad} == {"predictor"}
    assert list(Rewards([source]).modules()) == ["rewards.rnd"]
    assert SOURCES["rnd"] is RandomNetworkDistillation
    assert source.groups == ("policy", "extra")
    assert source.when == "drawn"
    env = make_env("toy/pendulum")
    finals = ("env/final_obs/pos", "env/final_obs/vel")
    assert RandomNetworkDistillation(env.spec).reads == ("env/obs/pos", "env/obs/vel", *finals)


def test_what_cannot_work_is_refused():
    with pytest.raises(ValueError, match=r"groups is \['camera'\]; novelty is judged by vectors, of which there are"):
        make(groups=("camera",))
    with pytest.raises(ValueError, match=r"groups is \['polcy'\].*\['policy', 'extra'\]"):
        make(groups=("polcy",))
    for wrong in ({"size": 0}, {"updates": 0}, {"batch_size": -1}, {"learning_rate": 0.0}):
        with pytest.raises(ValueError, match="must all be positive"):
            make(**wrong)
