"""The rule by which work is spread over threads."""

from __future__ import annotations

import pytest

from gaitway.core.cpus import choose_num_threads, usable_cpus


def test_number_of_threads() -> None:
    assert choose_num_threads(3, 1) == 3
    assert choose_num_threads(None, 1) == 1
    assert choose_num_threads(None, 10_000) == usable_cpus()
    with pytest.raises(ValueError, match="num_threads is 0"):
        choose_num_threads(0, 4)
    with pytest.raises(ValueError, match="num_threads is True"):
        choose_num_threads(True, 4)
