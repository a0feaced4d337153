"""Lower-triangular Toeplitz matrices by their first column, in float64.

A column `c` of length `n` stands for the matrix with `c[i - j]` at row `i` and column `j <= i`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Column = np.ndarray[Any, Any]


def column(name: str, coefficients: Any) -> Column:
    """The coefficients as float64; an error if they are no column of an invertible matrix."""
    values = np.asarray(coefficients, np.float64)
    if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values)):
        raise ValueError(
            f"{name} must be a list of finite numbers, the first column of a Toeplitz matrix from the "
            f"diagonal down; got {coefficients!r}."
        )
    if values[0] <= 0:
        raise ValueError(f"{name} must begin with a positive number, got {values[0]}.")
    return values


def padded(coefficients: Column, steps: int) -> Column:
    """The column of length `steps`: cut, or continued with zeros."""
    out = np.zeros(steps)
    out[: coefficients.size] = coefficients[:steps]
    return out


def inverse(coefficients: Column, steps: int) -> Column:
    """The first column, of length `steps`, of the inverse matrix.

    >>> print(inverse(np.asarray([1.0, -1.0]), 4))
    [1. 1. 1. 1.]
    """
    out = np.zeros(steps)
    out[0] = 1 / coefficients[0]
    for t in range(1, steps):
        last = min(t, coefficients.size - 1)
        earlier = out[t - last : t][::-1]  # of steps t - 1, t - 2, ...
        out[t] = -np.dot(coefficients[1 : last + 1], earlier) / coefficients[0]
    return out


def square_root(steps: int) -> Column:
    """The square root of the matrix of prefix sums: coefficients of `1 / sqrt(1 - x)`.

    >>> print(square_root(4))
    [1.     0.5    0.375  0.3125]
    """
    k = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def inverse_square_root(steps: int) -> Column:
    """The inverse of that square root: coefficients of `sqrt(1 - x)`.

    >>> print(inverse_square_root(4))
    [ 1.     -0.5    -0.125  -0.0625]
    """
    k = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod((2 * k - 3) / (2 * k))])


def matrix(coefficients: Column, steps: int) -> np.ndarray[Any, Any]:
    """The whole matrix, for tests and small numbers of steps."""
    values = padded(coefficients, steps)
    place = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where(place >= 0, values[np.maximum(place, 0)], 0.0)
