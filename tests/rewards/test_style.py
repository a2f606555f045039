"""Style: its pairs, its reward by independent arithmetic, what its discriminator learns, and broken twins."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gaitway.algorithms.algorithm import Now
from gaitway.core.workspace import Workspace
from gaitway.envs.motions.clip import Clip
from gaitway.envs.motions.frames import MotionError, make_frames
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.registry import make_env
from gaitway.nn.normalise import RunningNorm
from gaitway.rewards.style import CURRENT, EXPERT, StyleReward

SPEC = make_env("toy/oscillator").spec
SMALL = {
    "hidden": (32, 32),
    "batch_size": 128,
    "updates": 10,
    "replay": 500,
    "expert_pairs": 2048,
    "gradient_penalty": 0.1,
    "learning_rate": 3e-3,
    "trunk_decay": 0.0,
    "head_decay": 0.0,
}


def make(kind=StyleReward, **options):
    return kind(SPEC, "oscillator", **SMALL | options)


def swinging(amplitude, seed=0, steps=24, envs=16, ends=True):
    """Rows of masses that follow `amplitude sin(2 pi t)` at random phases; some steps end an episode."""
    generator = torch.Generator().manual_seed(seed)
    phase = torch.rand(envs, generator=generator)
    angle = 2 * np.pi * (phase + 0.02 * torch.arange(steps + 1)[:, None])
    obs = torch.stack((amplitude * angle.sin(), 2 * np.pi * amplitude * angle.cos()), -1)
    ended = (torch.rand(steps, envs, generator=generator) < 0.1) & ends
    kind = torch.rand(steps, envs, generator=generator) < 0.5
    final = obs[1:].clone()
    first = torch.randn(steps, envs, 2, generator=generator) * 5  # where another episode begins
    obs[1:] = torch.where(ended[..., None], first, obs[1:])
    return Workspace.packed(
        {
            "env/reward": torch.zeros(steps, envs),
            "env/terminated": ended & kind,
            "env/truncated": ended & ~kind,
            "env/obs/amp": obs,
            "env/final_obs/amp": final,
        }
    )


def trained(source, amplitude, rollouts=30):
    metrics = {}
    for number in range(rollouts):
        ws = swinging(amplitude, number, ends=False)
        source.annotate(ws)
        metrics = source.update(ws, Now())
    return metrics


def earned(source, amplitude):
    ws = swinging(amplitude, 99, ends=False)
    source.annotate(ws)
    return ws["reward/style"].mean().item()


def test_the_reward_by_independent_arithmetic():
    source, ws = make(scale=2.0, times_dt=True), swinging(0.3)
    trained(source, 0.3, 1)
    source.annotate(ws)
    norm, network = source.normaliser, source.discriminator
    ended = 0
    for t in range(ws.T):
        for b in range(ws.B):
            over = bool(ws["env/done"][t, b])
            reached = ws["env/final_obs/amp"][t, b] if over else ws["env/obs/amp"][t + 1, b]
            x = torch.cat((ws["env/obs/amp"][t, b], reached)).double().numpy()
            mean, std = np.tile(norm.mean.numpy(), 2), np.tile(np.sqrt(norm.var.numpy()), 2)
            x = np.clip((x - mean) / (std + norm.eps), -10.0, 10.0)
            for layer in network.trunk:
                x = np.maximum(layer.weight.detach().double().numpy() @ x + layer.bias.detach().double().numpy(), 0.0)
            score = (network.head.weight.detach().double().numpy() @ x)[0] + network.head.bias.item()
            expected = 2.0 * 0.02 * max(0.0, 1.0 - 0.25 * (score - 1.0) ** 2)
            if ws["env/terminated"][t, b]:
                expected, ended = 0.0, ended + 1
            assert ws["reward/style"][t, b].item() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert ended > 5


def test_no_pair_spans_a_reset():
    source, ws = make(), swinging(0.5)
    pairs = source._pairs(ws)
    step = (pairs[..., 1, :] - pairs[..., 0, :]).abs()
    inside = ws["env/done"].roll(1, 0)  # the first row of another episode is a place of its own
    inside[0] = False
    assert step[~inside].max() < 0.6
    broken = (ws["env/obs/amp"][1:] - ws["env/obs/amp"][:-1]).abs()  # the twin: the next row, whatever it is
    assert broken[~inside].max() > 3


def test_pairs_of_the_clip_are_a_step_apart_and_raw():
    source = make()
    before, after = source.expert.double().unbind(1)
    angle = torch.atan2(before[:, 0], before[:, 1] / (2 * np.pi)) + 2 * np.pi * 0.02
    assert_close(after[:, 0], 0.5 * angle.sin(), atol=2e-3, rtol=0)
    assert_close(after[:, 1], np.pi * angle.cos(), atol=2e-2, rtol=0)


def test_the_normaliser_sees_raw_features_of_both_sides():
    source = make()
    drawn = []
    kept = source._drawn
    source._drawn = lambda rows, count: drawn.append(kept(rows, count)) or drawn[-1]
    pairs = []
    for number in range(3):
        drawn.clear()
        ws = swinging(3.0, number)
        source.annotate(ws)
        source.update(ws, Now())
        pairs += [source._pairs(ws).flatten(0, 2), drawn[0].flatten(0, 1)]
    seen = torch.cat(pairs).double()
    assert source.normaliser.count == len(seen)
    assert_close(source.normaliser.mean, seen.mean(0), atol=1e-6, rtol=1e-6)
    assert_close(source.normaliser.var, seen.var(0, correction=0), atol=1e-5, rtol=1e-5)


class TwoNormalisers(StyleReward):
    """Broken: each side is whitened by its own moments, which hides how far each of them swings."""

    def _fill(self, rows):
        super()._fill(rows)
        pairs = self._batch["pairs"]
        for which in (EXPERT, CURRENT):
            side = pairs[which] if which == EXPERT else pairs[CURRENT:]
            norm = RunningNorm((2,))
            norm.update(side)
            side.copy_(self.normaliser.inverse(norm(side)))

    def _pairs(self, ws):
        pairs = super()._pairs(ws)
        norm = RunningNorm((2,))
        norm.update(pairs)
        return self.normaliser.inverse(norm(pairs))


class Frozen(StyleReward):
    """Broken: the discriminator never learns."""

    def _fill(self, rows):
        super()._fill(rows)
        self.engine.set_learning_rate(0.0)


class Swapped(StyleReward):
    """Broken: labels swapped."""

    def _fill(self, rows):
        super()._fill(rows)
        pairs = self._batch["pairs"]
        pairs[[EXPERT, CURRENT]] = pairs[[CURRENT, EXPERT]]


def test_half_the_amplitude_is_told_apart_and_the_whole_is_not():
    half, whole = make(), make()
    metrics = trained(half, 0.25)
    trained(whole, 0.5)
    assert earned(half, 0.25) < 0.3
    assert earned(half, 0.5) > 0.6
    assert earned(whole, 0.5) == pytest.approx(0.75, abs=0.1)
    assert metrics["style/accuracy_expert"] > 0.9
    assert metrics["style/accuracy_policy"] > 0.9
    assert metrics["style/score_expert"] > 0.3 > -0.3 > metrics["style/score_policy"]


@pytest.mark.parametrize("kind", [TwoNormalisers, Frozen, Swapped])
def test_broken_twins_reward_half_the_amplitude(kind):
    twin = make(kind)
    trained(twin, 0.25, 15)
    assert earned(twin, 0.25) > 0.45


@pytest.mark.parametrize("form", ["hinge", "wasserstein"])
def test_other_forms_tell_them_apart_too(form):
    source = make(form=form)
    metrics = trained(source, 0.25, 15)
    assert metrics["style/score_expert"] > metrics["style/score_policy"] + 0.3
    ws = swinging(0.25, 99, ends=False)
    source.annotate(ws)
    if form == "wasserstein":
        assert_close(ws["reward/style"].mean(), torch.tensor(0.0), atol=1e-5, rtol=0)
        assert_close(ws["reward/style"].std(), torch.tensor(1.0), atol=1e-4, rtol=0)
        assert "style/saturation" not in metrics


def test_old_pairs_come_back():
    source = make()
    trained(source, 0.25, 1)
    source.annotate(ws := swinging(2.0, 7, ends=False))
    source._fill(source._pairs(ws).flatten(0, 1))
    expert, current, old = (batch[..., 0].abs().amax().item() for batch in source._batch["pairs"])
    assert expert == pytest.approx(0.5, abs=0.01)
    assert current > 1.9
    assert old < 0.26


def test_the_reward_comes_from_the_discriminator_before_it_learnt():
    source, ws = make(), swinging(0.25)
    source.annotate(ws)
    before = ws["reward/style"].clone()
    source.update(ws, Now())
    assert torch.equal(ws["reward/style"], before)
    source.annotate(ws)
    assert not torch.equal(ws["reward/style"], before)


@pytest.mark.parametrize("replay", [500, 0])
def test_its_state_goes_on_alike_with_its_replay(replay):
    source, twin = make(replay=replay), make(replay=replay, seed=0)
    trained(source, 0.25, 2)
    twin.load_state_dict(source.state_dict())
    for each in (source, twin):
        trained(each, 0.3, 2)
    for (name, one), other in zip(source.state_dict().items(), twin.state_dict().values(), strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other), name
    if replay:
        one, other = (each.replay.state_dict()["variables"]["pair"] for each in (source, twin))
        assert torch.equal(one, other)


def test_rows_that_only_reset_are_not_learnt_from():
    source, ws = make(), swinging(0.5, ends=False)
    valid = torch.ones(ws.T, ws.B, dtype=torch.bool)
    valid[::2] = False
    rows = {name: ws[name] for name in ws if not name.startswith("env/final_obs")}
    ws = Workspace.packed(rows | {"env/valid": valid})
    source.annotate(ws)
    source.update(ws, Now())
    assert source.normaliser.count == 2 * 2 * valid.sum()


def with_clip(tmp_path, frames=51, fps=50.0, joint="position"):
    times = np.arange(frames) / fps
    made = make_frames(np.sin(times)[:, None] * 0.1, np.zeros((frames, 0, 3)), np.zeros((frames, 0, 4)))
    Clip(made, fps, (joint,), loop=False, name="mine").save(tmp_path / "mine")
    return str(tmp_path / "mine")


def test_what_cannot_be_compared_is_refused(tmp_path):
    with pytest.raises(MotionError, match="toy/pendulum has no group 'amp' of motion features; add the wrapper"):
        StyleReward(make_env("toy/pendulum").spec, "oscillator")
    with pytest.raises(MotionError, match=r"mine has a frame every 0.04 s and a step of toy/oscillator takes 0.02 s"):
        StyleReward(SPEC, with_clip(tmp_path / "a", fps=25.0))
    with pytest.raises(MotionError, match="position"):
        StyleReward(SPEC, with_clip(tmp_path / "b", joint="knee"))
    with pytest.raises(MotionError, match="comes with the library: oscillator"):
        StyleReward(SPEC, str(tmp_path / "nothing"))


def test_other_clips_than_before_are_refused(tmp_path):
    source = make()
    other = StyleReward(SPEC, with_clip(tmp_path), **SMALL)
    with pytest.raises(MotionError, match="put the former ones back"):
        other.load_state_dict(source.state_dict())


def test_the_clip_of_the_library_is_the_toys_reference():
    (clip,) = MotionLibrary.load("oscillator").clips
    assert (clip.joints, clip.loop, clip.duration) == (("position",), True, 1.0)
    angle = 2 * np.pi * np.arange(51) / 50
    np.testing.assert_allclose(clip.frames.joint_positions[:, 0], 0.5 * np.sin(angle), atol=1e-12)
    np.testing.assert_allclose(clip.frames.joint_velocities[:, 0], np.pi * np.cos(angle), atol=1e-12)


def test_ended_steps_without_final_observations_never_reach_the_discriminator():
    spec = dataclasses.replace(SPEC, final_observations="previous")
    source, ws = StyleReward(spec, "oscillator", **SMALL), swinging(0.3)
    assert "env/truncated" in source.reads
    source.annotate(ws)
    done = ws["env/done"]
    assert bool((ws["reward/style"][done] == 0).all())
    assert bool((ws["reward/style"][~done] != 0).any())
    rows = source._genuine(ws, source._pairs(ws))
    assert len(rows) == int((~done).sum())
    exact = make()
    assert len(exact._genuine(ws, exact._pairs(ws))) == done.numel()  # the twin: ended steps are pairs there
