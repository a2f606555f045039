"""Curves show the numbers of the run folders; statistics are checked by hand."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from PIL import Image

from gaitway.analysis.plots import (
    COLOURS,
    align,
    bootstrap_interval,
    chosen_figure,
    comparison_figure,
    iqm,
    learning_curve_figure,
    losses_figure,
    metrics_figure,
    plot_run,
    plot_runs,
)
from gaitway.analysis.runs import group_runs, load_run, load_runs


def write_run(folder, values, seed=0, rate=0.1, kind="eval", steps=None):
    """A run whose evaluation returns are `values` at steps 100, 200, ..."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"seed: {seed}\nenv: {{id: toy/Walk}}\nalgorithm: {{rate: {rate}}}\n")
    steps = steps or [100 * (index + 1) for index in range(len(values))]
    lines = [{"step": step, f"{kind}/return": value} for step, value in zip(steps, values, strict=True)]
    lines += [
        {"step": step, "train/return": value - 1.0, "train/length": 50.0, "loss/value": 1.0, "loss/surrogate": -0.1}
        for step, value in zip(steps, values, strict=True)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def lines_of(axes):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}


def test_learning_curve_shows_training_and_evaluation(tmp_path):
    figure = learning_curve_figure(load_run(write_run(tmp_path / "run", [1.0, 5.0, 6.0], seed=4)))
    returns, lengths = figure.axes
    assert lines_of(returns) == {
        "training, exploring": ([100, 200, 300], [0.0, 4.0, 5.0]),
        "evaluation, deterministic": ([100, 200, 300], [1.0, 5.0, 6.0]),
    }
    assert returns.get_xlabel() == "environment steps"
    assert returns.get_ylabel() == "return per episode"
    assert lengths.get_ylabel() == "episode length [steps]"
    assert figure.get_suptitle() == "run, toy/Walk, seed 4"


def test_returns_of_zero_and_random_actions_are_lines_in_every_return_plot(tmp_path):
    runs = [write_run(tmp_path / f"run{seed}", [1.0, 5.0, 6.0], seed=seed) for seed in (0, 1)]
    for run, zero in zip(runs, (2.0, 4.0), strict=True):
        scores = {"zero": {"mean": zero, "noise": 0.1}, "random": {"mean": 0.5}}
        (run / "preflight.json").write_text(json.dumps({"returns": scores}))
    one, both = load_run(runs[0]), load_runs(runs)
    for axes, zero in (
        (learning_curve_figure(one).axes[0], 2.0),
        (comparison_figure(group_runs(both)).axes[0], 3.0),
        (chosen_figure(both, ["eval/return"]).axes[0], 3.0),
    ):
        lines = lines_of(axes)
        assert lines["zero actions"][1] == [zero, zero]
        assert lines["random actions"][1] == [0.5, 0.5]
    assert "zero actions" not in lines_of(learning_curve_figure(one).axes[1]), "a length is no return"
    other = write_run(tmp_path / "other", [1.0, 2.0])
    (other / "config.yaml").write_text("env: {id: toy/Other}\n")
    assert "zero actions" not in lines_of(chosen_figure(load_runs([*runs, other]), ["eval/return"]).axes[0])


def test_speed_gets_a_panel_where_there_is_one(tmp_path):
    folder = write_run(tmp_path / "run", [1.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 100, "env/speed": 1.5, "eval/speed": 2.5}\n')
    figure = learning_curve_figure(load_run(folder))
    speed = next(axes for axes in figure.axes if axes.get_ylabel() == "speed [m/s]")
    assert [y for _, y in lines_of(speed).values()] == [[1.5], [2.5]]


def test_every_metric_of_an_environment_is_drawn_without_being_listed(tmp_path):
    folder = write_run(tmp_path / "run", [1.0])
    assert metrics_figure(load_run(folder)) is None
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 100, "env/speed": 1.5, "env/foot_height": 0.2, "eval/foot_height": 0.3}\n')
        file.write('{"step": 100, "eval/jumps_episode": 4, "eval/return_std": 9, "eval/stochastic_return": 9}\n')
    figure = metrics_figure(load_run(folder))
    assert [axes.get_ylabel() for axes in figure.axes] == ["foot height", "jumps episode"]
    assert [[y for _, y in lines_of(axes).values()] for axes in figure.axes] == [[[0.2], [0.3]], [[4]]]
    assert figure.get_suptitle() == "metrics of run, toy/Walk, seed 0"
    assert [path.name for path in plot_run(folder)] == ["learning_curve.png", "metrics.png", "losses.png"]


def test_steps_of_offline_runs_are_updates(tmp_path):
    folder = write_run(tmp_path / "run", [1.0])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 100, "train/dataset_passes": 0.5}\n')
    run = load_run(folder)
    for figure in (learning_curve_figure(run), losses_figure(run), comparison_figure({"one": [run]})):
        assert {axes.get_xlabel() for axes in figure.axes} == {"updates"}
    both = {"one": [run], "two": [load_run(write_run(tmp_path / "other", [1.0]))]}
    assert comparison_figure(both).axes[0].get_xlabel() == "environment steps"


def test_losses_have_a_panel_each(tmp_path):
    figure = losses_figure(load_run(write_run(tmp_path / "run", [1.0, 2.0])))
    assert [axes.get_ylabel() for axes in figure.axes] == ["surrogate", "value"]
    assert [axes.get_lines()[0].get_ydata().tolist() for axes in figure.axes] == [[-0.1, -0.1], [1.0, 1.0]]


def test_plot_run_writes_pictures_and_leaves_matplotlib_alone(tmp_path):
    before = dict(mpl.rcParams)
    backend = mpl.get_backend()
    folder = write_run(tmp_path / "run", [1.0, 2.0, 3.0])
    paths = plot_run(folder)
    assert paths == [folder / "plots" / "learning_curve.png", folder / "plots" / "losses.png"]
    for path in paths:
        picture = np.asarray(Image.open(path).convert("RGB"))
        assert min(picture.shape[:2]) > 300
        assert (picture < 128).any()  # ink
    assert dict(mpl.rcParams) == before
    assert mpl.get_backend() == backend


def test_a_run_without_metrics_has_no_pictures(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 0")
    assert plot_run(tmp_path) == []


def test_comparison_draws_centre_and_range_of_each_group(tmp_path):
    for seed, values in enumerate(([0.0, 10.0], [2.0, 12.0], [7.0, 20.0])):
        write_run(tmp_path / f"a{seed}", values, seed, rate=0.1)
    write_run(tmp_path / "b", [1.0, 1.0], rate=0.2)
    figure = comparison_figure(group_runs(load_runs([tmp_path])), estimate="mean")
    (axes,) = figure.axes
    assert lines_of(axes) == {
        "algorithm.rate=0.1 (3 runs)": ([100, 200], [3.0, 14.0]),
        "algorithm.rate=0.2 (1 run)": ([100, 200], [1.0, 1.0]),
    }
    (band,) = axes.collections  # a single run has none
    points = {tuple(point) for point in band.get_paths()[0].vertices}
    assert {(100.0, 0.0), (100.0, 7.0), (200.0, 10.0), (200.0, 20.0)} <= points
    assert to_hex(band.get_facecolor()[0]).upper() == COLOURS[0]
    assert axes.get_title() == "evaluation: mean and range of the runs"


def test_comparison_bands_and_titles(tmp_path):
    for seed in range(5):
        write_run(tmp_path / f"a{seed}", [float(seed), float(seed)], seed)
    groups = group_runs(load_runs([tmp_path]))
    assert comparison_figure(groups).axes[0].get_title() == "evaluation: interquartile mean and 95 % bootstrap interval"
    title = comparison_figure(groups, band="minmax").axes[0].get_title()
    assert title == "evaluation: interquartile mean and range of the runs"


def test_comparison_falls_back_to_training_returns_for_all(tmp_path):
    write_run(tmp_path / "a", [4.0], rate=0.1)
    write_run(tmp_path / "b", [8.0], rate=0.2, kind="test")
    figure = comparison_figure(group_runs(load_runs([tmp_path])))
    assert [y for _, y in lines_of(figure.axes[0]).values()] == [[3.0], [7.0]]
    (tmp_path / "b" / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"no train/return in metrics.jsonl of .*b"):
        comparison_figure(group_runs(load_runs([tmp_path])))


def test_plot_runs_takes_a_folder_or_a_file(tmp_path):
    write_run(tmp_path / "runs" / "a", [1.0, 2.0])
    assert plot_runs([tmp_path / "runs"], tmp_path / "out") == tmp_path / "out" / "comparison.png"
    assert plot_runs([tmp_path / "runs"], tmp_path / "mine.png") == tmp_path / "mine.png"
    assert (tmp_path / "mine.png").stat().st_size > 1000


def test_align_interpolates_within_the_common_range(tmp_path):
    write_run(tmp_path / "a", [0.0, 10.0, 20.0], steps=[0, 100, 200])
    write_run(tmp_path / "b", [1.0, 3.0], steps=[50, 150])
    steps, values = align(load_runs([tmp_path]), "eval/return")
    assert steps.tolist() == [50, 100, 150]
    assert values.tolist() == [[5.0, 10.0, 15.0], [1.0, 2.0, 3.0]]
    write_run(tmp_path / "c", [1.0], steps=[500])
    with pytest.raises(ValueError, match="share no steps"):
        align(load_runs([tmp_path]), "eval/return")


def test_iqm_drops_a_quarter_at_each_end():
    values = np.array([[100.0], [1.0], [3.0], [-50.0], [2.0], [4.0], [5.0], [6.0]])
    assert iqm(values).tolist() == [(2.0 + 3.0 + 4.0 + 5.0) / 4]  # of eight runs, two at each end go
    assert iqm(values[:3]).tolist() == [104.0 / 3]  # a quarter of three runs is none


def test_bootstrap_interval_of_two_runs_is_their_range():
    # resamples of {0, 1}: means 0, 1/2, 1 with chances 1/4, 1/2, 1/4, so that both tails hold more than 2.5 %
    values = np.array([[0.0, 5.0], [1.0, 5.0]])
    low, high = bootstrap_interval(values)
    assert (low.tolist(), high.tolist()) == ([0.0, 5.0], [1.0, 5.0])
    low, high = bootstrap_interval(values, confidence=0.4)
    assert (low.tolist(), high.tolist()) == ([0.5, 5.0], [0.5, 5.0])


def test_bootstrap_interval_agrees_with_theory_for_the_mean():
    values = np.random.default_rng(0).standard_normal((40, 1))
    low, high = bootstrap_interval(values, np.mean)
    half = 1.96 * values.std() / np.sqrt(40)
    assert (high - low)[0] / 2 == pytest.approx(half, rel=0.08)
    assert (high + low)[0] / 2 == pytest.approx(values.mean(), abs=0.2 * half)
