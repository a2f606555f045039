"""Evolution: search in the space of parameters, with nothing but the returns of whole episodes.

Both algorithms *ask* for individuals, parameter vectors [n, P], and are *told* their fitness [n]:

- CEM, the cross-entropy method (Rubinstein 1999; Mannor et al. 2003 for policies): individuals are drawn from a
  Gaussian with a diagonal covariance, which is fitted anew to the best of them, the elites. Extra noise that fades
  keeps it from narrowing too soon (Szita and Lőrincz 2006).
- ES, an evolution strategy (Salimans et al. 2017): individuals are mirrored pairs around a centre, which moves along
  the gradient that their ranks estimate, `1 / (n sigma) sum_i rank_i noise_i`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig
from gaitway.algorithms.engine import copied_state
from gaitway.core.config import configuration
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, NotNegative, Positive, PositiveShare, WholeNumber
from gaitway.core.seeding import restore_stream, stream
from gaitway.nn.parameters import parameters_to_vector, vector_to_parameters


@configuration
class EvolvedActorConfig(ActorCriticConfig):
    """Networks of actor and critic; only the actor evolves."""

    normalise_observations: bool = False
    """Refused: evolution gathers no statistics of observations."""


@configuration
class EvolutionConfig:
    """What both share."""

    population: Count = 32
    """Individuals per generation."""
    episodes: Count = 4
    """Episodes that make the fitness of an individual: the mean of their returns."""
    processes: WholeNumber = 0
    """Processes that play them; 0 plays here. Results do not depend on it."""
    workers: Literal["processes", "ray"] = "processes"
    """Where these are: on this machine, or on a Ray cluster."""
    max_episode_steps: Count = 10_000
    """Episodes longer than this are cut, for tasks without a time limit."""


@configuration
class CEMConfig(EvolutionConfig):
    """The cross-entropy method: fit a Gaussian over parameters to the best of its samples."""

    name: Literal["cem"] = "cem"
    elites: PositiveShare = 0.25
    """Share of the population that the next Gaussian is fitted to."""
    initial_std: Positive = 1.0
    """Standard deviation of every parameter at the start."""
    extra_std: NotNegative = 0.25
    """Added to the deviations in quadrature, fading over `fade` generations: keeps the search from ending too soon."""
    fade: Count = 30


@configuration
class ESConfig(EvolutionConfig):
    """An evolution strategy: climb the gradient that mirrored pairs of perturbed parameters estimate."""

    name: Literal["es"] = "es"
    sigma: Positive = 0.1
    """Standard deviation of the perturbations."""
    learning_rate: Positive = 0.05
    weight_decay: NotNegative = 0.0

    def __post_init__(self) -> None:
        if self.population % 2:
            raise ValueError(f"population is {self.population}; individuals come in pairs, use an even number")


class Evolution:
    """The part both share: which parameters evolve, and where they stand. A leaf class writes `ask` and `tell`."""

    config: EvolutionConfig
    trains_in_ranks = False

    def __init__(
        self,
        policy: ActorCritic,
        config: EvolutionConfig,
        *,
        num_envs: int,
        seed: int = 0,
        execution: Execution | None = None,
    ) -> None:
        if policy.config.normalise_observations:
            raise ValueError(
                "evolution gathers no statistics of observations; use agent.normalise_observations=false, and an "
                "environment whose observations are of order one"
            )
        self.policy, self.config, self.num_envs = policy, config, num_envs
        self.execution = execution or Execution(device="cpu")
        self.generator = stream(seed, type(self).__name__.lower())
        self.centre = parameters_to_vector(evolved(policy)).detach().cpu().double()
        """Where the search stands, float64 [P]: the policy that is evaluated and kept."""

    def ask(self) -> Tensor:
        """The individuals of the next generation, float32 [n, P]."""
        raise TypeError(f"{type(self).__name__} does not implement ask")

    def tell(self, fitness: Tensor) -> dict[str, Tensor]:
        """Learn from the fitness [n] of the individuals of the last `ask`, in their order; returns metrics."""
        raise TypeError(f"{type(self).__name__} does not implement tell")

    def flat_parameters(self) -> list[Tensor]:
        """All that is learnt, as flat tensors."""
        return [self.centre]

    def state_dict(self) -> dict[str, Any]:
        policy = copied_state(self.policy)
        return {"policy": policy, "centre": self.centre.clone(), "stream": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        restore_stream(self.generator, state["stream"])
        self._move(state["centre"].clone())

    def _move(self, centre: Tensor) -> None:
        self.centre = centre
        vector_to_parameters(centre.float(), evolved(self.policy))

    def _noise(self, count: int) -> Tensor:
        return torch.randn(count, len(self.centre), generator=self.generator, dtype=torch.float64)

    def _checked(self, fitness: Tensor) -> Tensor:
        """The fitness as float64 [n], one finite number for each individual: NaN would win every comparison."""
        if fitness.shape != (self.config.population,):
            raise ValueError(
                f"fitness is {list(fitness.shape)}; use [{self.config.population}], a number for each individual"
            )
        bad = (~torch.isfinite(fitness)).nonzero().flatten().tolist()
        if bad:
            raise ValueError(
                f"the fitness of individual {bad[0]} is {float(fitness[bad[0]])}; give finite numbers, a low one to "
                "individuals that failed"
            )
        return fitness.double()


class CEM(Evolution):
    """Cross-entropy method."""

    config: CEMConfig

    def __init__(self, policy: ActorCritic, config: CEMConfig | None = None, **options: Any) -> None:
        super().__init__(policy, config or CEMConfig(), **options)
        self.std = torch.full_like(self.centre, self.config.initial_std)
        self.generation = 0
        self._asked = torch.zeros(0, len(self.centre), dtype=torch.float64)

    def ask(self) -> Tensor:
        self._asked = self.centre + self.std * self._noise(self.config.population)
        return self._asked.float()

    def tell(self, fitness: Tensor) -> dict[str, Tensor]:
        config, fitness = self.config, self._checked(fitness)
        count = max(1, round(config.elites * len(fitness)))
        elites = self._asked[fitness.argsort(descending=True, stable=True)[:count]]
        extra = config.extra_std * max(0.0, 1.0 - self.generation / config.fade)
        self.std = (elites.var(0, correction=0) + extra**2).sqrt()
        self._move(elites.mean(0))
        self.generation += 1
        return {"std": self.std.mean(), "elite_return": fitness.topk(count).values.mean()}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"std": self.std.clone(), "generation": self.generation}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.std, self.generation = state["std"].clone(), state["generation"]


class ES(Evolution):
    """Evolution strategy."""

    config: ESConfig

    def __init__(self, policy: ActorCritic, config: ESConfig | None = None, **options: Any) -> None:
        super().__init__(policy, config or ESConfig(), **options)
        self._pairs = torch.zeros(0, len(self.centre), dtype=torch.float64)
        self._optimiser = torch.optim.Adam([torch.zeros_like(self.centre)], self.config.learning_rate)

    def ask(self) -> Tensor:
        self._pairs = self._noise(self.config.population // 2)
        shifts = self.config.sigma * torch.cat((self._pairs, -self._pairs))
        return (self.centre + shifts).float()

    def tell(self, fitness: Tensor) -> dict[str, Tensor]:
        rank = centred_ranks(self._checked(fitness))
        forth, back = rank.chunk(2)
        gradient = (forth - back) @ self._pairs / (len(rank) * self.config.sigma)
        (parameter,) = self._optimiser.param_groups[0]["params"]
        parameter.copy_(self.centre)
        parameter.grad = self.config.weight_decay * self.centre - gradient
        self._optimiser.step()
        self._move(parameter.clone())
        return {"gradient_norm": gradient.norm()}

    def state_dict(self) -> dict[str, Any]:
        (held,) = self._optimiser.state.values() or ({},)
        return super().state_dict() | {"optimiser": {name: value.clone() for name, value in held.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        (parameter,) = self._optimiser.param_groups[0]["params"]
        self._optimiser.state[parameter] = {name: value.clone() for name, value in state["optimiser"].items()}


def centred_ranks(fitness: Tensor) -> Tensor:
    """Ranks spread evenly over -1/2 to 1/2, worst to best, [n]: how much better does not count, only that it is. Equals
    share the mean of their ranks."""
    below = (fitness[:, None] > fitness).sum(1)
    equal = (fitness[:, None] == fitness).sum(1)
    return (below + 0.5 * (equal - 1)).double() / max(len(fitness) - 1, 1) - 0.5


def evolved(policy: ActorCritic) -> list[Tensor]:
    """The parameters that evolve: the actor's, and those of its blocks."""
    return [parameter.data for module in (policy.actor, policy.blocks) for parameter in module.parameters()]
