"""Numbers from files of other programs, well written and badly."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

from gaitway.analysis.arrays import read_array

NAN = float("nan")
TABLE = np.array([[1.0, 2.0, 3.0], [4.0, NAN, 6.0]])


def test_every_format_gives_the_same_array(tmp_path):
    np.savetxt(tmp_path / "a.txt", TABLE)
    np.savetxt(tmp_path / "a.csv", TABLE, delimiter=",")
    np.save(tmp_path / "a.npy", TABLE)
    np.savez(tmp_path / "a.npz", TABLE)
    np.savez_compressed(tmp_path / "named.npz", anything=TABLE)
    for name in ("a.txt", "a.csv", "a.npy", "a.npz", "named.npz"):
        values, steps = read_array(tmp_path / name)
        np.testing.assert_array_equal(values, TABLE, err_msg=name)
        assert values.dtype == np.float64
        assert steps is None


@pytest.mark.parametrize("text", ["1\n2\n3\n", "1 2 3\n", "# scores\n1 2 3", "seed_0 seed_1 seed_2\n1 2 3\n"])
def test_one_line_or_one_column_of_text_is_one_score_per_run(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    values, steps = read_array(tmp_path / "a.txt")
    np.testing.assert_array_equal(values, [1.0, 2.0, 3.0])
    assert steps is None


def test_csv_with_a_header_steps_and_gaps(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeff"seed 0", Step ,"seed 1"\n1,0,\n2,500,4\n3,1000\n')
    values, steps = read_array(tmp_path / "a.csv")
    np.testing.assert_array_equal(values, [[1.0, NAN], [2.0, 4.0], [3.0, NAN]])
    np.testing.assert_array_equal(steps, [0.0, 500.0, 1000.0])


def test_a_missing_first_value_is_not_a_header(tmp_path):
    (tmp_path / "a.csv").write_text(",2\n3,4\n")
    np.testing.assert_array_equal(read_array(tmp_path / "a.csv")[0], [[NAN, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("columns", [None, ["first", "second"]])
def test_tables_of_pandas(tmp_path, columns):
    pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=[10, 20], columns=columns).to_csv(tmp_path / "a.csv")
    values, steps = read_array(tmp_path / "a.csv")
    np.testing.assert_array_equal(values, [[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(steps, [10.0, 20.0])


def test_an_archive_of_several_arrays_needs_a_name(tmp_path):
    np.savez(tmp_path / "a.npz", ppo=TABLE, sac=2 * TABLE, step=np.array([0, 50]))
    values, steps = read_array(tmp_path / "a.npz", "sac")
    np.testing.assert_array_equal(values, 2 * TABLE)
    np.testing.assert_array_equal(steps, [0.0, 50.0])
    with pytest.raises(ValueError, match="it holds the arrays ppo, sac, step; name one"):
        read_array(tmp_path / "a.npz", "dqn")


class Trap:
    """Unpickling this would raise."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_objects_are_refused_unread(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    array = np.array([Trap()], dtype=object)
    np.save(path, array) if suffix == ".npy" else np.savez(path, array)
    with pytest.raises(ValueError, match="cannot be read: Object arrays cannot be loaded"):
        read_array(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="cannot be read"):
        read_array(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"1,2\n3,four\n", "'four' in row 2 is not a number"),
        ("a.csv", b"one,two\n", "no numbers"),
        ("a.txt", b"\n\n", "no numbers"),
        ("a.txt", b"\xff\xfe\x00", "cannot be read"),
        ("a.npy", b"", "cannot be read"),
        ("a.npz", b"PK\x03\x04 torn", "cannot be read"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_array(tmp_path / name)


def test_arrays_of_other_shapes_and_kinds_are_refused(tmp_path):
    for number, (array, said) in enumerate(
        [
            (np.zeros((2, 2, 2)), r"shape \[2, 2, 2\]"),
            (np.zeros((0, 3)), r"shape \[0, 3\]"),
            (np.array(["a"]), "real numbers"),
            (np.array([1j]), "real numbers"),
        ]
    ):
        np.save(tmp_path / f"{number}.npy", array)
        with pytest.raises(ValueError, match=said):
            read_array(tmp_path / f"{number}.npy")
    np.save(tmp_path / "flags.npy", np.array([True, False]))
    assert read_array(tmp_path / "flags.npy")[0].tolist() == [1.0, 0.0]
