"""One run in its folder: from the step where it stands to its end, and what is said when it is over."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaitway.cli.build import Runner, build_runner
from gaitway.cli.config_file import change_value
from gaitway.cli.console import console
from gaitway.cli.init_from import init_from
from gaitway.cli.train_config import TrainConfig
from gaitway.core.files import StateFileError
from gaitway.core.ranks import RankLostError, here
from gaitway.core.results import told
from gaitway.core.signals import EXIT_CODES, EXIT_INTERRUPT, Interrupted
from gaitway.envs.vec_env import VecEnv
from gaitway.processes.workers import RemoteError
from gaitway.runners.checkpoint import Checkpoints
from gaitway.runners.code_archive import archive_code
from gaitway.runners.distributed import connect
from gaitway.runners.judge import Trial
from gaitway.runners.logger import Logger, setup_log
from gaitway.runners.progress import Progress
from gaitway.runners.run_folder import RunFolder

log = logging.getLogger("gaitway")


@dataclass(frozen=True)
class Plan:
    """From where to where a run is trained."""

    checkpoint: str | None = None
    """Which one to go on from; None begins anew."""
    until: int | None = None
    """Environment steps to train to; None: the run's total_steps."""
    fresh_replay: bool = False
    warnings: tuple[str, ...] = ()
    """What is said before the first step."""
    trial: Trial | None = None
    """What evaluations are reported to, and who may end the run for them."""


def train_in(config: TrainConfig, folder: RunFolder, env: VecEnv, quiet: bool, plan: Plan) -> int:
    """Train in a folder that this process, or the first of those that train together, holds."""
    ranks, sinks = here(), config.logging
    connect(config.device)
    if ranks.is_first:
        setup_log(folder.log, config.log_level)
        logger = Logger(
            folder.path, media=sinks.media, tensorboard=sinks.tensorboard, wandb=sinks.wandb, compress=sinks.compress
        )
    else:
        log.setLevel(logging.ERROR)  # the first one speaks for all
        logger = Logger(None)
    progress = Progress(plan.until or config.total_steps, quiet=quiet or not ranks.is_first, title=config.env.id)
    try:
        runner = build_runner(config, folder, env, progress=progress, logger=logger)
        if plan.checkpoint is None:
            log.info("training %s in %s, seed %d, from step 0", config.env.id, folder.path, config.seed)
            beginning = init_from(config, runner.algorithm)
            if beginning is not None:
                log.info("it %s", beginning)
            for sentence in plan.warnings:
                log.warning("%s", sentence)
            logger.truncate(0)
            if ranks.is_first:
                folder.write_contract(runner.env.spec.to_dict())
                archive_code(folder, config.repositories, sinks.code)
        else:
            options = {"fresh_replay": True} if plan.fresh_replay else {}
            steps = runner.resume(plan.checkpoint, **options)
            log.info("going on from step %d of %s%s", steps, folder.path, " with an empty replay" * plan.fresh_replay)
        if ranks.is_first:
            change_value(folder.config, "total_steps", config.total_steps, "gaitway resume")
        runner.learn(None if plan.until is None else max(plan.until - runner.env_steps, 0), trial=plan.trial)
        log.info("stopped at step %d by %s", runner.env_steps, runner.stopped_by or "the plan")
        if not ranks.is_first:
            runner.close()
            return EXIT_CODES.get(runner.stopped_by or "", 0)
        return _finish(runner, folder, logger)
    except KeyboardInterrupt as error:
        code = error.exit_code if isinstance(error, Interrupted) else EXIT_INTERRUPT
        logger.close(code)
        log.info("interrupted")
        if not folder.has_trained:
            raise
        print(
            f"gaitway: interrupted; `gaitway resume {folder.shown}` goes on from the last checkpoint", file=sys.stderr
        )
        return code
    except Exception as error:
        if isinstance(error, RemoteError) and error.kind == "died" and folder.has_trained:
            error.args = (f"{error}; `gaitway resume {folder.shown}` goes on from the last checkpoint",)
        log.debug("%s", traceback.format_exc())
        if not ranks.is_alone and not isinstance(error, RankLostError):  # the others end with it and cannot say why
            print(f"gaitway: rank {ranks.rank} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        logger.close(exit_code=1)
        raise
    finally:
        logger.close()


def plot_run(path: Path) -> list[Path]:
    """The plots of a run, with what draws them, which a run that is killed or fails never needs."""
    from gaitway.analysis.plots import plot_run

    return plot_run(path)


def _finish(runner: Runner, folder: RunFolder, logger: Logger) -> int:
    code = EXIT_CODES.get(runner.stopped_by or "", 0)
    logger.close(code)
    runner.close()
    missing = runner.missing()
    try:
        plot_run(folder.path)
    except (OSError, StateFileError) as error:
        log.warning("no plots: %s", error)
        missing.append("plots/")
    except Exception as error:  # whatever is wrong with a picture, the run is there
        log.warning("no plots: %s", error)
        log.debug("%s", traceback.format_exc())
    say(_report(runner.summary(), folder.shown))
    if missing:
        raise StateFileError(f"{folder.path} lacks {', '.join(missing)}: not written; {_remedy(runner, folder)}")
    return code


def _remedy(runner: Runner, folder: RunFolder) -> str:
    """What to do about a run of which something could not be written."""
    steps = Checkpoints(folder.checkpoints, folder.run_id).steps()
    if runner.is_saved:
        return f"its last checkpoint, of step {runner.env_steps}, is whole; make room before you go on with it"
    if not steps:
        return "there is no checkpoint to go on from, so make room and train again"
    return f"make room, and `gaitway resume {folder.shown}` goes on from the last whole checkpoint, of step {steps[-1]}"


def say(text: str) -> None:
    """Print beside a training, which goes on when nobody listens any more."""
    with contextlib.suppress(OSError):
        console.print(text, soft_wrap=True, markup=False)
        console.file.flush()


def _report(summary: dict[str, Any], path: str) -> str:
    """A few lines that say what came out and what to try next."""
    lines = [f"\n{summary['steps']:,} steps in {summary['seconds']:.0f} s ({summary['steps_per_second']:,.0f} steps/s)"]
    for which in ("best", "last"):
        result = {k: v for k, v in summary[which].items() if k != "steps"}
        if result:
            lines.append(f"{which:>5} (step {summary[which]['steps']:,}): {told(result, gap='  ')}")
    if summary["stopped_by"]:
        lines.append(f"stopped by {summary['stopped_by']}")
    unfinished = str(summary["stopped_by"]).startswith("SIG")
    lines += [
        "",
        "next:",
        f"  gaitway eval {path} --episodes 20",
        f"  gaitway play {path}",
        f"  gaitway plot {path}",
        f"  gaitway resume {path}" + ("" if unfinished else " more=1e6"),
    ]
    return "\n".join(lines)
