"""Do robots on Warp ever break? Random actions for a long time, and what a resumed run is worth.

    gaitway bench warp_soak --steps 100_000_000 --out benchmarks/results/warp_soak.json

Actions are uniform within their limits, or the limits themselves, changed every few steps. Counted on the device:
worlds that diverged (one step in 10,000 is allowed) or ran out of room, observations, rewards or metrics that are not
finite and robots 200 m away or 1 m below the ground (none is allowed), and how far they got. `restored`: states right
after `load_state_dict` equal those stored bit for bit. `repeated`: the same state and actions twice, the largest
difference after 1, 10 and 50 steps. `substep`: one substep from the same state several times, every other robot thrown
into the air: which arrays differ (more state than is stored would show there), and in how many worlds contacts and rows
of constraints come in another order and accelerations differ, of those that touch something and of those that do not.

Parts that `--out` holds are not done again, and random steps go on from as many as it counts.
"""

from __future__ import annotations

import sys
from typing import Any

import mujoco
import torch
from _warp import Clock, Results, options
from legged_random_steps import FAULTS, FURTHEST, LOWEST

from gaitway import make_env
from gaitway.envs.mujoco_warp import WarpEnv
from gaitway.envs.warp_worlds import Worlds

LANDED, HEIGHT = 40, 30.0
"""Steps after which robots stand on the ground, and how far those that are to touch nothing are thrown up (m)."""
ORDERS = ("contacts", "rows", "qacc")
KINDS = len(mujoco.mjtConstraint.__members__)
SAME_PAIR, MOST = 64, 256
"""More contacts than a pair of geoms, and than a world, ever has."""

SUMMED = ("steps", "seconds", "episodes", "not finite", "escaped")


def soaked(env: WarpEnv, steps: int, known: dict[str, Any], note: Any) -> None:
    """`steps` more than are `known`, all of them noted together."""
    device, count = env.device, env.num_envs
    generator = torch.Generator(device).manual_seed(known.get("steps", 0))
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
            figures = ((number + 1) * count, round(clock.seconds(), 1), int(episodes), int(wrong), int(escaped))
            row = dict(zip(SUMMED, figures, strict=True)) | env.counts()
            row = {name: value + known.get(name, 0) for name, value in row.items()}
            note(row | {"farthest m": max(round(float(far), 2), known.get("farthest m", 0.0))})


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
    """One substep from the same state, again and again, half of the worlds in the air: what differs, and where."""
    worlds = env._simulation()
    for _ in range(LANDED):
        env.step(torch.zeros(env.num_envs, *env.spec.action.shape, device=env.device))
    kept = {name: value.clone() for name, value in worlds.state.items()}
    kept["qpos"][::2, 2] += HEIGHT
    names = ("qacc_smooth", "qfrc_constraint", "qacc", "qpos", "qvel")
    first: dict[str, torch.Tensor] = {}
    apart = dict.fromkeys(names, 0.0)
    others = {name: torch.zeros(env.num_envs, dtype=torch.bool, device=env.device) for name in ORDERS}
    for _ in range(tries):
        for name, value in kept.items():
            worlds.state[name].copy_(value)
        with worlds.on_stream():
            worlds.step()
        found = {name: worlds.field(name).clone() for name in names} | orders(worlds)
        first = first or found
        for name in names:
            apart[name] = max(apart[name], float((found[name] - first[name]).abs().max()))
        for name, other in others.items():
            other |= (found[name] != first[name]).any(1)
    kept["qpos"][::2, 2] -= HEIGHT
    for name, value in kept.items():
        worlds.state[name].copy_(value)
    touching = (first["contacts"] >= 0).any(1)
    ordered = ~others["contacts"] & ~others["rows"]
    split = {}
    for name, those in (("touching", touching), ("in the air", ~touching)):
        split[name] = {"worlds": int(those.sum())}
        split[name] |= {f"{what} differ": int((other & those).sum()) for what, other in others.items()}
        split[name]["qacc differ, order alike"] = int((others["qacc"] & ordered & those).sum())
    return {"tries": tries, **apart, "largest qacc": round(float(first["qacc"].abs().max()), 1), **split}


def orders(worlds: Worlds) -> dict[str, torch.Tensor]:
    """`contacts` and `rows` of constraints of each world in their order [B, ...], by what they are, -1 behind the last:
    geoms and the number of a contact between them; type and object of a row."""
    data, count = worlds._data, worlds.count
    pair, number, owner = (worlds._view(getattr(data.contact, name)) for name in ("geom", "geomcollisionid", "worldid"))
    contact = (pair[:, 0].long() * worlds.model.ngeom + pair[:, 1]) * SAME_PAIR + number
    owner = owner[: int(worlds._view(data.nacon))].long()
    by_world = torch.sort(owner, stable=True)
    begins = torch.searchsorted(by_world.values, torch.arange(count, device=owner.device))
    place = torch.arange(len(owner), device=owner.device) - begins[by_world.values]
    contacts = torch.full((count, MOST), -1, device=owner.device)
    contacts[by_world.values, place] = contact[: len(owner)][by_world.indices]
    kind, object = (worlds._view(getattr(data.efc, name)).long() for name in ("type", "id"))
    is_contact = kind >= int(mujoco.mjtConstraint.mjCNSTR_CONTACT_FRICTIONLESS)
    object = torch.where(is_contact, contact[object.clamp(0, len(contact) - 1)], object)
    is_row = torch.arange(kind.shape[1], device=kind.device) < worlds._view(data.nefc)[:, None]
    return {"contacts": contacts, "rows": torch.where(is_row, object * KINDS + kind, -1)}


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--id", default="pup12/velocity")
    parser.add_argument("--instances", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=100_000_000)
    given = parser.parse_args()
    results = Results("warp_soak", given, ("steps",))
    known = results.held("soak")
    left = given.steps - known.get("steps", 0)
    if left > 0 or not results.held("repeated"):
        env = make_env(given.id, given.instances, known.get("steps", 0), device=given.device, simulator="warp")
        assert isinstance(env, WarpEnv)
        if not results.held("repeated"):
            results.note(substep=substep_alone(env), repeated=repeated(env))
        soaked(env, left, known, lambda row: results.note(soak=row))
        env.close()
    found = results.held("soak")
    good = not found["not finite"] and not found["escaped"] and found["diverged"] / found["steps"] <= FAULTS
    return 0 if good and results.held("repeated")["restored"] else 1


if __name__ == "__main__":
    sys.exit(main())
