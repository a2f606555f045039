"""A run that is being trained, and the newest of its policies: what `gaitway collect --follow` lets play."""

from __future__ import annotations

import logging
from pathlib import Path

from gaitway.cli.build import LoadedPolicy, load_policy
from gaitway.cli.open_run import open_run
from gaitway.core.files import StateFileError
from gaitway.core.schedules import Now, ShareCoefficient, value_at
from gaitway.envs.spec import EnvSpec
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.collect import Taught

log = logging.getLogger("gaitway")


class FollowedRun:
    """Lets the newest checkpoint of the run at `path` play beside the teacher of `taught`.

    A call looks for a newer one, and is True once the run has reached its total steps. As long as there is no
    checkpoint, the teacher plays alone. `share` is the share of episodes that the teacher drives, at the iteration of
    the checkpoint.
    """

    def __init__(
        self, path: str | Path, taught: Taught, spec: EnvSpec, stochastic: bool = False, share: ShareCoefficient = 0.0
    ) -> None:
        self.path, self.taught, self.spec, self.stochastic, self.share = Path(path), taught, spec, stochastic, share
        self.steps = -1
        """Environment steps of the checkpoint that plays, -1 before the first."""
        self._loaded: LoadedPolicy | None = None
        self._total = 0
        if not self._has_begun:
            log.warning("there is no run at %s yet; until it has a checkpoint, the teacher plays alone", self.path)

    @property
    def _has_begun(self) -> bool:
        return (self.path / "contract.json").is_file()

    def __call__(self) -> bool:
        if self._has_begun:
            try:
                self._look()
            except (StateFileError, FileNotFoundError) as error:  # the checkpoint was replaced while it was read
                log.debug("%s is not read now: %s", self.path, error)
        return self._loaded is not None and self.steps >= self._total

    def _look(self) -> None:
        folder, config = open_run(str(self.path), str(self.taught.generator.device))
        checkpoints, self._total = Checkpoints(folder.checkpoints, folder.run_id), config.total_steps
        if not checkpoints.steps() or checkpoints.steps_of("last") <= self.steps:
            return
        if self._loaded is None:
            loaded = load_policy(folder, config, self.spec, "last")
            self.taught.student = loaded.inference(self.stochastic, self.taught.generator)
            self.taught.student.reset()
            self._loaded = loaded
        state, self.steps = checkpoints.load("last")
        # into the policy that plays, which remembers the episodes under way
        self._loaded.policy.load_state_dict(state["algorithm"]["policy"])
        self._loaded.cast.load_state_dict(state.get("cast", {}))
        self.taught.share = value_at(self.share, Now(state["iteration"], self.steps))
        log.info("%s: the policy of step %d plays", self.path, self.steps)
