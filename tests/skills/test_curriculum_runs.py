"""The curriculum in runs of a few seconds: pairs of groups wait for reachability, and stay away without it."""

from __future__ import annotations

import json

import pytest
import torch

import gaitway
from gaitway.cli.train_config import RECIPES
from gaitway.skills.multitask_sac import MultitaskSAC

GROUPS = ("0", "1", "2", "3")


class NeverReached(MultitaskSAC):
    """Broken: reachability is never told that a goal was reached."""

    def _batch_of(self, index):
        batch = super()._batch_of(index)
        return batch | {"reached": torch.zeros_like(batch["reached"])}


def lines_of(folder, ctrl_eps=0.3, name="multitask_sac", steps=3840):
    """The log of a run in which goals are large and soon reached, x sooner than headings."""
    run = gaitway.train(
        "point_pretrain",
        quiet=True,
        run_dir=str(folder / "run"),
        seed=3,
        total_steps=steps,
        torch_threads=1,
        log_level="warning",
        callbacks=[{"name": "curriculum", "interval": 640, "ctrl_eps": ctrl_eps, "feature_rank_max": 2}],
        **{
            "env.options": {"precision": 0.5, "max_steps": 20},
            "agent.actor_hidden": [16, 16],
            "agent.critic_hidden": [16, 16],
            "algorithm.name": name,
            "algorithm.iteration_steps": 640,
            "algorithm.learning_starts": 320,
            "algorithm.update_ratio": 0.1,
            "algorithm.tau": 0.2,
            "algorithm.critic_learning_rate": 5e-3,
            "evaluation.interval": 0,
            "evaluation.trials": 2,
            "evaluation.env.options.rank_max": 2,
        },
    )
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def under(line, prefix):
    return {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}


def too_early(lines):
    """Pairs that a review added although the reachability of one of their groups was below 0.7."""
    found, known = [], set(GROUPS)
    for line in lines:
        reach = under(line, "curriculum/r/")
        for task in under(line, "curriculum/weight/").keys() - known:
            known.add(task)
            found += [task] if min(reach[group] for group in task.split(",")) < 0.7 else []
    return found, known - set(GROUPS)


def practised_before_added(lines):
    """Pairs of which transitions were learnt from before a review added them."""
    added = set(GROUPS)
    for line in lines:
        yield from under(line, "samples/").keys() - added
        added |= under(line, "curriculum/weight/").keys()


def test_pairs_wait_until_both_groups_are_within_reach(tmp_path):
    lines = lines_of(tmp_path)
    early, pairs = too_early(lines)
    assert pairs  # else nothing was shown
    assert not early
    assert not list(practised_before_added(lines))
    first = next(line for line in lines if "curriculum/tasks" in line)
    assert first["step"] == 0
    assert first["curriculum/tasks"] == 4.0
    learnt = set().union(*(under(line, "samples/") for line in lines))
    assert learnt & pairs  # they are practised indeed


def test_without_reachability_no_pair_ever_appears(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "never_reached", RECIPES["multitask_sac"]._replace(algorithm=NeverReached))
    lines = lines_of(tmp_path, name="never_reached")
    assert too_early(lines) == ([], set())
    last = [line for line in lines if "curriculum/tasks" in line][-1]
    assert last["curriculum/tasks"] == 4.0
    assert max(under(last, "curriculum/r/").values()) == pytest.approx(0.0, abs=0.1)
    assert set().union(*(under(line, "samples/") for line in lines)) == set(GROUPS)


def test_the_check_would_notice_pairs_that_do_not_wait(tmp_path):
    early, pairs = too_early(lines_of(tmp_path, ctrl_eps=1.0, steps=1280))
    assert len(early) == len(pairs) == 6
