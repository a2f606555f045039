"""The whole PPO loop on a GPU: thousands of cart-poles in tensor operations, ours against rsl_rl's runner.

    python benchmarks/gpu_ppo_loop.py --out benchmarks/results/gpu_ppo_loop.json

Both runners drive the same environment (benchmarks/_tensor_cartpole.py, its step recorded as a CUDA graph for both) and
train the same networks (512-256-128 ELU, 24 steps, 5 passes of 4 minibatches). Figures are environment steps a second
of the complete loop: acting, simulation, learning, and the bookkeeping each runner does by default (rsl_rl without a
log folder, ours with its finite checks and episode statistics; ours once more without finite checks and rsl_rl without
its checks for NaN).
"""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import Any

import torch
from _gpu import Phases, Session, Stopwatch, modes, options, precision, precisions, standard_pairs
from _rounds import Case
from _tensor_cartpole import TensorCartPole

from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.execution import Execution, ExecutionConfig
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

STEPS, HIDDEN = 24, (512, 256, 128)


def environment(envs: int, device: str) -> TensorCartPole:
    config = ExecutionConfig("eager" if device == "cpu" else "captured", "fp32")
    return TensorCartPole(envs, device=device, execution=Execution(config, device))


class Ours:
    def __init__(
        self, envs: int, hidden: tuple[int, ...], device: str, mode: str, kind: str, iterations: int, checks: bool
    ) -> None:
        env = environment(envs, device)
        networks = ActorCriticConfig(
            actor_hidden=hidden, critic_hidden=hidden, activation="elu", normalise_observations=False
        )
        policy = ActorCritic(env.spec, networks, torch.Generator().manual_seed(0)).to(device)
        config = PPOConfig(
            rollout_steps=STEPS, learning_rate=1e-3, schedule="adaptive", value_coef=1.0, value_clip=0.2,
            entropy_coef=0.01, max_grad_norm=1.0,
        )  # fmt: skip
        execution = Execution(ExecutionConfig(mode, kind), device)  # type: ignore[arg-type]
        algorithm = PPO(policy, config, num_envs=envs, execution=execution)
        self.runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**12, finite_checks=checks))
        self.steps, self.watch = envs * STEPS * iterations, Stopwatch(device)

    def __call__(self) -> Phases:
        self.watch.start()
        self.runner.learn(self.steps)
        return {"steps/s": 1e3 * self.steps / self.watch.lap()}


class RslRl:
    def __init__(
        self,
        envs: int,
        hidden: tuple[int, ...],
        device: str,
        kind: str | None,
        iterations: int,
        compile_mode: str | None = None,
        checks: bool = True,
    ) -> None:
        from rsl_rl.runners import OnPolicyRunner as Runner

        network = {"class_name": "MLPModel", "hidden_dims": list(hidden), "activation": "elu"}
        config: dict[str, Any] = {
            "algorithm": {"class_name": "PPO"},
            "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution"}},
            "critic": dict(network),
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "num_steps_per_env": STEPS,
            "save_interval": 10**9,
            "torch_compile_mode": compile_mode,
            "check_for_nan": checks,
        }
        with contextlib.redirect_stdout(sys.stderr):
            self.runner = Runner(rsl_environment(environment(envs, device)), config, None, device)
        self.kind, self.iterations = kind, iterations
        self.steps, self.watch = envs * STEPS * iterations, Stopwatch(device)

    def __call__(self) -> Phases:
        with precision(self.kind), contextlib.redirect_stdout(sys.stderr):
            self.watch.start()
            self.runner.learn(self.iterations)
            return {"steps/s": 1e3 * self.steps / self.watch.lap()}


def rsl_environment(env: TensorCartPole) -> Any:
    """The same environment as rsl_rl wants it."""
    from rsl_rl.env import VecEnv
    from tensordict import TensorDict

    class Adapter(VecEnv):
        num_envs, num_actions, device = env.num_envs, 1, str(env.device)
        max_episode_length, episode_length_buf = env.spec.max_episode_steps, env.age

        def __init__(self) -> None:
            self.cfg: dict[str, object] = {}
            self.obs = self._wrap(env.reset(0)["policy"])

        def get_observations(self) -> TensorDict:
            return self.obs

        def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
            result = env.step(actions)
            self.obs = self._wrap(result.obs["policy"])
            return self.obs, result.reward, result.terminated | result.truncated, {"time_outs": result.truncated}

        def _wrap(self, obs: torch.Tensor) -> TensorDict:
            return TensorDict({"policy": obs}, batch_size=[env.num_envs], device=env.device)

    return Adapter()


def check_environment(session: Session, envs: int) -> None:
    """Recorded and plain steps of the environment must give the same trajectories, resets included."""
    device = session.device
    actions = 2.0 * torch.rand(40, envs, 1, generator=torch.Generator().manual_seed(1)).to(device) - 1.0
    seen = []
    for env in (environment(envs, device), TensorCartPole(envs, device=device)):
        env.set_elapsed(torch.arange(envs, device=device) % env.spec.max_episode_steps)
        rows = [env.step(action) for action in actions]
        seen.append(torch.cat([rows[-1].obs["policy"].flatten(), rows[-1].reward, rows[-2].final_obs["policy"][0]]))
    session.gate("recorded environment against the plain one", seen[0], seen[1], 1e-5)


def measure(session: Session, envs: int) -> None:
    options, device = session.options, session.device
    hidden = (32, 16) if options.quick else HIDDEN
    iterations = 2 if options.quick else 10
    with session.errors(f"environment {envs}"):
        check_environment(session, envs)
    makers: dict[str, Any] = {}
    for kind in precisions(device):
        makers[f"rsl_rl {kind}"] = partial(RslRl, envs, hidden, device, kind, iterations)
    for mode, kind in modes(device, options.quick):
        if device == "cpu" or mode == "captured" or kind == "tf32":
            makers[f"gaitway {mode} {kind}"] = partial(Ours, envs, hidden, device, mode, kind, iterations, True)
    best = ("captured", "tf32") if device != "cpu" else ("eager", "fp32")
    makers[f"gaitway unchecked {best[0]} {best[1]}"] = partial(Ours, envs, hidden, device, *best, iterations, False)
    for kind in precisions(device):
        makers[f"rsl_rl compiled, unchecked {kind}"] = partial(
            RslRl, envs, hidden, device, kind, iterations, "default", False
        )
    raw = session.race(session.enter(makers, f"{envs}: "), 1, f"{envs}: ").get("steps/s", {})
    case = Case(f"gpu_ppo_loop: {envs} instances", "steps/s", raw)
    recommended = f"gaitway {best[0]} {best[1]}"
    pairs = standard_pairs(case, "rsl_rl fp32", recommended)
    session.add(Case(case.name, case.unit, raw, pairs))


def main() -> None:
    found = options(__doc__)
    session = Session("gpu_ppo_loop", found, steps=STEPS, hidden=HIDDEN)
    sizes = (64,) if found.quick else (4096, 16384)
    session.stages = len(sizes)
    for envs in sizes:
        with session.errors(f"{envs} instances"):
            measure(session, envs)
    session.finish()


if __name__ == "__main__":
    main()
