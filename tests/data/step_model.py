"""Random streams of environment steps, and what a replay of them should hold, kept in plain Python lists.

Every observation carries its own number, so that a transition that comes out of a replay can be looked up here. The
model knows nothing of rings, slots or tables.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

from gaitway.core.workspace import Workspace
from gaitway.data.step_replay import StepReplay
from gaitway.data.step_rows import Decisions

GROUPS = {"policy": ((2,), torch.float32), "image": ((3, 1), torch.uint8)}
ACTION = ((2,), torch.float32)
EXTRAS = {"skill": ((), torch.int64)}
PHASE = "decision/phase"


def observation(number: int) -> dict[str, torch.Tensor]:
    return {
        "policy": torch.tensor([number, -number], dtype=torch.float32),
        "image": torch.tensor([[number % 251], [number % 13], [number % 7]], dtype=torch.uint8),
    }


@dataclass
class Step:
    obs: int
    action: list[float]
    reward: float
    terminated: bool
    truncated: bool
    reached: int
    skill: int
    valid: bool = True
    phase: int = 0


@dataclass
class Stream:
    """One environment: its present observation, and every step it made."""

    now: int
    resets: bool = False
    phase: int = 0
    steps: list[Step] = field(default_factory=list)


class World:
    """Environments that end at random. With `reset_rows` a reset takes a row of its own, which is not valid.

    Somebody decides at the first step of every episode and `interval` steps after each decision.
    """

    def __init__(
        self, num_envs: int, seed: int, reset_rows: bool = False, ends: float = 0.15, interval: int = 1
    ) -> None:
        self.random = random.Random(seed)
        self.interval = interval
        self.reset_rows, self.ends, self.counter, self.cut_rows = reset_rows, ends, 0, 0
        self.streams = [Stream(self._new()) for _ in range(num_envs)]

    def _new(self) -> int:
        self.counter += 1
        return self.counter

    def restart(self) -> None:
        """All environments begin anew, without a word about the steps that were under way."""
        for stream in self.streams:
            if stream.steps:
                last = stream.steps[-1]
                if not last.terminated and not last.truncated and last.valid:
                    last.truncated, last.reached = True, stream.now
            stream.now, stream.resets, stream.phase = self._new(), False, 0
        self.cut_rows = len(self.streams[0].steps)

    def advance(self, count: int) -> Workspace:
        """`count` steps as a workspace of step rows."""
        rows = [{"obs": [stream.now for stream in self.streams]}]
        for _ in range(count):
            for stream in self.streams:
                self._step(stream)
            rows.append({"obs": [stream.now for stream in self.streams]})
        steps = [[stream.steps[t - count] for stream in self.streams] for t in range(count)]
        tensors = {
            "action": torch.tensor([[step.action for step in row] for row in steps]),
            "env/reward": torch.tensor([[step.reward for step in row] for row in steps]),
            "env/terminated": torch.tensor([[step.terminated for step in row] for row in steps]),
            "env/truncated": torch.tensor([[step.truncated for step in row] for row in steps]),
            "skill": torch.tensor([[step.skill for step in row] for row in steps]),
            PHASE: torch.tensor([[step.phase for step in row] for row in steps]),
        }
        if self.reset_rows:
            tensors["env/valid"] = torch.tensor([[step.valid for step in row] for row in steps])
        for group in GROUPS:
            seen = [[observation(number)[group] for number in row["obs"]] for row in rows]
            tensors[f"env/obs/{group}"] = torch.stack([torch.stack(row) for row in seen])
            if not self.reset_rows:
                final = [[observation(step.reached)[group] for step in row] for row in steps]
                tensors[f"env/final_obs/{group}"] = torch.stack([torch.stack(row) for row in final])
        return Workspace.packed(tensors)

    def _step(self, stream: Stream) -> None:
        draw = self.random
        action, skill = [draw.random(), draw.random()], draw.randrange(100)
        if stream.resets:
            stream.steps.append(Step(stream.now, action, 0.0, False, False, stream.now, skill, valid=False))
            stream.now, stream.resets = self._new(), False
            return
        terminated = draw.random() < self.ends
        truncated = not terminated and draw.random() < self.ends
        reached = self._new()
        reward = float(torch.tensor(draw.gauss(0, 1)))  # what float32 can hold
        stream.steps.append(Step(stream.now, action, reward, terminated, truncated, reached, skill, phase=stream.phase))
        stream.now, stream.phase = reached, (stream.phase + 1) % self.interval
        if terminated or truncated:
            stream.phase = 0
            stream.resets = self.reset_rows
            stream.now = reached if self.reset_rows else self._new()

    def transitions(self, capacity_rows: int, n_step: int, gamma: float) -> dict[int, dict[str, object]]:
        """Number of the observation -> its transition, for all that can be drawn."""
        added = len(self.streams[0].steps)
        stop = max(added - n_step + 1, self.cut_rows, 0)
        found = {}
        for stream in self.streams:
            for row in range(max(stop - capacity_rows, 0), stop):
                first = stream.steps[row]
                if not first.valid:
                    continue
                total, discount = 0.0, 1.0
                for step in stream.steps[row : row + n_step]:
                    total += discount * step.reward
                    discount *= gamma
                    last = step
                    if step.terminated or step.truncated:
                        break
                found[first.obs] = {
                    "action": first.action,
                    "reward": total,
                    "discount": 0.0 if last.terminated else discount,
                    "truncated": last.truncated,
                    "next": None if last.terminated else last.reached,
                    "skill": first.skill,
                }
        return found

    def decision_windows(self, capacity_rows: int, gamma: float, only: bool = False) -> dict[int, dict[str, object]]:
        """The same for windows of decisions, by the rule of a staging ring: of `interval` rows, each new one emits a
        transition of the oldest, up to the next decision that is due, a termination, or an episode that was cut."""
        added, c = len(self.streams[0].steps), self.interval
        stop, found = max(added - c + 1, self.cut_rows, 0), {}
        for stream in self.streams:
            for row in range(max(stop - capacity_rows, 0), stop):
                ring = stream.steps[row : row + c]
                phase = [step.phase for step in ring]
                due = (c - 1) - phase[0]
                ended = next((j for j, step in enumerate(ring) if step.terminated), c)
                cut = next((j for j in range(1, len(ring)) if phase[j] == 0), c) - 1
                if cut == c - 1 and (len(ring) < c or row + len(ring) == self.cut_rows):
                    cut = len(ring) - 1  # nothing came after it
                m = min(due, ended, cut, len(ring) - 1)
                first, last = ring[0], ring[m]
                if not first.valid or (only and first.phase):
                    continue
                found[first.obs] = {
                    "action": first.action,
                    "reward": sum(gamma**j * ring[j].reward for j in range(m + 1)),
                    "discount": 0.0 if last.terminated else gamma ** (m + 1),
                    "truncated": last.truncated,
                    "next": None if last.terminated else last.reached,
                    "skill": first.skill,
                    "steps": m + 1,
                }
        return found


def make(capacity: int, num_envs: int, **options: object) -> StepReplay:
    return StepReplay(capacity, num_envs, GROUPS, ACTION, extras=EXTRAS, seed=0, **options)


def make_with_decisions(capacity: int, world: World, only: bool = False, **options: object) -> StepReplay:
    """A replay of windows that end where the next decision of `world` is due."""
    return StepReplay(
        capacity,
        len(world.streams),
        GROUPS,
        ACTION,
        extras=EXTRAS | {PHASE: ((), torch.int64)},
        seed=0,
        n_step=world.interval,
        decisions=Decisions(PHASE, only),
        reset_rows=world.reset_rows,
        **options,
    )


def check_transitions(fields: dict[str, torch.Tensor], expected: dict[int, dict[str, object]]) -> set[int]:
    """Compare gathered fields with the model, number by number; returns the numbers that were met."""
    met = set()
    for i, number in enumerate(fields["obs/policy"][:, 0].int().tolist()):
        assert number in expected, f"{number} cannot be drawn"
        met.add(number)
        want = expected[number]
        for group, value in observation(number).items():
            assert torch.equal(fields[f"obs/{group}"][i], value)
        assert torch.equal(fields["action"][i], torch.tensor(want["action"]))
        assert fields["skill"][i].item() == want["skill"]
        assert abs(fields["reward"][i].double().item() - want["reward"]) < 1e-6
        assert abs(fields["discount"][i].double().item() - want["discount"]) < 1e-7
        assert fields["truncated"][i].item() == want["truncated"]
        assert "steps" not in fields or fields["steps"][i].item() == want["steps"]
        for group in GROUPS:
            following = fields[f"next_obs/{group}"][i]
            assert bool(torch.isfinite(following.float()).all())
            if want["next"] is not None:
                assert torch.equal(following, observation(want["next"])[group]), f"after {number} in {group}"
    return met
