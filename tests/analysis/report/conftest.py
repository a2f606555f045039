"""Run folders for pages, written by hand."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run("a/0", [1.0, 2.0], seed=0, lr=0.1)`: a finished run with these evaluations at steps 100, 200, ..."""

    def make(
        name: str,
        returns: Sequence[float],
        seed: int = 0,
        lr: Any = 0.1,
        task: str = "toy/pendulum",
        ended: bool = True,
        metrics: dict[str, float] | None = None,
    ) -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        config = {"seed": seed, "total_steps": 1000, "env": {"id": task}, "algorithm": {"lr": lr}}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        lines = [
            {"step": 100 * (n + 1), "eval/return": value, "time/seconds": n + 1.0, **(metrics or {})}
            for n, value in enumerate(returns)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if ended:
            (folder / "summary.json").write_text(json.dumps({"steps": 100 * len(returns), "stopped_by": None}))
        return folder

    return make


@pytest.fixture
def three_groups(make_run: MakeRun, tmp_path: Path) -> Path:
    """Learning rates 0.1, 0.2 and 0.3 with three seeds each; the second is best, the third nearly as good."""
    for lr, values in ((0.1, (1.0, 2.0, 3.0)), (0.2, (11.0, 12.0, 13.0)), (0.3, (10.0, 12.0, 13.5))):
        for seed, value in enumerate(values):
            make_run(f"{lr}/{seed}", [0.0, value / 2, value], seed=seed, lr=lr, metrics={"time/share_learn": 0.75})
    return tmp_path / "runs"


@pytest.fixture
def film(tmp_path: Path) -> bytes:
    """A small film that browsers play, in colours that move."""
    import imageio.v3 as iio
    import numpy as np

    frames = np.zeros((24, 64, 96, 3), dtype=np.uint8)
    for number, frame in enumerate(frames):
        frame[:, : 4 * number + 4] = (30, 120, 200)
    path = tmp_path / "film.mp4"
    iio.imwrite(path, frames, fps=12, codec="libx264", plugin="FFMPEG")
    content = path.read_bytes()
    os.unlink(path)
    return content
