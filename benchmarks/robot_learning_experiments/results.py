"""What was found, one file per experiment, so that experiments can be run apart and at the same time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gaitway.core.files import atomic_write_json
from robot_learning_experiments.experiment import Claim, Experiment


class Results:
    """The figures of one experiment by arm and seed, and what follows from them; in `path`, if there is one."""

    def __init__(self, experiment: Experiment, path: Path | None) -> None:
        self.experiment, self.path = experiment, path
        there = path is not None and path.exists()
        self.rows: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text())["arms"] if path and there else {}

    def has(self, arm: str, seed: int) -> bool:
        return str(seed) in self.rows.get(arm, {})

    def keep(self, arm: str, seed: int, row: Mapping[str, Any]) -> None:
        """Add one row, in the place of an older one, and write all of them."""
        self.rows.setdefault(arm, {})[str(seed)] = dict(row)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_json(self.path, self._content())

    def claims(self, seed: int, twin: str | None = None) -> list[Claim] | None:
        """What the claims say of a seed, with a twin in the place of an arm if one is named; None if runs lack."""
        arms = {name: name for name in self.experiment.arms}
        if twin is not None:
            arms[self.experiment.place_of(twin)] = twin
        if not all(self.has(arm, seed) for arm in arms.values()):
            return None
        figures = {name: self.rows[arm][str(seed)]["figures"] for name, arm in arms.items()}
        return list(self.experiment.claims(figures))

    def verdict(self) -> dict[str, Any]:
        """Whether the reported seeds pass, and whether every twin fails on the first of them."""
        seeds = {seed: self.claims(seed) for seed in self.experiment.seeds}
        passed = [seed for seed, claims in seeds.items() if claims and all(claim.holds for claim in claims)]
        first = self.experiment.seeds[0]
        twins = {twin: self.claims(first, twin) for twin in self.experiment.twins}
        survived = [twin for twin, claims in twins.items() if claims and all(claim.holds for claim in claims)]
        missing = [str(seed) for seed, claims in seeds.items() if claims is None]
        missing += [twin for twin, claims in twins.items() if claims is None]
        needed = self.experiment.seeds_needed or len(seeds)
        return {
            "holds": not missing and not survived and len(passed) >= needed,
            "seeds_passed": passed,
            "seeds_needed": needed,
            "twins_that_passed": survived,
            "missing": missing,
        }

    def _content(self) -> dict[str, Any]:
        names = dict.fromkeys((*self.experiment.arms, *self.experiment.twins, *self.rows))  # those given up stay too
        rows = {name: self.rows[name] for name in names if name in self.rows}
        seeds = sorted({int(seed) for rows in self.rows.values() for seed in rows})
        claims = {str(seed): self.claims(seed) for seed in seeds}
        return {
            "experiment": self.experiment.id,
            "title": self.experiment.title,
            "command": f"gaitway bench robot_learning {self.experiment.id}",
            "verdict": self.verdict(),
            "claims": {seed: [asdict(claim) for claim in found] for seed, found in claims.items() if found is not None},
            "arms": {name: dict(sorted(found.items(), key=lambda row: int(row[0]))) for name, found in rows.items()},
        }
