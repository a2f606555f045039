"""`check_env`: steps an environment past episode ends and says in words where it breaks the contract of `VecEnv`.

    report = check_env(lambda num_envs, seed: MyEnv(num_envs, seed=seed))
    print(report)
    report.raise_if_broken()

Given a factory it also compares batch sizes and fresh environments; given one environment it says what it left out.
Everything is compared bit for bit, because the same seed and actions must give the same numbers.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from gaitway.core.user_code import UserCodeError, place_of, told
from gaitway.envs.check_rules import check_final_obs, check_lengths, check_reset_rows
from gaitway.envs.check_trace import (
    Findings,
    Trace,
    copied,
    equal_states,
    first_difference,
    flat,
    inspect_observation,
    inspect_step,
    inspect_tensor,
    not_plain,
    rebuilt,
    record,
    same,
)
from gaitway.envs.spec import EnvSpec
from gaitway.envs.vec_env import Observation, Step, VecEnv

EnvBuilder = Callable[[int, int], VecEnv]
"""(num_envs, seed) -> environment."""

BATCH, OTHER_BATCHES = 4, (1, 7)
SHORT = 300
"""Steps of the comparisons that need no more than one episode end."""


@dataclass
class Report:
    """What `check_env` found."""

    id: str
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def raise_if_broken(self) -> None:
        if self.problems:
            raise ValueError(str(self))

    def __str__(self) -> str:
        head = f"{self.id}: no problem found" if self.ok else f"{self.id}: {len(self.problems)} problem(s)"
        lines = [f"  - {sentence}" for sentence in self.problems]
        return "\n".join([head, *lines, *(f"  (not checked: {sentence})" for sentence in self.skipped)])


def check_env(env_or_factory: VecEnv | EnvBuilder | str, seed: int = 0, steps: int | None = None) -> Report:
    """Check an environment, or better a factory `(num_envs, seed) -> VecEnv` or an id of `make_env`.

    `steps` None passes the time limit.
    """
    builder: EnvBuilder | None = None
    if isinstance(env_or_factory, VecEnv):
        env = env_or_factory
    else:
        builder = _builder(env_or_factory)
        env = builder(BATCH, seed)
    audit = _Audit(env, builder, seed, steps or _default_steps(env.spec))
    try:
        audit.run()
    finally:
        audit.close()
    return audit.report


REPEATING = ("repeating a run", "seeding", "other batch sizes")
"""Checks that compare runs bit for bit."""


class _Audit:
    """The checks, in the order in which later ones rely on earlier ones."""

    def __init__(self, env: VecEnv, builder: EnvBuilder | None, seed: int, steps: int) -> None:
        self.env, self.builder, self.seed, self.steps = env, builder, seed, steps
        self.report = Report(env.spec.id)
        self.findings = Findings()
        self.built: list[VecEnv] = [env] if builder else []
        self.actions = _random_actions(env.spec, steps, max(env.num_envs, *OTHER_BATCHES)).to(env.device)
        self.trace: Trace

    def run(self) -> None:
        checks: list[tuple[str, Callable[[], None]]] = [
            ("reading the spec", self.check_spec),
            ("stepping", self.check_steps),
            ("what is written", self.check_written),
            ("episode ends", self.check_ends),
            ("repeating a run", self.check_repetition),
            ("seeding", self.check_seeds),
            ("other batch sizes", self.check_batch_sizes),
            ("storing the state", self.check_state),
            ("scenarios", self.check_scenario),
            ("episode ages", self.check_ages),
            ("wrong actions", self.check_actions),
        ]
        for name, check in checks:
            if name in REPEATING and self.env.spec.restores_state and not self.env.spec.exact_state:
                self.report.skipped.append(f"{name}: this simulator adds in any order, so no two runs are equal")
                continue
            try:
                check()
            except Exception as error:  # whatever a foreign environment raises belongs into the report
                said = str(error) if isinstance(error, UserCodeError) else told(error)
                what = f"{name}: {said}" if said else f"{name} raised {type(error).__name__}: {error}"
                self.findings.add(f"raised {name}", what)
            malformed = name in ("reading the spec", "stepping") and self.findings.sentences
            if malformed or "repeat" in self.findings.sentences:
                self.report.skipped.append(
                    f"everything that needs {'sound steps' if malformed else 'runs that repeat'}"
                )
                break
        self.report.problems = list(self.findings.sentences.values())

    def close(self) -> None:
        for env in self.built:
            env.close()

    def check_spec(self) -> None:
        spec = self.env.spec
        for label, names in (("group", spec.group_names), ("action", list(spec.action.names))):
            if len(set(names)) != len(names):
                self.findings.add(f"{label} names", f"{label} names are not unique: {names}")
        for group in spec.groups:
            names = [component.name for component in group.components]
            size = sum(component.size for component in group.components)
            if len(set(names)) != len(names):
                self.findings.add("component names", f"component names of group {group.name!r} are not unique: {names}")
            if group.is_vector and size != group.shape[0]:
                self.findings.add(
                    "components", f"group {group.name!r} has {group.shape[0]} numbers but components for {size}"
                )
        plain = json.loads(json.dumps(spec.to_dict()))
        if EnvSpec.from_dict(plain).to_dict()["groups"] != spec.to_dict()["groups"]:
            self.findings.add("spec", "the spec does not survive to_dict and from_dict")

    def check_steps(self) -> None:
        """Steps once through everything, looking at each step by itself and at what the next call does to it."""
        env = self.env
        kept: dict[str, Tensor] = {}
        obs = env.reset(self.seed)
        inspect_observation(obs, env.spec, env, "the observation of reset", self.findings)
        if self.findings.sentences:
            return
        kept = {f"obs/{name}": value for name, value in obs.items()}
        clones = copied(kept)
        for number, action in enumerate(self._actions(env)):
            given = action.clone()
            step = env.step(given)
            if not torch.equal(given, action):
                self.findings.add(
                    "in place", "step changed the action in place; it must leave the policy's tensor alone"
                )
            self._check_kept(kept, clones)
            inspect_step(step, env, f"step {number}", self.findings)
            self._check_sharing(step)
            if self.findings.sentences:
                return
            kept = flat(step)
            clones = copied(kept)

    def check_written(self) -> None:
        """Every reward, metric and component of an observation is written at some time by a native task."""
        never_written = getattr(self.env, "never_written", None)
        if never_written is not None:
            for what in never_written(self._actions(self.env)[:SHORT], self.seed):
                self.findings.add(f"unwritten {what}", f"{what} is never written; fill it in place, [:] = ...")

    def check_ends(self) -> None:
        env = self.env
        self.trace = trace = record(env, env.reset(self.seed), self._actions(env))
        if not trace.done.any():
            self.report.skipped.append(f"episode ends: none came in {self.steps} steps; pass a larger steps=")
        inspect_tensor(env.elapsed, (env.num_envs,), torch.int64, env, "elapsed", self.findings)
        if env.spec.final_observations != "exact":
            self.report.skipped.append(
                "final observations: the simulator tells none; in their place is the one before the last step"
            )
        valid = trace.rows.get("valid", torch.ones_like(trace.done))
        check_reset_rows(trace, valid, env.spec, self.findings)
        check_final_obs(trace, env.spec, self.findings)
        check_lengths(trace, valid, env.spec, self.findings)

    def check_repetition(self) -> None:
        again = record(self.env, self.env.reset(self.seed), self._actions(self.env))
        where = first_difference(self.trace, again)
        if where:
            self.findings.add("repeat", f"not deterministic: with the same seed and actions {where} differs")
        if self.builder is None:
            self.report.skipped.append("fresh environments and other batch sizes: pass a factory (num_envs, seed)")
            return
        fresh = self._build(self.env.num_envs, self.seed)
        where = first_difference(self.trace, record(fresh, self.trace.first, self._actions(fresh)[:SHORT]))
        if where:
            self.findings.add(
                "fresh", f"a new environment with seed {self.seed} and reset({self.seed}) differ in {where}"
            )

    def check_seeds(self) -> None:
        env, seeds = self.env, [self.seed, self.seed + 1, self.seed + 2]
        alike = self._actions(env)[:20, :1].expand(-1, env.num_envs, *env.spec.action.shape)
        runs = [record(env, env.reset(seed), alike) for seed in seeds]
        varied = any(not same(value, value[:1].expand_as(value)).all() for value in runs[0].first.values())
        following = record(env, env.reset(), alike)
        random = varied or first_difference(runs[0], following) is not None
        if random and not any(first_difference(runs[0], other) for other in runs[1:]):
            self.findings.add("seed", f"reset(seed) ignores the seed: {seeds} all gave the same run")
        equal = env.reset([self.seed] * env.num_envs)
        if any(not same(value, runs[0].first[name][:1].expand_as(value)).all() for name, value in equal.items()):
            self.findings.add(
                "seed list", "a list of equal seeds must start every instance like instance 0 of that integer seed"
            )
        if not _refuses(lambda: env.reset([self.seed] * (env.num_envs + 1))):
            self.findings.add("seed count", f"reset took {env.num_envs + 1} seeds for {env.num_envs} instances")

    def check_batch_sizes(self) -> None:
        if self.builder is None:
            return
        for size in OTHER_BATCHES:
            other = self._build(size, self.seed)
            run = record(other, other.reset(self.seed), self._actions(other)[:SHORT])
            where = first_difference(self.trace, run)
            if where:
                self.findings.add(
                    "batch",
                    f"results depend on the batch size: with {size} instead of {self.env.num_envs} instances {where}",
                )

    def check_state(self) -> None:
        """Stores the state shortly before an episode ends and right after it; each must continue bit for bit."""
        env = self.env
        ends = self.trace.done.any(1).nonzero()
        end = int(ends[0, 0]) if len(ends) else self.steps // 2
        moments = sorted({max(0, end - 5), min(end + 1, self.steps - 2)})
        obs, at = env.reset(self.seed), 0
        for moment in moments:
            for action in self._actions(env)[at:moment]:
                obs = env.step(action.clone()).obs
            at = moment
            obs = self._check_state_now(copied(obs), self._actions(env)[at : at + 20])

    def check_scenario(self) -> None:
        env = self.env
        first = copied(env.reset(self.seed))
        try:
            scenario = env.scenario()
        except ValueError:
            self.report.skipped.append("scenarios: the environment has none")
            return
        for name, value in scenario.items():
            if not isinstance(value, Tensor) or len(value) != env.num_envs:
                self.findings.add("scenario form", f"scenario field {name!r} must be a tensor with {env.num_envs} rows")
                return
        scenario = rebuilt(scenario)
        actions = self._actions(env)[:SHORT]
        run = record(env, first, actions)
        env.reset(self.seed + 1)
        started = env.load_scenario(scenario)
        if env.elapsed.any():
            self.findings.add("scenario age", "load_scenario must start episodes at elapsed step 0")
        where = first_difference(run, record(env, started, actions), until_end=True)
        if where:
            self.findings.add("scenario", f"load_scenario(scenario()) does not start the same episode: {where} differs")

    def check_ages(self) -> None:
        env, limit = self.env, self.env.spec.max_episode_steps
        env.reset(self.seed)
        if not limit:
            self.report.skipped.append("episode ages: the spec has no time limit")
            return
        ages = (torch.arange(env.num_envs, device=env.device) + limit - 1) % limit
        try:
            env.set_elapsed(ages)
        except ValueError:
            self.report.skipped.append("episode ages: the environment cannot set them")
            return
        if not torch.equal(env.elapsed, ages):
            self.findings.add("ages", f"after set_elapsed({ages.tolist()}) elapsed is {env.elapsed.tolist()}")
            return
        step = env.step(self._actions(env)[0].clone())
        if not bool((step.terminated | step.truncated)[0]):
            self.findings.add("ages limit", f"set_elapsed({limit - 1}) is not followed by a time-out in the next step")

    def check_actions(self) -> None:
        env, action = self.env, self._actions(self.env)[0]
        if env.spec.action.kind == "continuous":
            nan = action.clone()
            nan[0, 0] = float("nan")
            wrong = {"with NaN": nan, "with one row too many": torch.cat([action, action[:1]])}
            env.step(action * 1000.0)  # limits clip inside; what this raises is reported by the caller
        else:
            wrong = {"of floats": action.double(), "with one row too many": torch.cat([action, action[:1]])}
        for label, value in wrong.items():
            env.reset(self.seed)
            if not _refuses(lambda value=value: self._step_and_look(value)):  # type: ignore[misc]
                self.findings.add(f"accepts {label}", f"step accepted an action {label}; it must raise ValueError")

    def _step_and_look(self, action: Tensor) -> None:
        self.env.step(action)
        self.env.check_workers()

    def _check_kept(self, kept: dict[str, Tensor], clones: dict[str, Tensor]) -> None:
        for name, value in kept.items():
            if not same(value, clones[name]).all():
                self.findings.add(
                    "alias", f"{name} changed during the next call; returned tensors stay unchanged until the one after"
                )

    def _check_sharing(self, step: Step) -> None:
        done = step.terminated | step.truncated
        for name, value in step.obs.items():
            if bool(done.any()) and step.valid is None and value.data_ptr() == step.final_obs[name].data_ptr():
                self.findings.add(
                    "shared", f"obs and final_obs share the memory of group {name!r} where an episode ended"
                )

    def _check_state_now(self, obs: Observation, actions: Tensor) -> Observation:
        env = self.env
        state = env.state_dict()
        for sentence in not_plain(state):
            self.findings.add("plain", f"state_dict holds more than tensors, numbers, strings and lists: {sentence}")
            return obs
        kept = rebuilt(state)
        run = record(env, obs, actions)
        if not equal_states(state, kept):
            self.findings.add("state alias", "state_dict changed while the environment went on; it must hold copies")
        if not env.spec.exact_state:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says that episodes start anew, which we know
                restored = env.load_state_dict(kept)
            inspect_observation(restored, env.spec, env, "the observation of load_state_dict", self.findings)
            return restored
        targets = [env] if self.builder is None else [self._build(env.num_envs, self.seed + 1), env]
        for target in targets:
            where = first_difference(run, record(target, target.load_state_dict(rebuilt(kept)), actions))
            if where:
                self.findings.add("state", f"the state is not restorable: after load_state_dict {where} differs")
        return env.load_state_dict(kept)

    def _actions(self, env: VecEnv) -> Tensor:
        return self.actions[:, : env.num_envs]

    def _build(self, num_envs: int, seed: int) -> VecEnv:
        if self.builder is None:
            raise RuntimeError("only a factory can build environments")
        self.built.append(self.builder(num_envs, seed))
        return self.built[-1]


def first_problem(env: VecEnv) -> str | None:
    """What is wrong with the first observation and the first two steps, in a sentence; None if nothing."""
    findings = Findings()
    inspect_observation(env.reset(0), env.spec, env, "the observation of reset", findings)
    if findings.sentences:
        return f"{place_of(env, 'reset')}: {next(iter(findings.sentences.values()))}"
    for number, action in enumerate(_random_actions(env.spec, 2, env.num_envs).to(env.device)):
        step = env.step(action)
        if not isinstance(step, Step):
            return f"{place_of(env, 'step')} returned a {type(step).__name__}; it returns a gaitway.envs.vec_env.Step"
        inspect_step(step, env, f"step {number}", findings)
        if findings.sentences:
            return f"{place_of(env, 'step')}: {next(iter(findings.sentences.values()))}"
    return None


def _builder(factory: EnvBuilder | str) -> EnvBuilder:
    if isinstance(factory, str):
        from gaitway.envs.registry import make_env  # it imports every kind of environment; only an id needs that

        return partial(make_env, factory)
    if not callable(factory):
        raise TypeError(f"cannot check {factory!r}; pass an id, an environment or a factory (num_envs, seed) -> VecEnv")
    return factory


def _default_steps(spec: EnvSpec) -> int:
    limit = spec.max_episode_steps
    return 500 if not limit or limit > 2000 else max(limit + 20, 60)


def _random_actions(spec: EnvSpec, steps: int, num_envs: int) -> Tensor:
    """Actions `[T, B, ...]` within the limits, the same for an instance whatever the batch size."""
    generator = torch.Generator().manual_seed(0)
    action = spec.action
    shape = (steps, num_envs, len(action.names))
    if action.kind == "continuous":
        low = torch.nan_to_num(torch.tensor(action.low), neginf=-1.0).clamp(min=-1e3)
        high = torch.nan_to_num(torch.tensor(action.high), posinf=1.0).clamp(max=1e3)
        return low + (high - low) * torch.rand(shape, generator=generator)
    start = torch.tensor(action.start or (0,) * len(action.choices))
    chosen = (torch.rand(shape, generator=generator) * torch.tensor(action.choices)).long() + start
    return chosen.squeeze(-1) if action.kind == "discrete" else chosen


def _refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except ValueError:
        return True
    return False
