"""Three levels of control, from nothing: skills without a task, then HSD-3 chooses which of them to use where.

    python examples/three_levels.py [FOLDER]

A toy robot first learns to bring its features to any goal (x, y, height, heading, and all combinations of them). These
skills are frozen. On a course with bars to duck under, HSD-3 then learns which features to control and where to bring
them, every five steps. Its picture, `three_levels.png` in FOLDER or here, shows which goal space was chosen where.
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import matplotlib as mpl
import numpy as np
import torch

from gaitway import LoadedRun, make_env, train
from gaitway.analysis.figures import COLOURS, STYLE, finish, new_figure
from gaitway.envs.toys.point_course import BAR

COURSE, EPISODES, BIN, SHOWN = "point/duck", 50, 0.25, 5
FAST = {"torch_threads": 1, "checkpoints.interval": 10**9, "evaluation.interval": 0, "quiet": True}


@torch.inference_mode()
def decisions(run: LoadedRun) -> tuple[np.ndarray, np.ndarray, float]:
    """Where the robot was, and on which goal space it decided there, over whole episodes; and the mean score."""
    policy, where, chosen, score = run.policy, [], [], torch.zeros(EPISODES)
    with make_env(COURSE, num_envs=EPISODES, purpose="evaluation") as env:
        obs, state = env.reset(seed=list(range(EPISODES))), policy.initial_state(EPISODES, "cpu")
        running = torch.ones(EPISODES, dtype=torch.bool)
        while bool(running.any()):
            decides = (state[:, 0] < 0.5) & running
            x = obs["goal_space"][decides, 0].clone()
            action, state = policy.act(obs, state, False)
            where.append(x), chosen.append(state[decides, 1])
            step = env.step(action)
            score += step.metrics["score"] * running
            ended = step.terminated | step.truncated
            running, state, obs = running & ~ended, state * ~ended[:, None], step.obs
    return torch.cat(where).numpy(), torch.cat(chosen).long().numpy(), float(score.mean())


@mpl.rc_context(STYLE)
def draw(run: LoadedRun, where: np.ndarray, chosen: np.ndarray, path: Path) -> None:
    """Shares of the goal spaces along the course."""
    interface = run.policy.interface
    edges = np.arange(0.0, max(where.max(), BIN) + BIN, BIN)
    place = np.clip(np.digitize(where, edges) - 1, 0, len(edges) - 2)
    total = np.maximum(np.bincount(place, minlength=len(edges) - 1), 1)
    most = [int(d) for d in np.argsort(-np.bincount(chosen, minlength=interface.num_subsets))[:SHOWN]]
    figure = new_figure(8.0, 3.4)
    axes, bottom = figure.add_subplot(), np.zeros(len(edges) - 1)
    for colour, space in zip([*COLOURS[:SHOWN], "#BBBBBB"], [*most, None], strict=False):
        is_it = np.isin(chosen, most, invert=True) if space is None else chosen == space
        share = np.bincount(place[is_it], minlength=len(edges) - 1) / total
        names = [] if space is None else [interface.space.names[int(f)] for f in interface.subsets[space].split(",")]
        axes.bar(edges[:-1], share, BIN, bottom, align="edge", color=colour, label=", ".join(names) or "others")
        bottom += share
    for bar in np.arange(BAR, edges[-1], BAR):
        axes.axvline(bar, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("x [m], bars dotted")
    axes.set_ylabel("share of the decisions")
    axes.legend(title="goal space", loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.margins(x=0)
    finish(figure, path=path)


def main(quick: bool = False, out: Path | None = None) -> None:
    place = Path(mkdtemp())
    steps = (8_000, 1_000) if quick else (200_000, 12_000)
    print(f"skills: {steps[0]:,} steps without a task")
    skills = train("point_pretrain", run_dir=str(place / "skills"), total_steps=steps[0], **FAST)
    print(f"HSD-3 on {COURSE}: {steps[1]:,} steps")
    keys = {"agent.skills": str(skills.path), "total_steps": steps[1], "run_dir": str(place / "hsd3")}
    run = train("point_hsd3", **keys, **FAST)
    where, chosen, score = decisions(run)
    counts = np.bincount(chosen, minlength=run.policy.num_spaces)
    print(
        f"score {score:.1f} of 19 on {EPISODES} seeds; decided on most: {run.policy.interface.subsets[counts.argmax()]}"
    )
    path = (out or Path()) / "three_levels.png"
    draw(run, where, chosen, path)
    print(path)


if __name__ == "__main__":
    named = [Path(each) for each in sys.argv[1:] if each != "--quick"]
    main("--quick" in sys.argv, named[0] if named else None)
