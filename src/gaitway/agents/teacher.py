"""A cast agent that says in every step what a frozen policy would do, and drives a share of the episodes itself.

    label      y = the teacher's action without noise, and its latents      teacher/action, teacher/latent/<name>
    driver     drawn at the start of each episode: the teacher with probability p, which may follow a schedule
    action     y where the teacher drives, what the policy drew elsewhere; weight/policy is 0 where the teacher drives

The policy's log-probability of an action that the teacher chose comes out right by itself: algorithms compute it from
`policy/params` and from the action that was executed. Ross, Gordon and Bagnell 2011, "A reduction of imitation learning
and structured prediction to no-regret online learning" (DAgger).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gaitway.agents.policy import Policy
from gaitway.core.config import did_you_mean
from gaitway.core.files import tensors_sha256
from gaitway.core.schedules import Now, ShareCoefficient, value_at
from gaitway.core.seeding import fill
from gaitway.core.small_agents import SeedableAgent
from gaitway.core.transitions import over_events
from gaitway.core.workspace import Variable, Workspace
from gaitway.envs.misfit import misfit_of
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation

ACTION, PARAMS, LATENT = "teacher/action", "teacher/params", "teacher/latent/"
MEMORY, DRIVER, WEIGHT = "teacher/memory", "teacher/driver", "weight/policy"
UNKNOWN, STUDENT, TEACHER = 0.0, 1.0, 2.0
"""Who drives an episode; unknown before its first step, which is what memory of zeros says."""


class Teacher(SeedableAgent):
    """Labels with the actions of `teachers`: policies, in a configuration folders of runs or functions by
    `package.module:name`; several are chosen among in every step by the observation group `choose_by`, which holds the
    number of one, or a number for each of which the largest chooses.

    They are frozen, act without noise and with their own normalisers and memories. Teachers label and drive in training
    alone: nothing else plays with them.
    """

    plays = False
    is_recordable = True
    running: Tensor

    def __init__(
        self,
        spec: EnvSpec,
        policy: Policy,
        num_envs: int,
        teachers: tuple[Policy, ...],
        probability: ShareCoefficient = 0.0,
        choose_by: str | None = None,
        latents: tuple[str, ...] = (),
    ) -> None:
        super().__init__(rule="last")
        device = next(policy.parameters()).device
        self._teachers = tuple(_frozen(each, device) for each in teachers)  # no parts: nothing of them is learnt
        self.policy_names = [policy.out(name) for name in ("action", "policy/raw")]
        self._head = (getattr(policy, "head", None),)  # within a tuple, because it is no part of the teacher
        self.spec, self.probability, self.choose_by, self.latents = spec, probability, choose_by, latents
        self._check(policy)
        self.groups = tuple(dict.fromkeys(name for each in self._teachers for name in each.actor_groups))
        if choose_by is not None and choose_by not in self.groups:
            self.groups += (choose_by,)
        self.sizes = [0 if (state := each.initial_state(1, "cpu")) is None else state.shape[-1] for each in teachers]
        self.says_params = all(same_distribution(each, policy) for each in self._teachers)
        self.mixes = not isinstance(probability, float | int) or probability > 0
        self.changes_raw = self.mixes and self.policy_names[1] in policy.writes
        self.sha256 = [_sha256(each) for each in self._teachers]
        changed = self.policy_names[: 2 if self.changes_raw else 1] if self.mixes else []
        self.reads = (*(f"env/obs/{name}" for name in self.groups), *changed)
        self.memories = {DRIVER: 1} if self.mixes else {}
        self.memories |= {MEMORY: sum(self.sizes)} if sum(self.sizes) else {}
        self.writes = (*self.variables(1, 1), *changed)
        self._chance = torch.zeros((), device=device)
        self._draws = torch.zeros(num_envs, device=device)
        self.register_buffer("running", torch.zeros(num_envs))
        self._figures: list[Tensor] = []
        self.begin(Now())

    def variables(self, num_envs: int, rows: int) -> dict[str, Variable]:
        action = self.spec.action
        found = {ACTION: Variable(rows, num_envs, action.shape, action.dtype)}
        if self.says_params:
            found[PARAMS] = Variable(rows, num_envs, (self.head.num_params,))
        for name in self.latents:
            found[LATENT + name] = Variable(rows, num_envs, (self._width(name),))
        if sum(self.sizes):
            found[MEMORY] = Variable(rows + 1, num_envs, (sum(self.sizes),))
        if self.mixes:
            found |= {DRIVER: Variable(rows + 1, num_envs), WEIGHT: Variable(rows, num_envs)}
        return {self.out(name): variable for name, variable in found.items()}

    @property
    def head(self) -> Any:
        """The distribution of the policy that learns."""
        return self._head[0]

    def begin(self, now: Now) -> None:
        """Bring the probability to where training stands."""
        self._chance.fill_(value_at(self.probability, now))
        self._draw()

    def reset(self, ws: Workspace, t: int, mask: Tensor) -> None:
        """Where an episode ended, teachers forget and the driver is drawn anew."""
        keep = ~mask
        for name in map(self.out, self.memories):
            if name in ws:
                state = ws.at(name, t)
                ws.put(name, t, state * over_events(keep, state))
        self._draw()

    @torch.no_grad()
    def step(self, ws: Workspace, t: int) -> None:
        obs = {name: ws.at(f"env/obs/{name}", t) for name in self.groups}
        before = self._before(ws, MEMORY, t, obs, sum(self.sizes)) if sum(self.sizes) else None
        states = [None] * len(self.sizes) if before is None else before.split(self.sizes, -1)
        said = [
            _ask(each, obs, state if size else None, self.spec)
            for each, state, size in zip(self._teachers, states, self.sizes, strict=True)
        ]
        chosen = self._chosen(obs)
        label = _pick([each.action for each in said], chosen)
        ws.put(self.out(ACTION), t, label)
        if self.says_params:
            ws.put(self.out(PARAMS), t, _pick([each.params for each in said], chosen))
        for name in self.latents:
            ws.put(self.out(LATENT + name), t, _pick([each.latents[name] for each in said], chosen))
        after = [each.state for each in said if each.state is not None]
        if after:
            ws.put(self.out(MEMORY), t + 1, torch.cat(after, -1))
        if self.mixes:
            self._drive(ws, t, label, obs)

    def _drive(self, ws: Workspace, t: int, label: Tensor, obs: Observation) -> None:
        driver = self._before(ws, DRIVER, t, obs)
        drawn = torch.where(self._draws < self._chance, TEACHER, STUDENT)
        driver = torch.where(driver == UNKNOWN, drawn, driver)
        taught = driver == TEACHER
        ws.put(self.out(DRIVER), t + 1, driver)
        ws.put(self.out(WEIGHT), t, (~taught).float())
        executed = (label, self.head.raw(label)) if self.changes_raw else (label,)
        for name, value in zip(self.policy_names, executed, strict=False):
            own = ws.at(name, t)
            ws.put(name, t, torch.where(over_events(taught, own), value.to(own.dtype), own))

    def collected(self, ws: Workspace, start: int, stop: int) -> None:
        """Count who drove, and what the episodes that ended earned."""
        rows = ws.slice(start, stop)
        reward, done = rows["env/reward"], rows["env/done"]
        valid = rows["env/valid"].float() if "env/valid" in rows else torch.ones_like(reward)
        student = rows[self.out(WEIGHT)] if self.mixes else torch.ones_like(reward)
        returns, running = _returns(self.running.to(reward.device), reward * valid, done)
        self.running = running.to(self.running.device)
        ended = done.float() * valid
        parts = (valid, student * valid, ended * student, ended * student * returns, ended * (1 - student))
        self._figures.append(torch.stack([part.sum() for part in (*parts, ended * (1 - student) * returns)]))

    def metrics(self) -> dict[str, float]:
        """Who drove since the last call; the returns of drivers of whom an episode ended."""
        if not self._figures:
            return {}
        steps, own, episodes, earned, taught, earned_taught = torch.stack(self._figures).sum(0).tolist()
        self._figures.clear()
        found = {"teacher/student_share": own / max(steps, 1.0), "teacher/probability": float(self._chance)}
        found |= {"teacher/student_return": earned / episodes} if episodes else {}
        return found | ({"teacher/teacher_return": earned_taught / taught} if taught else {})

    def get_extra_state(self) -> dict[str, Any]:
        """The teachers' fingerprints, after making sure that they still are the ones that were loaded."""
        for number, (each, expected) in enumerate(zip(self._teachers, self.sha256, strict=True)):
            if _sha256(each) != expected:
                raise ValueError(
                    f"teachers[{number}] is no longer what was loaded: something trains it or moves its statistics; "
                    "keep its parameters out of every optimiser"
                )
        return {"sha256": list(self.sha256)}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for number, (found, stored) in enumerate(zip(self.sha256, state["sha256"], strict=False)):
            if found != stored:
                raise ValueError(
                    f"teachers[{number}] is not the one that this run has learnt from (sha256 {found[:12]}, not "
                    f"{stored[:12]}); put that one back, or begin a new run"
                )
        if len(state["sha256"]) != len(self.sha256):
            raise ValueError(
                f"this run has learnt from {len(state['sha256'])} teachers and not from {len(self.sha256)}"
            )

    def _draw(self) -> None:
        if self.mixes:
            fill(self._draws, self.generator(self._draws.device), "uniform_")

    def _before(self, ws: Workspace, name: str, t: int, obs: Observation, *size: int) -> Tensor:
        """The memory that row t starts from; zeros at the very beginning."""
        if self.out(name) not in ws:
            first = obs[self.groups[0]]
            ws.put(self.out(name), t, torch.zeros(len(first), *size, device=first.device))
        return ws.at(self.out(name), t)

    def _chosen(self, obs: Observation) -> Tensor | None:
        if self.choose_by is None:
            return None
        number = obs[self.choose_by]
        number = number.squeeze(-1).round().long() if number.shape[-1] == 1 else number.argmax(-1)
        return number.clamp(0, len(self._teachers) - 1)

    def _width(self, latent: str) -> int:
        return self._teachers[0].feature_shapes[latent][0]

    def _check(self, policy: Policy) -> None:
        """Refuse teachers that cannot label here."""
        if not self._teachers:
            raise ValueError("there are no teachers; name at least one")
        if (len(self._teachers) > 1) != (self.choose_by is not None):
            raise ValueError(
                f"there are {len(self._teachers)} teachers and choose_by is {self.choose_by!r}; several teachers need "
                "a group that chooses, one needs none"
            )
        if self.choose_by is not None:
            self._check_chooser(self.choose_by)
        for number, teacher in enumerate(self._teachers):
            misfit = misfit_of(teacher.spec, self.spec, tuple(f"env/obs/{name}" for name in teacher.actor_groups))
            if misfit is not None:
                raise ValueError(f"teachers[{number}] does not fit {self.spec.id}: {misfit}; name a run of this task")
            shapes = getattr(teacher, "feature_shapes", {})
            written = [block.writes for block in getattr(teacher, "blocks", ())]
            for name in self.latents:
                if name not in written or not hasattr(teacher, "answer"):
                    raise ValueError(
                        f"teachers[{number}] has no latent {name!r}{did_you_mean(name, written)}; its blocks write "
                        f"{written}"
                    )
                if shapes[name] != self._teachers[0].feature_shapes[name]:
                    raise ValueError(
                        f"the latent {name!r} of teachers[{number}] has another size than that of the first"
                    )

    def _check_chooser(self, name: str) -> None:
        if name not in self.spec.group_names:
            hint = did_you_mean(name, self.spec.group_names)
            raise ValueError(f"choose_by is {name!r}{hint}; {self.spec.id} has the groups {self.spec.group_names}")
        shape = self.spec.group(name).shape
        if shape not in ((1,), (len(self._teachers),)):
            raise ValueError(
                f"choose_by names {name!r} of shape {list(shape)}; it should hold the number of a teacher, "
                f"or one number for each of the {len(self._teachers)}"
            )


class _Said(NamedTuple):
    """What one teacher says in a step."""

    action: Tensor
    params: Tensor
    latents: dict[str, Tensor]
    state: Tensor | None


def _ask(teacher: Any, obs: Observation, state: Tensor | None, spec: EnvSpec) -> _Said:
    seen = {name: obs[name] for name in teacher.actor_groups}
    if hasattr(teacher, "answer"):
        found = teacher.answer(seen, state)
        return _Said(teacher.head.action(teacher.head.mode(found.params)), found.params, found.written, found.state)
    action, state = teacher.act(seen, state, stochastic=False)
    return _Said(action.to(spec.action.dtype), action, {}, state)


def _pick(values: Sequence[Tensor], chosen: Tensor | None) -> Tensor:
    """Of the answers `[B, ...]` of several teachers that of the one that is `chosen` `[B]` in each row."""
    if chosen is None:
        return values[0]
    return torch.stack(list(values))[chosen, torch.arange(len(chosen), device=chosen.device)]


def _returns(running: Tensor, reward: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
    """What each episode has earned up to each row `[T, B]`, and after the last one `[B]` (0 where it ended there)."""
    total = running + reward.cumsum(0)
    rows = torch.arange(len(done), device=done.device).unsqueeze(-1)
    last_end = torch.where(done, rows, -1).cummax(0).values  # the last end up to this row, -1 for none
    before = torch.cat((torch.full_like(last_end[:1], -1), last_end[:-1]))
    at_end = torch.where(before < 0, 0.0, total.gather(0, before.clamp(min=0)))
    earned = total - at_end
    return earned, torch.where(done[-1], 0.0, earned[-1])


def same_distribution(teacher: Any, policy: Any) -> bool:
    """Whether the parameters of both distributions can be compared."""
    if not (hasattr(teacher, "answer") and hasattr(policy, "head")):
        return False
    return type(teacher.head) is type(policy.head) and teacher.head.support() == policy.head.support()


def _frozen(teacher: Any, device: torch.device) -> Any:
    return teacher.to(device).eval().requires_grad_(False) if isinstance(teacher, nn.Module) else teacher


def _sha256(teacher: Any) -> str:
    """A fingerprint of all that a teacher knows, normalisers included; empty for a function."""
    state = teacher.state_dict() if isinstance(teacher, nn.Module) else {}
    return tensors_sha256({name: value.cpu() for name, value in state.items() if isinstance(value, Tensor)})
