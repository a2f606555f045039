"""Quaternions against rotation matrices and angles on paper."""

from __future__ import annotations

import numpy as np
import pytest

from gaitway.functional.rotations import (
    about,
    angle_about,
    continuous,
    inverse,
    normalised,
    product,
    rotate,
    rotate_back,
    rotation_vector,
    slerp,
)

GENERATOR = np.random.default_rng(0)
RANDOM = normalised(GENERATOR.standard_normal((50, 4)))
OTHER = normalised(GENERATOR.standard_normal((50, 4)))


def matrix(q):
    """[4] -> [3, 3], the textbook's."""
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_rotating_equals_the_matrix_and_back():
    vectors = GENERATOR.standard_normal((50, 3))
    expected = np.stack([matrix(q) @ v for q, v in zip(RANDOM, vectors, strict=True)])
    np.testing.assert_allclose(rotate(RANDOM, vectors), expected, atol=1e-14)
    np.testing.assert_allclose(rotate_back(RANDOM, expected), vectors, atol=1e-14)


def test_a_product_is_one_turn_after_the_other():
    both = product(RANDOM, OTHER)
    for at in range(50):
        np.testing.assert_allclose(matrix(both[at]), matrix(RANDOM[at]) @ matrix(OTHER[at]), atol=1e-14)
    np.testing.assert_allclose(product(RANDOM, inverse(RANDOM)), np.tile([1.0, 0, 0, 0], (50, 1)), atol=1e-15)


def test_angles_about_an_axis():
    axis = np.array([0.0, 1.0, 0.0])
    angles = np.array([-3.1, -1.0, 0.0, 2.0, 3.1])
    np.testing.assert_allclose(angle_about(axis, about(axis, angles)), angles, atol=1e-15)
    np.testing.assert_allclose(angle_about(axis, -about(axis, angles)), angles, atol=1e-14)  # q and -q are the same
    np.testing.assert_allclose(angle_about(axis, about(axis, np.array([7.0]))), [7.0 - 2 * np.pi], atol=1e-14)
    np.testing.assert_allclose(rotation_vector(about(axis, angles)), angles[:, None] * axis, atol=1e-14)
    np.testing.assert_allclose(rotation_vector(about(axis, np.array([1e-9]))), [[0, 1e-9, 0]], rtol=1e-12)


def test_slerp_turns_at_constant_speed_the_shorter_way():
    axis = np.array([0.0, 0.0, 1.0])
    start, end = about(axis, np.array([0.3])), about(axis, np.array([1.5]))
    for share in (0.0, 0.25, 0.5, 1.0):
        expected = about(axis, np.array([0.3 + 1.2 * share]))
        np.testing.assert_allclose(slerp(start, end, np.array([share])), expected, atol=1e-15)
        np.testing.assert_allclose(slerp(start, -end, np.array([share])), expected, atol=1e-15)
    # a linear mean would be at another angle: at a quarter of 90 degrees it is 0.3948 rad instead of 0.3927
    quarter = slerp(about(axis, np.array([0.0])), about(axis, np.array([np.pi / 2])), np.array([0.25]))
    np.testing.assert_allclose(angle_about(axis, quarter), [np.pi / 8], atol=1e-15)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-9, 1e-7])
def test_slerp_of_nearly_equal_rotations(angle):
    axis = np.array([1.0, 0.0, 0.0])
    found = slerp(about(axis, np.array([0.2])), about(axis, np.array([0.2 + angle])), np.array([0.5]))
    np.testing.assert_allclose(angle_about(axis, found), [0.2 + angle / 2], atol=1e-15)


def test_signs_become_continuous():
    axis = np.array([0.0, 1.0, 0.0])
    smooth = about(axis, np.linspace(0, 9, 20))
    flipped = smooth * np.where(GENERATOR.random(20) < 0.5, -1.0, 1.0)[:, None]
    found = continuous(flipped)
    np.testing.assert_array_equal(found, smooth * np.sign(flipped[0] @ smooth[0]))
