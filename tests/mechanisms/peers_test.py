"""Strategies, inverses and sensitivities are those of jax_privacy 2.0.0 for the same coefficients.

The numbers were made with its `matrix_factorization` in float64:

    opt = toeplitz.optimize_banded_toeplitz(50, 5)
    toeplitz.minsep_sensitivity_squared(opt, 10, None, 50) ** 0.5
    root = toeplitz.optimal_max_error_strategy_coefs(50)
    toeplitz.minsep_sensitivity_squared(root, 7, 3, 50) ** 0.5
    toeplitz.sensitivity_squared(root, 50) ** 0.5
    sensitivity.fixed_epoch_sensitivity(toeplitz.materialize_lower_triangular(root), 5)
    blt = BufferedToeplitz.build(buf_decay=[0.9, 0.5], output_scale=[0.3, 0.2])
    blt.materialize(6)[:, 0], blt.inverse_as_streaming_matrix().materialize(6)[:, 0]
    toeplitz.inverse_as_streaming_matrix([1.0, 0.5, 0.375]).materialize(6)[:, 0]
"""

import numpy as np
import pytest

from bk_jax import mechanisms
from bk_jax.mechanisms import toeplitz

OPTIMIZED = (
    0.7084859667334259,
    0.4411548653086742,
    0.3626925745686229,
    0.31347403508266425,
    0.2713266397500712,
)


def test_sensitivities():
    optimized = mechanisms.BandedToeplitz(OPTIMIZED).strategy(50)
    root = toeplitz.square_root(50)
    for participation, strategy, expected in [
        (mechanisms.MinSeparation(50, 10), optimized, 2.23606797749979),
        (mechanisms.MinSeparation(50, 7, 3), root, 3.525133009002162),
        (mechanisms.SingleParticipation(50), root, 1.519843175016636),
        (mechanisms.FixedEpochs(50, 10), root, 4.69766510331155),
    ]:
        assert participation.sensitivity(strategy) == pytest.approx(expected, rel=1e-12)


def test_inverses():
    buffered = mechanisms.BufferedToeplitz((0.9, 0.5), (0.3, 0.2))
    banded = mechanisms.BandedToeplitz.square_root(3)
    for found, expected in [
        (buffered.strategy(6), [1.0, 0.5, 0.37, 0.293, 0.2437, 0.20933]),
        (buffered.inverse(6), [1.0, -0.5, -0.12, -0.048, -0.0288, -0.02016]),
        (banded.inverse(6), [1.0, -0.5, -0.125, 0.25, -0.078125, -0.0546875]),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-12)
