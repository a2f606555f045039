"""E-MIRROR: a mirror twice is nothing, and what a mirrored robot does is the mirror image of what the robot does."""

from __future__ import annotations

import pytest
import torch

from gaitway import PPO, ActorCritic, PPOConfig, make_env
from gaitway.algorithms.symmetry import Mirror, Symmetry
from gaitway.envs.mujoco_batch import MujocoBatchEnv

PLAIN = {
    "randomise": {"enabled": False},
    "pushes": {"kick_seconds": None},
    "noise": 0.0,
}


def mirrors(env) -> dict[str, Mirror]:
    return {name: Mirror(each["order"], each["sign"], name) for name, each in env.spec.facts["mirror"].items()}


def mirrored_root(state: torch.Tensor, first: int, joints: Mirror, is_velocity: bool) -> torch.Tensor:
    """The mirror image of qpos or qvel of a free robot, by the rules of reflections."""
    image = state.clone()
    image[:, first + 1] *= -1  # y
    if is_velocity:
        image[:, first + 3] *= -1  # turns about x and z
        image[:, first + 5] *= -1
    else:
        image[:, first + 4] *= -1  # i and k of a quaternion
        image[:, first + 6] *= -1
    tail = slice(first + (6 if is_velocity else 7), None)
    image[:, tail] = joints(state[:, tail])
    return image


@pytest.mark.parametrize("twin", [False, True])
def test_physics_of_the_image_is_the_image_of_the_physics(twin: bool) -> None:
    here = make_env("pup12/velocity", 4, seed=3, num_threads=1, **PLAIN, commands={"fixed": [0.5, 0.2, -0.4]})
    there = make_env("pup12/velocity", 4, seed=3, num_threads=1, **PLAIN, commands={"fixed": [0.5, -0.2, 0.4]})
    images = mirrors(here)
    joints = images["action"]
    scenario = here.scenario()
    image = dict(scenario)
    doubled = Mirror(joints.order.tolist(), joints.sign.double().tolist(), "joints")
    if twin:  # hips do not turn the other way
        doubled.sign = torch.ones_like(doubled.sign)
    doubled.sign = doubled.sign.double()
    image["qpos"] = mirrored_root(scenario["qpos"], 0, doubled, False)
    image["qvel"] = mirrored_root(scenario["qvel"], 0, doubled, True)
    there.load_scenario(image)
    here.load_scenario(scenario)
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(5):  # 20 substeps
        action = 0.5 * torch.randn(4, 12, generator=generator)
        ours, theirs = here.step(action), there.step(joints(action))
        for group in ("policy", "critic"):
            worst = max(worst, float((images[group](ours.obs[group]) - theirs.obs[group]).abs().max()))
        torch.testing.assert_close(ours.reward, theirs.reward, atol=1e-5, rtol=0) if not twin else None
    assert (worst < 1e-4) != twin, worst


def test_the_gait_of_the_image_is_half_a_cycle_apart() -> None:
    env = make_env("pup12/gait_residual", 1, num_threads=1)
    assert isinstance(env, MujocoBatchEnv)
    gait, images = env.task.gait, mirrors(env)  # type: ignore[attr-defined]
    phase, command = torch.rand(9, dtype=torch.float64), torch.randn(9, 3, dtype=torch.float64) * 0.3
    joints = images["action"]
    own = gait.pose(torch.frac(phase + 0.5), command * torch.tensor([1.0, -1.0, -1.0]))
    image = gait.pose(phase, command)[:, joints.order] * joints.sign
    torch.testing.assert_close(own, image, atol=1e-12, rtol=0)
    group = env.spec.group("policy")
    columns = group.columns("phase")
    assert images["policy"].sign[columns].tolist() == [-1.0, -1.0]


def test_every_group_of_every_quadruped_has_an_image_and_the_symmetry_term_takes_it() -> None:
    for name in ("pup12/gait_params", "pup12/gait_residual", "pup12/velocity", "pup12/amp_trot"):
        env = make_env(name, 1, num_threads=1)
        assert set(mirrors(env)) == {*env.spec.group_names, "action"}, name
        for group in env.spec.groups:
            assert len(mirrors(env)[group.name].order) == group.shape[0]
    env = make_env("pup12/gait_residual", 2, num_threads=1)
    policy = ActorCritic(env.spec, generator=torch.Generator().manual_seed(0))
    term = Symmetry(env.spec, policy, "robot", coef=1.0)
    PPO(policy, PPOConfig(rollout_steps=2, minibatches=1), num_envs=2, seed=0, terms=[term])
    assert term.action.changes
    pendulum = make_env("gymnasium:Pendulum-v1", 1)
    other = ActorCritic(pendulum.spec)
    with pytest.raises(ValueError, match="Pendulum-v1 states no mirror image of 'policy'"):
        Symmetry(pendulum.spec, other, "robot")
