"""Runs an exported policy on a robot: NumPy and onnxruntime, this one file and the two beside it.

    python robot_runner.py          run on zeros: what goes in, what comes out, how long it takes

    runner = RobotRunner("folder of the export")
    runner.reset()                                   # before each episode: forget the past
    action = runner({"policy": observation})         # an array per group, or a mapping of its components by name

Normalisation, encoders, memory and limits are part of the ONNX file; observations go in as the environment showed them,
in the order, the units and the frames that the contract lists (`imu`: where `drive` says that the IMU is). Sizes,
names, types and finite numbers are checked in every call.
"""

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

CONTRACT, MODEL = "policy_contract.json", "policy.onnx"
FORMAT, VERSION = "gaitway export", 1
TYPES = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(uint8)": "uint8", "tensor(int64)": "int64",
         "tensor(int32)": "int32", "tensor(bool)": "bool", "tensor(float16)": "float16", "tensor(int8)": "int8",
         "tensor(int16)": "int16"}  # fmt: skip


class RobotRunner:
    """An exported policy as a function of observations, with its memory.

    `batch` None takes and returns single observations and actions; a number takes so many rows at once. `action_time_s`
    is the time of one step on the environment's clock, 0 where it has none: call it that often.
    """

    def __init__(self, folder: str | Path = ".", batch: int | None = None, threads: int = 1) -> None:
        self.folder, self.batch = Path(folder), batch
        self.contract = read_contract(self.folder)
        content = self._model_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads  # networks of this size are slower on several
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.inputs, self.memories = self.contract["inputs"], self.contract["memories"]
        self.action_time_s = float(self.contract["control_dt"])
        self._check_model()
        rows = 1 if batch is None else batch
        self._shapes = {entry["group"]: (rows, *entry["shape"]) for entry in self.inputs}
        self._types = {entry["group"]: np.dtype(entry["dtype"]) for entry in self.inputs}
        self._outputs = [output["name"] for output in self._wanted_outputs()]
        self._fresh = {
            each["input"]: np.array(np.broadcast_to(np.float32(each["reset"]), (rows, each["size"])))
            for each in self.memories
        }
        self.memory: dict[str, np.ndarray] = {}
        self.reset()

    def reset(self, rows: Any = None) -> None:
        """Begin an episode: put every memory to its reset value, or that of the `rows` [B] that are true."""
        if rows is None:
            self.memory = {name: value.copy() for name, value in self._fresh.items()}
            return
        ended = np.asarray(rows, dtype=bool)[:, None]
        self.memory = {name: np.where(ended, self._fresh[name], value) for name, value in self.memory.items()}

    def __call__(self, observation: Mapping[str, Any]) -> np.ndarray:
        """The action for one observation by group; what is remembered moves on by one step."""
        feed = self._feed(observation)
        feed.update(self.memory)
        action, *memories = self.session.run(self._outputs, feed)
        for entry, value in zip(self.memories, memories, strict=True):
            self.memory[entry["input"]] = value
        return action if self.batch is not None else action[0]

    def zeros(self) -> dict[str, np.ndarray]:
        """An observation of zeros."""
        return {name: np.zeros(shape, self._types[name])[slice(None) if self.batch else 0]
                for name, shape in self._shapes.items()}  # fmt: skip

    def _feed(self, observation: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if len(observation) != len(self._shapes) or any(name not in self._shapes for name in observation):
            raise ValueError(f"the policy reads the groups {list(self._shapes)}, and the observation has "
                             f"{list(observation)}; pass exactly those")  # fmt: skip
        feed = {}
        for entry in self.inputs:
            name, value = entry["group"], observation[entry["group"]]
            if isinstance(value, Mapping):
                value = self._joined(entry, value)
            array = np.asarray(value, self._types[name])
            if self.batch is None:
                array = array[None]
            if array.shape != self._shapes[name]:
                wanted = list(self._shapes[name][self.batch is None :])
                raise ValueError(f"group {name!r} is {list(array.shape[self.batch is None :])}; pass {wanted}")
            for component in entry["components"]:
                if component.get("unread"):  # an estimate takes its place, so it may be anything
                    array = array.copy()
                    array[..., component["start"] : component["start"] + component["size"]] = 0
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"group {name!r} holds numbers that are not finite{_place(entry, array)}")
            feed[entry["name"]] = array
        return feed

    def _joined(self, entry: dict[str, Any], parts: Mapping[str, Any]) -> np.ndarray:
        """Components by name, in the order of the contract."""
        names = [component["name"] for component in entry["components"]]
        unread = {component["name"] for component in entry["components"] if component.get("unread")}
        odd = sorted((set(names) ^ set(parts)) - unread)
        if odd:
            raise ValueError(f"group {entry['group']!r} has the components {names}; lacking or unknown: {odd}")
        found = []
        for component in entry["components"]:
            lacking = np.zeros((*([self.batch] if self.batch else []), component["size"]))
            value = np.atleast_1d(np.asarray(parts.get(component["name"], lacking)))
            if value.shape[-1] != component["size"]:
                raise ValueError(f"component {component['name']!r} of {entry['group']!r} has {value.shape[-1]} "
                                 f"numbers; pass {component['size']}")  # fmt: skip
            found.append(value)
        return np.concatenate(found, -1)

    def _wanted_outputs(self) -> list[dict[str, Any]]:
        action = self.contract["action"]
        memories = [{"name": each["output"], "shape": [each["size"]], "dtype": "float32"} for each in self.memories]
        return [{"name": action["name"], "shape": action["shape"], "dtype": action["dtype"]}, *memories]

    def _model_bytes(self) -> bytes:
        content = (self.folder / MODEL).read_bytes()
        if hashlib.sha256(content).hexdigest() != self.contract["files"].get(MODEL):
            raise ValueError(f"{self.folder / MODEL} is not the file that {CONTRACT} describes; export again")
        return content

    def _check_model(self) -> None:
        """Refuse a model whose inputs and outputs are not those of the contract, by name, order, size and type."""
        memories = [{"name": each["input"], "shape": [each["size"]], "dtype": "float32"} for each in self.memories]
        for what, wanted, found in (
            ("input", [*self.inputs, *memories], self.session.get_inputs()),
            ("output", self._wanted_outputs(), self.session.get_outputs()),
        ):
            said = [(each["name"], list(each["shape"]), each["dtype"]) for each in wanted]
            there = [(each.name, list(each.shape[1:]), TYPES.get(each.type, each.type)) for each in found]
            if said != there:
                one, other = next(pair for pair in _pairs(said, there) if pair[0] != pair[1])
                raise ValueError(f"{MODEL} and {CONTRACT} differ in an {what}: {other} there, {one} here; export again")


def read_contract(folder: Path) -> dict[str, Any]:
    """What goes in and out, or a ValueError."""
    contract = json.loads((folder / CONTRACT).read_text(encoding="utf-8"))
    if not isinstance(contract, dict) or contract.get("format") != FORMAT:
        raise ValueError(f"{folder / CONTRACT} is not the contract of an export")
    if contract["format_version"] > VERSION:
        raise ValueError(f"{folder / CONTRACT} has format version {contract['format_version']}; this file reads "
                         f"{VERSION}, use the robot_runner.py that was written with it")  # fmt: skip
    return contract


def _place(entry: dict[str, Any], array: np.ndarray) -> str:
    if array.ndim != 2:
        return ""
    column = int(np.argwhere(~np.isfinite(array))[0][1])
    names = [each["name"] for each in entry["components"] if each["start"] <= column < each["start"] + each["size"]]
    return f" in {names[0]!r}" if names else ""


def _pairs(one: list[Any], other: list[Any]) -> list[tuple[Any, Any]]:
    length = max(len(one), len(other))
    return list(zip(one + [None] * (length - len(one)), other + [None] * (length - len(other)), strict=True))


def latency(runner: RobotRunner, calls: int) -> np.ndarray:
    """Microseconds of `calls` calls on zeros."""
    observation, taken = runner.zeros(), np.zeros(calls)
    for _ in range(min(calls, 100)):
        runner(observation)
    for number in range(calls):
        started = time.perf_counter()
        runner(observation)
        taken[number] = 1e6 * (time.perf_counter() - started)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description="Run an exported policy on zeros and time it.")
    parser.add_argument("folder", nargs="?", default=str(Path(__file__).resolve().parent))
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    try:
        runner = RobotRunner(options.folder)
    except (OSError, ValueError, KeyError) as error:
        print(f"robot_runner: {error}", file=sys.stderr)
        return 1
    for entry in runner.inputs:
        names = ", ".join(each["name"] for each in entry["components"])
        print(f"{entry['name']:24s} {entry['dtype']} {entry['shape']}: {names}")
    for entry in runner.memories:
        print(f"{entry['input']:24s} float32 [{entry['size']}], comes back as {entry['output']}")
    imu = (runner.contract.get("drive") or {}).get("imu")
    if imu is not None:
        place, turn = imu["position"], imu["rotation"]
        print(f"{'frame imu':24s} the site {imu['site']} at {place} m in the base, turned by the quaternion {turn}")
    runner.reset()
    action = np.atleast_1d(runner(runner.zeros()))
    shown = ", ".join(f"{name} {value:.4g}" for name, value in zip(runner.contract["action"]["names"], action,
                                                                   strict=False))  # fmt: skip
    print(f"{'action on zeros':24s} {shown}")
    taken = latency(runner, max(1, options.calls))
    budget = f", a step lasts {1e6 * runner.action_time_s:,.0f}" if runner.action_time_s else ""
    half, most = np.percentile(taken, 50), np.percentile(taken, 99)
    print(f"{'microseconds a call':24s} median {half:.1f}, 99 % below {most:.1f}{budget}")
    return 0 if all(map(math.isfinite, map(float, action))) else 1


if __name__ == "__main__":
    sys.exit(main())
