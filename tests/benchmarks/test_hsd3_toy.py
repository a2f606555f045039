"""Twins of the toy of HSD-3 have the mistake that they are named for, the library has not, and verdicts are strict."""

import sys
from pathlib import Path

import pytest
import torch
from hsd3_cases import BATCH, HIDDEN, LEARNER, NUM_ENVS, point_skills
from torch.testing import assert_close

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.skills.deciding_policy import PHASE
from gaitway.skills.hsd3 import HSD3, HSD3Config
from gaitway.skills.hsd3_policy import HSD3Policy, HSD3PolicyConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    before = set(sys.modules)
    import hsd3_toy

    yield hsd3_toy
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def make_runner(toy, twin=None):
    """A learner with all fifteen goal spaces, after 400 steps of play and before its first update."""
    env, skills = make_env("point/duck", num_envs=NUM_ENVS, seed=0), point_skills()
    kind = {"timed": toy.Timed, "clocked": toy.Clocked}.get(twin, HSD3Policy)
    policy = kind(env.spec, HSD3PolicyConfig(**HIDDEN), torch.Generator().manual_seed(3), skills=skills)
    toy.broken(policy, twin, skills)
    config = HSD3Config(**(LEARNER | {"learning_starts": 10**6}))
    learner = (toy.Flipped if twin == "flipped" else HSD3)(policy, config, num_envs=NUM_ENVS)
    runner = OffPolicyRunner(env, learner, RunnerConfig(total_steps=10**9))
    runner.learn(400)
    learner._attach(runner.replay)
    with torch.no_grad():  # critics begin at 0, and say something here
        for parameter in (*policy.critic.parameters(), *policy.target.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    return runner


def learnt(runner, drawn, noise):
    """Loss of both policies, its gradient by the goals' last layer, and the critics' target, of drawn rows."""
    algorithm, policy = runner.algorithm, runner.policy
    batch = policy.read(drawn) | {name: drawn[name] for name in ("reward", "discount")}
    batch |= {"alpha_c": torch.ones(policy.num_spaces), "alpha_d": torch.ones(())}
    batch |= algorithm._proposals(batch, {"goals": noise})
    loss = algorithm._actor_loss(batch)[0]
    (gradient,) = torch.autograd.grad(loss, policy.goals.last.bias)
    return loss.detach(), gradient, algorithm._target(batch)


def rows_of(runner):
    replay, policy = runner.replay, runner.policy
    drawn = {name: value.clone() for name, value in replay.gather(replay.draw((BATCH,))).items()}
    shape = (2 * BATCH, policy.num_spaces, policy.goal_size)
    return drawn, torch.randn(shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("twin", [None, "entries", "everywhere"])
def test_entries_outside_the_mask_change_neither_loss_nor_gradient_nor_target(toy, twin):
    runner = make_runner(toy, twin)
    drawn, noise = rows_of(runner)
    bits = runner.policy.interface.task_bits
    there = learnt(runner, drawn, noise)
    elsewhere = learnt(runner, drawn, torch.where(bits > 0, noise, noise + 1.0))
    for one, other in zip(there, elsewhere, strict=True):
        assert torch.equal(one, other) == (twin is None)
    entries = there[1].view(runner.policy.num_spaces, 2, -1) * (1.0 - bits[:, None])
    assert bool((entries == 0).all()) == (twin is None)


@pytest.mark.parametrize("twin", [None, "entries"])
def test_critics_are_shown_no_entry_outside_the_mask(toy, twin):
    runner = make_runner(toy, twin)
    batch = runner.algorithm.decided(runner.replay.draw((BATCH,)))
    outside = batch["goal"] * (1.0 - batch["space"] @ runner.policy.interface.task_bits)
    assert bool((outside == 0).all()) == (twin is None)


@pytest.mark.parametrize("twin", [None, "timed"])
def test_policies_learn_the_same_at_every_phase(toy, twin):
    runner = make_runner(toy, twin)
    drawn, noise = rows_of(runner)
    losses = [learnt(runner, drawn | {PHASE: torch.full((BATCH,), phase)}, noise)[0].item() for phase in range(5)]
    assert (len(set(losses)) == 1) == (twin is None)


@pytest.mark.parametrize("twin", [None, "timed", "clocked"])
def test_decisions_do_not_depend_on_how_long_an_episode_lasts(toy, twin):
    """`timed` acts without time too: at a decision the phase is 0, whatever is fed."""
    policy = make_runner(toy, twin).policy
    with make_env("point/duck", num_envs=6, seed=1) as env, torch.inference_mode():
        obs, state, decisions = env.reset(), None, []
        for _ in range(41):  # in one and the same place
            due = state is None or bool((state[:, 0] < 0.5).all())
            _, state = policy.act(obs, state, False)
            if due:
                decisions.append(state[:, 1 : 1 + policy.decision_size])
    assert len(decisions) == 9
    assert all(torch.equal(decisions[0], each) for each in decisions) == (twin != "clocked")


@pytest.mark.parametrize(("twin", "asked", "left"), [(None, 1, 1), ("unmasked", 1, 4), ("everywhere", 4, 4)])
def test_skills_are_asked_for_the_features_of_the_goal_space(toy, twin, asked, left):
    interface = make_runner(toy, twin).policy.interface
    features, goal = torch.full((1, 4), 0.3), torch.full((1, 4), 0.5)
    desired, task = interface.translate(features, torch.tensor([interface.subsets.index("2")]), goal)
    assert int((task != 0).sum()) == asked
    assert int((desired != 0).sum()) == left
    assert int((interface.carry(features, features, desired, task) != 0).sum()) == left


def test_entropies_of_the_flipped_twin_are_costs(toy):
    index = torch.arange(8)
    for twin, sign in ((None, 1.0), ("flipped", -1.0)):
        batch = make_runner(toy, twin).algorithm._batch_of(index)
        assert_close(batch["alpha_d"], torch.tensor(sign))
        assert_close(batch["alpha_c"], torch.full((15,), sign))


def test_verdicts_are_those_of_the_specification(toy):
    found = {"score": 19.0, "mean_score": 12.0, "floors": {"untrained": 1.0}, "entropy": [2.7, 1.4]}
    x_alone, both = found | {"decided": {"0,1": 0.9, "0,2": 0.1}}, found | {"decided": {"0,2,3": 0.6, "1": 0.4}}
    assert list(toy.verdicts("duck", both, None).values()) == [True, True, True]
    assert list(toy.verdicts("duck", x_alone, None).values()) == [True, False, True]
    assert list(toy.verdicts("corridor", x_alone, {"mean_score": 12.0}).values()) == [True, True, False]
    assert list(toy.verdicts("corridor", x_alone, {"mean_score": 11.9}).values()) == [True, True, True]
    # gaps 1, 2, 3: mean 2, standard error 1 / sqrt(3), t = 3.46 > 2.92; gaps 0, 2, 4: t = 1.73
    runs = [[{"score": value} for value in values] for values in ([9.0, 9.0, 9.0], [8.0, 7.0, 6.0], [9.0, 7.0, 5.0])]
    assert toy.told_apart("score", runs[0], runs[1]).endswith("t 3.5: told apart")
    assert toy.told_apart("score", runs[0], runs[2]).endswith("t 1.7: NOT told apart")


def test_a_run_that_is_stopped_early_is_no_result(toy, monkeypatch):
    monkeypatch.setattr(toy, "EPISODES", 2)
    monkeypatch.setattr(toy.OffPolicyRunner, "learn", lambda runner, steps: None)
    with pytest.raises(SystemExit, match="stopped after 0 of 20000 steps; nothing is written"):
        toy.run(toy.CASES["duck"], 0, point_skills(), 20_000)
