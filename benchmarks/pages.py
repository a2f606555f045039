"""A thousand runs as a page: how soon they are read, how soon a browser shows them, and a hostile folder beside them.

    scripts/browser.sh
    gaitway bench pages --out benchmarks/results/pages.json

One small run is trained and copied a thousand times, as 200 settings of five seeds with returns of their own. Asked for
are 4 s to read them, 0.5 s to read them again, 3 s from opening the live page to its first view. `--hostile` adds a run
whose metrics file has 200 MB and is replaced while it is served, and asks for 5 s until points of others arrive.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

RUNS, SEEDS = 1000, 5
SMALL_RUN = ["env.id=toy/cartpole", "env.num_envs=8", "algorithm.rollout_steps=16", "algorithm.minibatches=2",
             "total_steps=12800", "evaluation.interval=1280", "evaluation.episodes=2", "--quiet"]  # fmt: skip
GAITWAY = [sys.executable, "-m", "gaitway"]
LARGE = 200_000_000
READY = "Number(document.documentElement.dataset.ready || 0)"
CURVES = "document.querySelector('#curves-figure .main-svg') !== null"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hostile", action="store_true", help="also serve a metrics file of 200 MB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = make_runs(Path(place))
        result: dict[str, Any] = {"machine": platform.platform(), "cores": os.cpu_count(), "runs": RUNS}
        result["load"] = os.getloadavg()[0]
        result["read_s"] = [read_twice(folder) for _ in range(options.rounds)]
        result["live_page_s"] = in_browser(folder, options.rounds)
        if options.hostile:
            result["hostile"] = beside_a_large_file(Path(place) / "hostile")
    print(json.dumps(result, indent=1))
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")


def make_runs(place: Path) -> Path:
    """A folder of a thousand runs."""
    first, folder = place / "first", place / "runs"
    subprocess.run([*GAITWAY, "train", *SMALL_RUN, f"run_dir={first}"], check=True)
    config = (first / "config.yaml").read_text()
    lines = [json.loads(line) for line in (first / "metrics.jsonl").read_text().splitlines()]
    generator = np.random.default_rng(0)
    for number in range(RUNS):
        setting, seed = divmod(number, SEEDS)
        run = folder / f"setting_{setting:03}" / f"seed_{seed}"
        run.mkdir(parents=True)
        text = re.sub(r"(?m)^seed: \d+", f"seed: {seed}", config)
        (run / "config.yaml").write_text(re.sub(r"(?m)^(\s+gamma): [\d.]+", rf"\1: {0.9 + setting / 2500:.4f}", text))
        gain = 1.0 + 0.5 * np.sin(setting / 30) + 0.1 * generator.standard_normal()
        scaled = ({n: v * gain if n.endswith("/return") else v for n, v in line.items()} for line in lines)
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in scaled))
        for name in ("summary.json", "contract.json", "code.json"):
            shutil.copy(first / name, run / name)
    return folder


def read_twice(folder: Path) -> tuple[float, float]:
    """Seconds to read all runs, and to read them again with the same reader."""
    from gaitway.analysis.runs import RunReader

    reader, seconds = RunReader(), []
    for _ in range(2):
        started = time.perf_counter()
        assert len(reader.read_all([folder])) == RUNS
        seconds.append(time.perf_counter() - started)
    return seconds[0], seconds[1]


def in_browser(folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds from opening the live page to its words and curves: at once, while runs are read, and later."""
    driver = browser()
    try:
        with Dash(folder) as dash:
            early = opened(driver, dash.url, least=1)
            until(driver, f"{READY} === {RUNS}")
            late = [opened(driver, dash.url, least=RUNS) for _ in range(rounds)]
        said = driver.get_log("browser")
    finally:
        driver.quit()
    return {"while the runs are read": early, "later": late, "console": said}


def opened(driver: Any, url: str, least: int) -> dict[str, float]:
    driver.get("about:blank")
    started = time.perf_counter()
    driver.get(url)
    until(driver, f"{READY} >= {least}")
    words = time.perf_counter() - started
    until(driver, CURVES)
    return {"words": words, "curves": time.perf_counter() - started}


def beside_a_large_file(folder: Path) -> dict[str, Any]:
    """A run with a metrics file of 200 MB that is replaced while it is served, beside one that goes on."""
    large, small = folder / "large", folder / "small"
    for run in (large, small):
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(f"seed: 0\nenv: {{id: toy/x}}\nname: {run.name}\n")
    (small / "metrics.jsonl").write_text('{"step": 1, "eval/return": 1.0}\n')
    with (large / "metrics.jsonl").open("w") as file:
        step = 0
        while file.tell() < LARGE:
            step += 1
            file.write(
                json.dumps({"step": step, "eval/return": step % 97, **{f"loss/{n}": n / step for n in range(16)}})
            )
            file.write("\n")
    with Dash(folder) as dash:
        started = time.perf_counter()
        while len(dash.state()["runs"]) < 2:
            time.sleep(0.2)
        found: dict[str, Any] = {"megabytes": LARGE / 1e6, "lines": step, "read_s": time.perf_counter() - started}
        found["memory_mb"] = dash.memory_mb()
        found["point_s"] = _arrives(dash, small, step=2)
        other = large / "other"
        other.write_text('{"step": 5, "eval/return": 5.0}\n{"step": 6, "eval/ret')
        os.replace(other, large / "metrics.jsonl")
        started = time.perf_counter()
        while [run["steps"] for run in dash.state()["runs"] if run["name"] == "large"] != [5]:
            time.sleep(0.1)
        found["replaced_s"] = time.perf_counter() - started
        found["point_after_s"] = _arrives(dash, small, step=3)
    return found


def _arrives(dash: Dash, run: Path, step: int) -> float:
    """Seconds from writing a line to seeing it."""
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "eval/return": float(step)}) + "\n")
    started = time.perf_counter()
    while step not in [one["steps"] for one in dash.state()["runs"]]:
        time.sleep(0.05)
    return time.perf_counter() - started


class Dash:
    """`gaitway dash` as a process."""

    def __init__(self, folder: Path) -> None:
        words = [*GAITWAY, "dash", str(folder), "--port", "0"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def __enter__(self) -> Dash:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait()

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}api/state", timeout=300) as reply:
            return json.loads(reply.read())

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6


def browser() -> Any:
    """Headless Chromium."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def until(driver: Any, expression: str) -> None:
    while not driver.execute_script(f"return {expression}"):
        time.sleep(0.02)


if __name__ == "__main__":
    main()
