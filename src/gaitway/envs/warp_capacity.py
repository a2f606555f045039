"""How much room worlds need: constraints and contacts found by a short probe, and memory, said before the run."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import torch

from gaitway.envs.batch_task import BatchTask
from gaitway.envs.mujoco_batch import MujocoBatchEnv
from gaitway.envs.warp_worlds import MATCHES, Capacity, WarpError

PROBE_WORLDS, PROBE_STEPS, EVERY = 16, 60, 3
ROOM = 2.0
"""Times what the probe found."""
LEAST = Capacity(64, 32)
MULTIPLE = 16
SHARE = 0.9
"""Of the free memory, which physics may take."""
CONVEX = tuple(getattr(mujoco.mjtGeom, f"mjGEOM_{name}") for name in ("HFIELD", "ELLIPSOID", "CYLINDER", "MESH"))
"""Geoms whose contacts with most others have no formula; boxes have none with each other."""


def probed_capacity(task: BatchTask) -> Capacity:
    """Play some instances of a task that no environment has yet on MuJoCo, with random actions, and count.

    Contacts are those of the worst moment of an instance, not of the average one, because candidates of collisions
    share the pool with them.
    """
    asked = f"{task.id} {dict(task.options)}"
    if asked not in _probed:
        _probed[asked] = _probe(task)
    return _probed[asked]


_probed: dict[str, Capacity] = {}


def _probe(task: BatchTask) -> Capacity:
    constraints = contacts = 0
    generator = torch.Generator().manual_seed(0)
    with MujocoBatchEnv(task, PROBE_WORLDS, num_threads=1) as env:
        low, high = (torch.tensor(limit).clamp(-1.0, 1.0) for limit in (env.spec.action.low, env.spec.action.high))
        model, data = task.model, mujoco.MjData(task.model)
        for number in range(PROBE_STEPS):
            share = torch.rand(PROBE_WORLDS, len(low), generator=generator)
            env.step(low + (high - low) * share)
            if number % EVERY:
                continue
            for row in range(PROBE_WORLDS):
                model = task.batch.get_model(row, model if number or row else None)
                data.qpos[:], data.qvel[:] = task.qpos[row], task.qvel[row]
                mujoco.mj_forward(model, data)
                constraints, contacts = max(constraints, int(data.nefc)), max(contacts, int(data.ncon))
    task.__dict__.pop("_attached", None)
    return Capacity(
        max(_rounded(ROOM * constraints), LEAST.constraints), max(_rounded(ROOM * contacts), LEAST.contacts)
    )


def _rounded(number: float) -> int:
    return MULTIPLE * math.ceil(number / MULTIPLE)


def world_bytes(model: mujoco.MjModel, capacity: Capacity, sensed: int = 0) -> int:
    """About how much device memory a world takes: what grows with the model, constraints, contacts, and Warp's scratch
    memory; `sensed` are the numbers of an instance that the environment shows in a step."""
    matrices = 4 * model.nv * (capacity.constraints * 2 + 6 * model.nv)
    bodies = 4 * (model.nbody * 110 + model.ngeom * 16 + model.nsite * 16)
    constraints, contacts = 4 * capacity.constraints * 24, capacity.contacts * (300 + _convex_bytes(model))
    sensors = 8 * MATCHES * int((model.sensor_type == mujoco.mjtSensor.mjSENS_CONTACT).sum())
    shown = 4 * 4 * sensed  # observations and final ones, two sets of buffers
    carried = 4 * 40 * (model.nv + model.nu + model.nsensordata)
    return matrices + bodies + constraints + contacts + sensors + shown + carried


def _convex_bytes(model: mujoco.MjModel) -> int:
    """What the search for a contact takes where a pair of geoms has no formula: polytopes of so many iterations."""
    kinds = model.geom_type[(model.geom_contype | model.geom_conaffinity) != 0]
    if not np.isin(kinds, CONVEX).any() and (kinds == mujoco.mjtGeom.mjGEOM_BOX).sum() < 2:
        return 0
    return 132 * int(model.opt.ccd_iterations) + 900


def check_memory(
    model: mujoco.MjModel, capacity: Capacity, count: int, device: torch.device, id: str, sensed: int = 0
) -> None:
    """Refuse more worlds than the device has room for, with the number that fits."""
    free, _ = torch.cuda.mem_get_info(device)
    each = world_bytes(model, capacity, sensed)
    fit = int(SHARE * free / each)
    if count <= fit:
        return
    asked = f"{count} instances of {id} need about {count * each / 2**30:.1f} GiB on {device}, where"
    if fit < 1:
        raise WarpError(f"{asked} nothing is free; end what runs there, or use env.simulator=mujoco")
    raise WarpError(
        f"{asked} {free / 2**30:.1f} GiB are free; about {fit} fit, without what is learnt from them: use "
        f"env.num_envs={2 ** int(math.log2(fit))}"
    )
