"""Do robots on Warp ever break? Random actions for a long time, and what a resumed run is worth.

    gaitway bench warp_soak --steps 100_000_000 --out benchmarks/results/warp_soak.json

Actions are uniform within their limits, or the limits themselves, changed every few steps. Counted on the device:
worlds that diverged (one step in 10,000 is allowed) or ran out of room, observations, rewards or metrics that are not
finite and robots 200 m away or 1 m below the ground (none is allowed), and how far they got. `restored`: states right
after `load_state_dict` equal those stored bit for bit. `repeated`: the same state and actions twice, the largest
difference after 1, 10 and 50 steps. `substep`: one substep from the same state several times, and which arrays differ:
more state than is stored would show there.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from _warp import Clock, Results, options
from legged_random_steps import FAULTS, FURTHEST, LOWEST

from gaitway import make_env
from gaitway.envs.mujoco_warp import WarpEnv


def soaked(env: WarpEnv, steps: int, note: Any) -> dict[str, Any]:
    device, count = env.device, env.num_envs
    generator = torch.Generator(device).manual_seed(0)
    low, high = (torch.tensor(limit, device=device) for limit in (env.spec.action.low, env.spec.action.high))
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    far = torch.zeros((), device=device)
    escaped = torch.zeros((), dtype=torch.int64, device=device)
    episodes = torch.zeros((), dtype=torch.int64, device=device)
    clock, rounds = Clock(device), -(-steps // count)
    action = torch.zeros(count, *env.spec.action.shape, device=device)
    for number in range(rounds):
        if number % 5 == 0:
            share = torch.rand(action.shape, device=device, generator=generator)
            extreme = torch.rand(count, 1, device=device, generator=generator) < 0.3
            action = low + (high - low) * torch.where(extreme, share.round(), share)
        step = env.step(action)
        tensors = (*step.obs.values(), *step.final_obs.values(), step.reward, *step.metrics.values())
        wrong += sum((~torch.isfinite(each)).sum() for each in tensors)
        place = env._simulation().qpos[:, :3]
        far = torch.maximum(far, place.abs().max())
        escaped += ((place.abs() > FURTHEST).any(1) | (place[:, 2] < LOWEST)).sum()
        episodes += (step.terminated | step.truncated).sum()
        if number % 1000 == 999 or number + 1 == rounds:
            note(
                {
                    "steps": (number + 1) * count,
                    "seconds": round(clock.seconds(), 1),
                    "episodes": int(episodes),
                    "not finite": int(wrong),
                    "escaped": int(escaped),
                    "farthest m": round(float(far), 2),
                    **env.counts(),
                }
            )
    return {"not finite": int(wrong), "escaped": int(escaped), "diverged": env.counts()["diverged"] / (rounds * count)}


def repeated(env: WarpEnv) -> dict[str, Any]:
    generator = torch.Generator(env.device).manual_seed(1)
    actions = 0.3 * torch.randn(50, env.num_envs, *env.spec.action.shape, device=env.device, generator=generator)
    for action in actions:
        env.step(action)
    state = env.state_dict()
    ends: dict[int, list[torch.Tensor]] = {1: [], 10: [], 50: []}
    same = True
    for _ in range(2):
        env.load_state_dict(state)
        again = env.state_dict()
        same &= all(
            torch.equal(value, again[kind][name])
            for kind in ("physics", "layout", "memory", "constants", "obs")
            for name, value in state[kind].items()
        )
        for number, action in enumerate(actions, 1):
            env.step(action)
            if number in ends:
                ends[number].append(env._simulation().qpos.clone())
    apart = {str(number): float((one - other).abs().max()) for number, (one, other) in ends.items()}
    differ = {str(number): int((one != other).any(1).sum()) for number, (one, other) in ends.items()}
    return {"restored": same, "largest difference after": apart, "worlds that differ after": differ}


def substep_alone(env: WarpEnv, tries: int = 8) -> dict[str, Any]:
    """One substep from the same state, again and again: which arrays differ first."""
    worlds = env._simulation()
    kept = {name: value.clone() for name, value in worlds.state.items()}
    names = ("qacc_smooth", "qfrc_constraint", "qacc", "qpos", "qvel")
    first: dict[str, torch.Tensor] = {}
    apart = dict.fromkeys(names, 0.0)
    for number in range(tries):
        for name, value in kept.items():
            worlds.state[name].copy_(value)
        with worlds.on_stream():
            worlds.step()
        for name in names:
            found = worlds.field(name).clone()
            if number:
                apart[name] = max(apart[name], float((found - first[name]).abs().max()))
            else:
                first[name] = found
    for name, value in kept.items():
        worlds.state[name].copy_(value)
    return {"tries": tries, **apart}


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--id", default="pup12/velocity")
    parser.add_argument("--instances", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=100_000_000)
    given = parser.parse_args()
    results = Results("warp_soak", given)
    env = make_env(given.id, given.instances, 0, device=given.device, simulator="warp")
    assert isinstance(env, WarpEnv)
    results.note(substep=substep_alone(env), repeated=repeated(env))
    found = soaked(env, given.steps, lambda row: results.note(soak=row))
    env.close()
    good = not found["not finite"] and not found["escaped"] and found["diverged"] <= FAULTS
    return 0 if good and results.found["repeated"]["restored"] else 1


if __name__ == "__main__":
    sys.exit(main())
