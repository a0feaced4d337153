"""Toeplitz matrices by their first column, against dense matrices."""

import re

import numpy as np
import pytest

from bk_jax.mechanisms import toeplitz


@pytest.mark.parametrize("steps", [1, 2, 5, 30])
@pytest.mark.parametrize("column", [[2.0], [1.0, -0.5, -0.125], [1.0, 0.5, 0.25, 0.7]])
def test_inverse(column, steps):
    column = np.asarray(column)
    dense = toeplitz.matrix(column, steps)
    inverse = toeplitz.matrix(toeplitz.inverse(column, steps), steps)
    np.testing.assert_allclose(inverse @ dense, np.eye(steps), atol=1e-13)


def test_the_square_root_of_prefix_sums():
    root = toeplitz.matrix(toeplitz.square_root(20), 20)
    np.testing.assert_allclose(root @ root, np.tri(20), atol=1e-14)
    inverse = toeplitz.matrix(toeplitz.inverse_square_root(20), 20)
    np.testing.assert_allclose(root @ inverse, np.eye(20), atol=1e-14)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([], "must be a list of finite numbers"),
        ([[1.0]], "must be a list of finite numbers"),
        ([1.0, np.nan], "must be a list of finite numbers"),
        ([0.0, 1.0], "must begin with a positive number, got 0.0"),
    ],
)
def test_errors(column, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        toeplitz.column("coefficients", column)
