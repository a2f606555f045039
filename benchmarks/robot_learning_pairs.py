"""Every pair of the parts of robot learning: it trains, resumes bit for bit, and its export is its policy.

gaitway bench robot_learning_pairs --out benchmarks/results/robot_learning/pairs.json
gaitway bench robot_learning_pairs --only memory,teacher --only style,symmetry

The parts are memory, encoder, estimator, teacher, style, symmetry, reward groups and a dataset stage (`_robot_parts`);
of the 28 pairs one is refused, symmetry with memory, and no other may be. Compared are the parameters of a whole run
and of one that was stopped in the middle and resumed, and the actions of the ONNX file and of the policy.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _robot_parts import PAIRS, REFUSED, STEPS, arguments
from _rounds import machine, revision

import gaitway
from gaitway.cli.build import build_runner
from gaitway.cli.compose_run import compose_run
from gaitway.cli.config_file import write_config
from gaitway.cli.main import main as command
from gaitway.core.config import to_config
from gaitway.runners.logger import Logger
from gaitway.runners.run_folder import RunFolder

Row = dict[str, Any]


def recorded(place: Path) -> str:
    """A small dataset of the toy, for dataset stages."""
    if command(["collect", "toy/oscillator", "--steps=400", f"--out={place}", "--quiet"]):
        raise RuntimeError("the dataset could not be recorded")
    return str(place)


def carry_out(parts: tuple[str, ...], place: Path, dataset: str, export: bool = True) -> Row:
    """Train, resume and export a run with these parts; what came of it, or the sentence that refuses it."""
    config, _ = compose_run(arguments(parts, dataset))

    def runner(folder: RunFolder) -> Any:
        return build_runner(config, folder, logger=Logger(folder.path))

    def start(name: str) -> Any:
        folder = RunFolder.create(place / name)
        write_config(folder.config, to_config(config), {})
        made = runner(folder)
        folder.write_contract(made.env.spec.to_dict())
        return made

    try:
        whole = start("whole")
    except ValueError as error:
        return {"parts": list(parts), "refused": str(error)}
    before = whole.parameters_sha256()
    whole.learn()
    whole.close()
    first = start("parts")
    first.learn(config.total_steps // 2)
    first.close()
    second = runner(RunFolder.open(place / "parts"))
    resumed_at = second.resume()
    second.learn()
    second.close()
    row: Row = {
        "parts": list(parts),
        "trained": whole.parameters_sha256() != before,
        "iterations": whole.iteration,
        "resumed_at": resumed_at,
        "resumed_exactly": second.parameters_sha256() == whole.parameters_sha256(),
        "parameters_sha256": whole.parameters_sha256(),
    }
    if export:
        proof = gaitway.load(place / "whole", "last").export(place / "export", format="onnx")
        row |= {"export_differs_by": proof.largest, "observations": proof.observations}
    return row


def holds(row: Row) -> bool:
    """Whether a pair did what it should; `export` raises where the export is not its policy."""
    if tuple(row["parts"]) == REFUSED:
        return "symmetry is for policies without memory" in row.get("refused", "")
    return "refused" not in row and row["trained"] and row["resumed_exactly"] and row["resumed_at"] > 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="PART,PART", help="this pair; may be repeated")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    chosen = [tuple(each.split(",")) for each in options.only] or list(PAIRS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        dataset = recorded(Path(folder) / "dataset")
        for number, parts in enumerate(chosen):
            started = time.perf_counter()
            row = carry_out(parts, Path(folder) / str(number), dataset)
            row |= {"holds": holds(row), "seconds": round(time.perf_counter() - started, 1)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    missed = [row["parts"] for row in rows if not row["holds"]]
    result = {"benchmark": "robot_learning_pairs", "command": "gaitway bench robot_learning_pairs", "pairs": len(rows),
              "missed": missed, "steps": STEPS * 8, "seed": 0, "commit": revision(), "machine": machine(),
              "rows": rows}  # fmt: skip
    print(f"{len(rows) - len(missed)} of {len(rows)} hold")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
