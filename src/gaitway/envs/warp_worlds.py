"""Many worlds of one MuJoCo model on Warp: their arrays as tensors, without a copy.

Importing this needs the extra `gpu`. Physics is float32. What `step` launches goes to torch's present stream, so that
a recording of torch holds it too.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

FITS = {"mujoco-warp": ((4, 0), (5, 0)), "warp-lang": ((1, 19), (2, 0)), "mujoco": ((3, 17), None)}
"""Which versions are taken: from the first to below the second."""
TRIED = {"cuda": (("4.0.0", "1.19.0", "4.0.0"),), "cpu": (("4.0.0", "1.19.0", "4.0.0"), ("4.0.0", "1.19.0", "3.17.0"))}
"""By device, the versions of `FITS` that were run together."""
STATE = ("time", "qpos", "qvel", "act", "history", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied")
"""Everything that a step carries to the next."""
CONSTANTS = ("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0", "tendon_invweight0")
"""Fields of the model that follow from its masses: all that `derive` writes. Those that worlds share it would write
with the values of the first."""
OWN_OVERFLOW = ("NEFC", "NJMAX_NNZ", "CCD", "NVMAX")
"""Warp's overflow bits of a world that lost constraints or contacts of its own."""
POOL_OVERFLOW = ("BROADPHASE", "NARROWPHASE")
"""Those that all worlds get at once when the pool of contacts, which they share, is full: whose are missing, nobody
knows. All other bits are limits that MuJoCo has too (of solvers, height fields, polytopes) or concern sensors alone."""
SOUND = 1e10
"""Positions, velocities and accelerations of a sound state are smaller, as in MuJoCo's own warnings (mjMAXVAL)."""
NO_MIDPHASE = int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
MATCHES = 16
"""Contacts of a geom that its sensor adds up where the ground is no height field: a box on another has 8. Warp sorts
room for 64 by default."""
NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
INSTALL = "install it with: pip install 'gaitway[gpu]'"
GEOMETRY = frozenset(("geom_pos", "geom_quat", "geom_size"))
SLACK = 256
"""Contacts of the pool beyond those of all worlds."""


class WarpError(ValueError):
    """Warp cannot do what is asked, in one sentence."""


@dataclass(frozen=True)
class Capacity:
    """Room for constraints and contacts: `constraints` of each world, `contacts` of each on average (they share one
    pool)."""

    constraints: int
    contacts: int


def capacity_of(given: Any) -> Capacity | None:
    """What the option `capacity` says: constraints and contacts; None without it. MuJoCo has no need of it."""
    if given is None:
        return None
    is_pair = isinstance(given, list | tuple) and len(given) == 2
    if not is_pair or not all(type(each) is int and each > 0 for each in given):
        raise WarpError(
            f"the option capacity is {given!r}; write [constraints, contacts] of a world, such as [160, 96]"
        )
    return Capacity(*given)


def missing() -> str | None:
    """Why Warp cannot be used here, None if it can; nothing of it is imported."""
    for name, (least, below) in FITS.items():
        try:
            text = metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} is not installed; {INSTALL}"
        found = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
        if found < least or (below is not None and found >= below):
            wanted = f">={least[0]}.{least[1]}" + (f",<{below[0]}" if below is not None else "")
            return f"{name} is {text}, and what fits is {name}{wanted}; {INSTALL}"
    return None


def untried(device: torch.device) -> str | None:
    """A sentence about versions that fit but were never run together on such a device; None for those that were."""
    found, known = tuple(metadata.version(name) for name in FITS), TRIED[device.type]
    if found in known:
        return None
    tried = _named(known[0])
    return f"{_named(found)} were not tried together on {device.type}; if something is wrong, install {tried}"


def _named(versions: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {version}" for name, version in zip(FITS, versions, strict=True))


def warp_modules() -> tuple[Any, Any]:
    """(warp, mujoco_warp), started; refused in a sentence where they are not there."""
    reason = missing()
    if reason is not None:
        raise WarpError(f"env.simulator is warp, but {reason}, or use env.simulator=mujoco")
    warp = importlib.import_module("warp")
    warp.config.log_level = logging.WARNING
    warp.init()
    return warp, importlib.import_module("mujoco_warp")


def constants_of(model: mujoco.MjModel) -> tuple[str, ...]:
    """Those of `CONSTANTS` that a model has."""
    return tuple(name for name in CONSTANTS if model.ntendon or not name.startswith("tendon_"))


def compiled_for_warp(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy of a model without settings that mean nothing to Warp."""
    copy = mujoco.MjModel.__copy__(model)
    copy.opt.disableflags &= ~NO_MIDPHASE
    return copy


class Worlds:
    """`count` worlds of `model` on `device`; `expanded` are fields of the model that every world has its own values of.

    `state` names the arrays that a step carries on, `field(name)` any other of Warp's data, `own` the expanded ones.
    All are views [B, ...].
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        count: int,
        device: torch.device,
        capacity: Capacity,
        expanded: Iterable[str] = (),
        id: str = "the model",
    ) -> None:
        self._warp, self._mjw = warp_modules()
        self.model, self.count, self.device, self.capacity = compiled_for_warp(model), count, device, capacity
        self._place = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
        data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, data)
        names = tuple(expanded)
        sizes = {name: count for name in names if "." not in name}
        contacts = max(capacity.contacts * count + SLACK, data.ncon * count)
        with self._warp.ScopedDevice(self._place), torch.inference_mode(False):
            try:
                self._model = self._mjw.put_model(self.model, batch_sizes=sizes)
            except NotImplementedError as error:
                raise WarpError(
                    f"{id} cannot run on Warp, which has no {_feature(error)}; change the model or use "
                    "env.simulator=mujoco"
                ) from error
            self._model.opt.warn_overflow = 0
            if not model.nhfield:
                self._model.opt.contact_sensor_maxmatch = min(MATCHES, int(self._model.opt.contact_sensor_maxmatch))
            for name in names:
                if "." in name:
                    self._expand_option(name.removeprefix("opt."))
            self._data = self._mjw.put_data(
                self.model,
                data,
                nworld=count,
                naconmax=contacts,
                njmax=max(capacity.constraints, int(data.nefc)),
            )
            self.state = {name: self._view(getattr(self._data, name)) for name in STATE}
            self.own = {name: self._model_view(name) for name in names}
            self.overflow = self._view(self._data.overflow)
        self.qpos, self.qvel, self.ctrl = (self.state[name] for name in ("qpos", "qvel", "ctrl"))
        # a solver that float32 has no room for stops at once, and leaves the acceleration of the substep before
        self._accelerations = self.field("qacc"), self.field("qacc_smooth")
        bits = [int(getattr(self._mjw.OverflowType, name)) for name in (*OWN_OVERFLOW, *POOL_OVERFLOW)]
        self._overflow_bits = torch.tensor(bits, dtype=self.overflow.dtype, device=device)[:, None]
        self._flags = int(self._model.opt.disableflags)
        self.first = {name: value[:1].clone() for name, value in self.state.items()}
        """What the state of a world is after a reset [1, ...]."""

    def field(self, name: str) -> Tensor:
        """An array of Warp's data [B, ...], live."""
        with torch.inference_mode(False):
            return self._view(getattr(self._data, name))

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Have Warp launch on torch's present stream, into the recording that is under way there."""
        if self.device.type != "cuda":
            with self._warp.ScopedDevice(self._place):
                yield
            return
        warp = self._warp
        stream = warp.stream_from_torch(torch.cuda.current_stream(self.device))
        with contextlib.ExitStack() as stack:
            stack.enter_context(warp.ScopedDevice(self._place))
            stack.enter_context(warp.ScopedStream(stream, sync_enter=False))
            if torch.cuda.is_current_stream_capturing():
                stack.enter_context(warp.ScopedCapture(stream=stream, external=True))
            yield

    def step(self, senses: bool = True) -> None:
        """One substep of all worlds. Sensors, those of contacts above all, are a good part of it and of no use in
        substeps after which nobody looks."""
        self._model.opt.disableflags = self._flags if senses else self._flags | NO_SENSORS
        self._mjw.step(self._model, self._data)
        self._model.opt.disableflags = self._flags

    def look(self) -> None:
        """Positions, velocities and the sensors of both for the present state; forces stay those of the last step."""
        model, data = self._model, self._data
        self._mjw.kinematics(model, data)
        self._mjw.com_pos(model, data)
        self._mjw.sensor_pos(model, data)
        self._mjw.com_vel(model, data)
        self._mjw.sensor_vel(model, data)

    def derive(self) -> None:
        """Compute the constants that follow from masses, sizes and armatures of the worlds anew."""
        kinds = self._mjw.SetConstGroup
        self._mjw.set_const(self._model, self._data, kinds.FIXED | kinds.INERT0)

    def faults(self) -> tuple[Tensor, Tensor, Tensor]:
        """Whose state is not sound [B]; what overflowed since this was asked: of which worlds each bit of
        `OWN_OVERFLOW` [K, B], and whether each of `POOL_OVERFLOW` [L]."""
        whole = torch.cat((self.qpos, self.qvel, *self._accelerations), 1)
        sound = (whole.abs() < SOUND).all(1)  # NaN is not smaller
        own, pool = ((self.overflow & self._overflow_bits) != 0).split((len(OWN_OVERFLOW), len(POOL_OVERFLOW)))
        self.overflow.zero_()
        return ~sound, own, pool.any(1)

    def restart(self, where: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Put worlds [B] into their first state, at rest but for `qpos` [B, nq] and `qvel` [B, nv]."""
        values = {**self.first, "qpos": qpos, "qvel": qvel}
        for name, array in self.state.items():
            mask = where.view(-1, *(1,) * (array.dim() - 1))
            array.copy_(torch.where(mask, values[name], array))

    # what pictures ask of MuJoCo's batch

    @property
    def nsim(self) -> int:
        return self.count

    def bind(self, name: str) -> _Rows:
        """Rows of an array, copied to the host one by one."""
        return _Rows(self.field(name))

    def get_model(self, index: int, model: mujoco.MjModel | None = None) -> mujoco.MjModel:
        """The model of one world."""
        found = compiled_for_warp(self.model) if model is None else model
        for name in self.own.keys() & GEOMETRY:
            getattr(found, name)[:] = self.own[name][index].double().cpu().numpy()
        return found

    def _view(self, array: Any) -> Tensor:
        return self._warp.to_torch(array, requires_grad=False)

    def _model_view(self, name: str) -> Tensor:
        owner = self._model.opt if "." in name else self._model
        return self._view(getattr(owner, name.removeprefix("opt.")))

    def _expand_option(self, name: str) -> None:
        """Give every world its own value of an option."""
        value = getattr(self._model.opt, name)
        rows = np.repeat(value.numpy(), self.count, axis=0)
        setattr(self._model.opt, name, self._warp.array(rows, dtype=value.dtype))


class _Rows:
    def __init__(self, values: Tensor) -> None:
        self._values = values

    def __getitem__(self, index: int) -> np.ndarray:
        return self._values[index].double().cpu().numpy()


def _feature(error: Exception) -> str:
    """What is missing, by MuJoCo's own name."""
    return str(error).strip().rstrip(".").removesuffix(" is unsupported").removesuffix(" not supported").strip("[]'")


def state_bytes(arrays: Mapping[str, Tensor]) -> int:
    """Bytes of arrays [B, ...] per world."""
    return sum(array[0].numel() * array.element_size() for array in arrays.values())
