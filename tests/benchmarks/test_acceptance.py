"""Every row of the acceptance table of robot learning has its id here: tests, with their mutations, or an experiment.

A row that arithmetic decides names its tests in `robot_learning_experiments/rows.py`; the others are experiments with
seeds and twins. `gaitway bench robot_learning ID` runs either.
"""

import ast
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TESTS = runpy.run_path(str(ROOT / "benchmarks" / "robot_learning_experiments" / "rows.py"))["TESTS"]
LEARNT = """
T-PPO T-PEND T-SYM T-RND T-APPO T-APPO-MJ T-TPPO T-TPPO-RL T-LATENT T-ATPPO T-EST T-ESTTPPO T-DIST T-TWOSTAGE T-TRACK
E-L-PRIV E-L-EST E-L-DIST E-L-AMP E-L-MUTEX E-L-FIELD
""".split()  # noqa: SIM905
"""Rows that seeds decide: experiments with twins."""


def defined(path):
    """Names of the tests of a file, those of classes behind `::`, and the classes."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            names |= {node.name} | {f"{node.name}::{method}" for method in methods}
    return names


@pytest.mark.parametrize("id", TESTS)
def test_the_tests_of_a_row_exist(id):
    for test in TESTS[id]:
        file, _, name = test.partition("::")
        path = ROOT / "tests" / file
        assert path.is_file(), test
        assert not name or name in defined(path), test
    if id.startswith("T-"):  # whoever searches for the id finds a test
        assert any(id in (ROOT / "tests" / test.partition("::")[0]).read_text() for test in TESTS[id]), id


def test_the_bench_knows_every_id(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from robot_learning_experiments import EXPERIMENTS

    known = dict(EXPERIMENTS)
    for name in [name for name in sys.modules if name.startswith("robot_learning_experiments")]:
        del sys.modules[name]
    ids = {id for id in TESTS if id.startswith("T-")} | set(LEARNT)
    assert sorted(ids - set(known)) == []
    assert [id for id in LEARNT if not known[id].twins] == []
