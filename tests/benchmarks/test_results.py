"""docs/results.md says what the raw files say."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def results():
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "benchmarks" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_raw_files_say(results):
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == results.page(), "write it anew by `gaitway bench results`, and commit docs/results.md"


def test_every_seed_the_interval_and_where_it_was_are_shown(results, tmp_path, monkeypatch):
    raw = {
        "benchmark": "learning", "preset": "ppo_x", "commit": "0123456789abcdef", "overrides": ["env.num_threads=1"],
        "machine": {"cores": 2, "processor": "AMD EPYC", "gpu": "H200"},
        "seeds": [{"seed": seed, "last": {"return": value, "steps": 1000}, "seconds": seconds}
                  for seed, value, seconds in ((0, 1.0, 10.0), (1, 3.0, 5.0))],
    }  # fmt: skip
    figure = {"figure": "5 ± 1", "source": "somebody", "address": "https://example.org"}
    (tmp_path / "published.json").write_text(json.dumps({"ppo_x": figure}))
    (tmp_path / "learning_x.json").write_text(json.dumps(raw))
    monkeypatch.setattr(results, "RAW", tmp_path)
    page = results.page()
    # t(0.975, 1) = 12.706, stdev sqrt(2), so 12.706 * sqrt(2) / sqrt(2) = 13; 100 and 200 steps/s
    assert page.splitlines()[-1] == (
        "| ppo | `ppo_x` | 1,000 | 1, 3 | 2 ± 13 | 150 | 2 cores AMD EPYC, H200 | `012345678` | "
        "`gaitway bench learning ppo_x --seeds 0 1 --set env.num_threads=1` | "
        "published: 5 ± 1, [somebody](https://example.org) | `learning_x.json` |"
    )
    # a raw file of another kind changes nothing; one of these kinds, or a changed number, does
    (tmp_path / "speed.json").write_text(json.dumps({"benchmark": "speed", "rate": 3}))
    (tmp_path / "list.json").write_text("[1]")
    assert results.page() == page
    raw["seeds"][0]["last"]["return"] = 1.5
    (tmp_path / "learning_x.json").write_text(json.dumps(raw))
    assert results.page() != page
