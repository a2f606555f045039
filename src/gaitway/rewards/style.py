"""Style: a policy earns reward for moving as clips do (adversarial motion priors, Peng et al. 2021).

A discriminator D learns to tell pairs of motion features (s, s') of the policy from those of the clips, and the policy
earns what makes them look alike; the equations are those of `functional.adversarial`. Pairs are `env/obs/<group>` of a
step and of the observation that it led to, so none spans a reset. One normaliser sees raw features of both sides;
the penalty is on the gradient by what D reads, which is normalised.

    reward/style = scale * r(D(s, s')),   with `times_dt` times the seconds of a step

The reward of a rollout comes from D as it was before it learnt from that rollout. Where a step terminated it is 0: a
replay does not keep what such a step led to. Where a simulator does not tell final observations
(`EnvSpec.final_observations`), steps that end an episode are no pairs: D never sees them, and their reward is 0.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gaitway.algorithms.algorithm import Batch, Coefficient, Now
from gaitway.algorithms.engine import Engine
from gaitway.core.execution import Execution
from gaitway.core.ranges import Count, NotNegative, Positive, WholeNumber
from gaitway.core.ranks import own_stream
from gaitway.core.seeding import named_sequence, restore_stream, stream
from gaitway.core.transitions import final_observations
from gaitway.core.workspace import Workspace
from gaitway.data.replay import Replay
from gaitway.envs.motions.features import MotionFeatures
from gaitway.envs.motions.frames import MotionError
from gaitway.envs.motions.library import MotionLibrary
from gaitway.envs.spec import EnvSpec
from gaitway.functional.adversarial import FORMS, gradient_penalty, saturation
from gaitway.nn.discriminator import Activation, Discriminator
from gaitway.nn.normalise import RunningNorm
from gaitway.rewards.source import When

CLIP = 10.0
EXPERT, CURRENT, OLD = range(3)
"""Whose pairs the rows of a batch are: the clips', the rollout's, those of former rollouts."""


class StyleReward(nn.Module):
    """What a discriminator between clips and policy says of each step."""

    name = "style"
    when: When = "drawn"

    def __init__(
        self,
        spec: EnvSpec,
        motion: str | tuple[str, ...],
        weight: Coefficient = 1.0,
        form: Literal["least_squares", "hinge", "wasserstein"] = "least_squares",
        scale: Positive = 1.0,
        times_dt: bool = False,
        group: str = "amp",
        hidden: tuple[Count, ...] = (512, 256),
        activation: Activation = "relu",
        learning_rate: Positive = 1e-4,
        max_grad_norm: Positive | None = 1.0,
        gradient_penalty: NotNegative = 5.0,
        trunk_decay: NotNegative = 1e-3,
        head_decay: NotNegative = 1e-1,
        updates: Count = 20,
        batch_size: Count = 512,
        replay: WholeNumber = 100_000,
        expert_pairs: Count = 65_536,
        between_frames: bool = True,
        seed: int = 0,
        device: torch.device | str = "cpu",
        execution: Execution | None = None,
    ) -> None:
        """`motion` names clips, `group` the features; after every rollout follow `updates` gradient steps on
        `batch_size` pairs each of the clips, of the rollout and of the last `replay` pairs. Without `between_frames`
        the clips' pairs are frames as they are, instead of such at any time, interpolated."""
        super().__init__()
        features = MotionFeatures.of_spec(spec, group)
        library = MotionLibrary.load(motion)
        library.need_fit(features.robot, spec.control_dt, spec.id)
        if features.size != spec.group(group).shape[0]:
            raise MotionError(
                f"the group {group!r} of {spec.id} has {spec.group(group).shape[0]} numbers and its features "
                f"{features.size}; let the wrapper `features` write it"
            )
        self.weight, self.updates, self.form = weight, updates, FORMS[form]
        self.scale = scale * (spec.control_dt if times_dt else 1.0)
        self.penalty, self.decays = gradient_penalty, (trunk_decay, head_decay)
        self.motions = library.fingerprint
        self._ends_unknown = spec.final_observations != "exact"
        ends = ("env/terminated", "env/truncated") if self._ends_unknown else ("env/terminated",)
        self.reads: tuple[str, ...] = (f"env/obs/{group}", *ends, *final_observations((group,)))
        generator = np.random.Generator(np.random.Philox(named_sequence(seed, "style clips")))
        expert = features.draw_pairs(library, generator, expert_pairs, spec.control_dt, between_frames)
        drawn = torch.stack([torch.from_numpy(each) for each in expert], 1).float()
        self.register_buffer("expert", drawn, persistent=False)  # [N, 2, D], raw
        self.discriminator = Discriminator(2 * features.size, hidden, activation, stream(seed, "style parameters"))
        self.normaliser = RunningNorm((features.size,), eps=1e-4, clip=CLIP)
        self.to(device)
        self.generator = own_stream(seed, "style", device)
        self.replay = Replay(replay, device, generator=own_stream(seed, "style replay", device)) if replay else None
        execution = execution or Execution(device=device)
        self.engine = Engine(
            self.discriminator,
            self._loss,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            execution=execution,
        )
        self._batch = {
            "pairs": torch.zeros(3, batch_size, 2, features.size, device=device),
            "mix": torch.zeros(batch_size, 1, device=device),
        }
        self._learn = execution.program(lambda: self.engine.step(self._batch), "a step of the discriminator")

    expert: Tensor

    def annotate(self, ws: Workspace) -> None:
        score = self.discriminator(self._read(self._pairs(ws)))
        ended = (ws["env/done"] if self._ends_unknown else ws["env/terminated"])[: ws.T]
        ws["reward/style"] = torch.where(ended, 0.0, self.scale * self.form.reward(score))

    def update(self, ws: Workspace, now: Now) -> dict[str, Tensor]:
        with torch.no_grad():
            pairs = self._pairs(ws)
            rows = self._genuine(ws, pairs)
            both = torch.cat((rows, self._drawn(self.expert, len(rows))))
            self.normaliser.update(both)
            if self.replay is not None:
                self.replay.add_transitions({"pair": rows})
        for _ in range(self.updates):
            self._fill(rows)
            self._learn()
        metrics = {f"style/{name}": value for name, value in self.engine.read().items()}
        if self.form.bounded:
            metrics["style/saturation"] = saturation(ws["reward/style"] / self.scale)
        return metrics

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "engine": self.engine.state_dict(),
            "stream": self.generator.get_state(),
            "replay": {} if self.replay is None else self.replay.state_dict(),
            "motions": self.motions,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state["motions"] != self.motions:
            raise MotionError("the clips of style are not those of the stored state; put the former ones back")
        self.engine.load_state_dict(state["engine"])
        restore_stream(self.generator, state["stream"])
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
        self._learn.forget()

    def _pairs(self, ws: Workspace) -> Tensor:
        """The features of every step and of what it led to, raw: [T, B, 2, D]."""
        name = self.reads[0]
        return torch.stack((ws[name][: ws.T].float(), ws.following(name).float()), -2)

    def _genuine(self, ws: Workspace, pairs: Tensor) -> Tensor:
        """Those of `pairs` [T, B, 2, D] that were a step: [N, 2, D]."""
        if "env/valid" in ws:
            return pairs[ws["env/valid"]]
        return pairs[~ws["env/done"][: ws.T]] if self._ends_unknown else pairs.flatten(0, 1)

    def _read(self, pairs: Tensor) -> Tensor:
        """What D reads of raw pairs: [..., 2, D] -> [..., 2 D]."""
        return self.normaliser(pairs).flatten(-2)

    def _drawn(self, rows: Tensor, count: int) -> Tensor:
        index = torch.randint(len(rows), (count,), generator=self.generator, device=rows.device)
        return rows.index_select(0, index)

    @torch.no_grad()
    def _fill(self, rows: Tensor) -> None:
        """Draw the next batch into the memory that a recorded step reads."""
        batch = self._batch["pairs"]
        count = batch.shape[1]
        batch[EXPERT] = self._drawn(self.expert, count)
        batch[CURRENT] = self._drawn(rows, count)
        old = self._drawn(rows, count) if self.replay is None else self.replay.sample_transitions(count)["pair"]
        batch[OLD] = old
        if self.form.between:
            self._batch["mix"].uniform_(generator=self.generator)

    def _loss(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        form, network = self.form, self.discriminator
        read = self._read(batch["pairs"])  # [3, n, 2 D]
        score, hidden = network.scores(read)
        expert, policy = score[EXPERT], score[CURRENT:]
        of_expert, of_policy = form.loss(expert, policy)
        if form.between:
            hidden = network.scores(torch.lerp(read[CURRENT], read[EXPERT], batch["mix"]))[1]
        else:
            hidden = [layer[EXPERT] for layer in hidden]
        penalty = gradient_penalty(network.gradient(hidden), form.slope)
        loss = of_expert + of_policy + self.penalty * penalty + network.decay(*self.decays)
        right = ((expert > 0).float().mean(), (score[CURRENT] < 0).float().mean())
        return loss, {
            "loss": loss.detach(),
            "loss_expert": of_expert.detach(),
            "loss_policy": of_policy.detach(),
            "penalty": penalty.detach(),
            "score_expert": expert.detach().mean(),
            "score_policy": score[CURRENT].detach().mean(),
            "accuracy_expert": right[0],
            "accuracy_policy": right[1],
        }
