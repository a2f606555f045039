"""Policies, made-up steps and learners that the tests of soft actor-critic share."""

import torch

from gaitway.agents.observations import Observations
from gaitway.agents.soft_actor_critic import SoftActorCritic, SoftActorCriticConfig
from gaitway.algorithms.direct_soft_steps import DirectSteps
from gaitway.algorithms.sac import SAC, SACConfig
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.spec import ActionSpec, Component, EnvSpec, ObservationGroup

LEGS = ActionSpec("continuous", ("hip", "knee"), (-1.0, 0.0), (1.0, 4.0))
CHOICE = ActionSpec("discrete", ("push",), choices=(3,), start=(2,))
ASYMMETRIC = {"groups": {"policy": 3, "critic": 4, "extra": 2}, "observations": Observations(actor=("extra", "policy"))}
SMALL = SACConfig(batch_size=16, replay_size=400, actor_learning_rate=1e-3, critic_learning_rate=2e-3, tau=0.05)


def spec(action=LEGS, **groups):
    made = tuple(ObservationGroup(name, (Component("x", size),), (size,)) for name, size in groups.items())
    return EnvSpec("test", made, action, control_dt=0.02, max_episode_steps=10)


def make(action=LEGS, config=SMALL, groups=None, seed=0, num_envs=4, **options):
    networks = SoftActorCriticConfig(**{"actor_hidden": (12, 12), "critic_hidden": (12, 12)} | options)
    policy = SoftActorCritic(spec(action, **(groups or {"policy": 3})), networks, stream(seed, "parameters"))
    return SAC(policy, config, num_envs=num_envs, seed=seed)


def steps_of(sac, steps=30, seed=0):
    """Made-up steps, every tenth of which ends an episode, by turns terminated and truncated."""
    generator, envs, made = stream(seed, "steps"), sac.num_envs, sac.policy.spec
    ws: dict[str, torch.Tensor] = {}
    for name in sac.policy.all_groups:
        shape = made.group(name).shape
        ws[f"env/obs/{name}"] = torch.randn(steps + 1, envs, *shape, generator=generator)
        ws[f"env/final_obs/{name}"] = torch.randn(steps, envs, *shape, generator=generator)
    obs = {"policy": torch.zeros(steps * envs, 1)} | {g: torch.zeros(steps * envs, 1) for g in sac.policy.all_groups}
    action = sac.policy.uniform_action(obs, generator)
    ws["action"] = action.view(steps, envs, *action.shape[1:])
    ws["env/reward"] = torch.randn(steps, envs, generator=generator)
    ends = torch.rand(steps, envs, generator=generator) < 0.2
    kind = torch.rand(steps, envs, generator=generator) < 0.5
    ws["env/terminated"], ws["env/truncated"] = ends & kind, ends & ~kind
    return Workspace.packed(ws)


def filled(sac, **options):
    replay = sac.make_replay()
    replay.add(steps_of(sac, **options))
    return replay


def unit_transitions(sac, replay, index):
    """What an update reads of the transitions `index`."""
    sac._attach(replay)
    batch = {name: value.clone() for name, value in sac.transitions(index).items()}
    return batch | {"action": sac.steps.action(batch["action"])}


def without_direct(monkeypatch):
    monkeypatch.setattr(DirectSteps, "of", classmethod(lambda cls, policy: None))


def parameters(sac):
    return torch.cat([p.detach().clone() for p in sac.flat_parameters()])
