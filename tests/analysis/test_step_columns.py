"""Lines of metrics as columns."""

import numpy as np

from gaitway.analysis.metrics_file import MetricsFile
from gaitway.analysis.step_columns import StepColumns


def test_steps_are_sorted_and_gaps_are_nan():
    columns = StepColumns()
    columns.add(200, {"b": 4})
    columns.add(100, {"a": 1.5})
    columns.add(300, {"a": "2.5", "b": float("inf")})
    table = columns.table()
    assert table.index.tolist() == [100, 200, 300]
    np.testing.assert_array_equal(table["a"], [1.5, np.nan, 2.5])
    np.testing.assert_array_equal(table["b"], [np.nan, 4.0, np.inf])


def test_of_one_metric_and_step_the_first_word_counts():
    columns = StepColumns()
    columns.add(100, {"a": None, "b": 1.0, "c": "no number"})
    columns.add(100, {"a": 5.0, "b": 2.0, "c": 3.0, "d": None})
    table = columns.table()
    assert list(table) == ["b", "c", "a"]  # what has no number at all is no column
    assert table["b"].tolist() == [1.0]
    assert table[["a", "c"]].isna().all(axis=None)


def test_parts_of_a_file_are_the_same_as_the_whole(tmp_path, monkeypatch):
    lines = [f'{{"step": {step}, "a": {step * 0.5}}}\n' for step in range(1, 400)]
    lines[50] = "x" * 500 + "\n"  # longer than a part: left out like every line that is none
    (tmp_path / "metrics.jsonl").write_text("".join(lines) + '{"step": 400, "a"')
    whole = MetricsFile(tmp_path).table()
    monkeypatch.setattr("gaitway.analysis.metrics_file.PART", 100)
    assert MetricsFile(tmp_path).table().equals(whole)
    file = MetricsFile(tmp_path, at_once=1000)
    looks = 1
    while len(file.table()) and file.is_behind:
        looks += 1
    assert file.table().equals(whole)
    assert looks > 5
    with (tmp_path / "metrics.jsonl").open("a") as cut:
        cut.write(": 200.0}\n")
    assert file.table()["a"].tolist()[-1] == 200.0
