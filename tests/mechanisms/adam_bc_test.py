"""DP-AdamBC against the formula, step by step in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bk_jax import mechanisms


def test_the_formula():
    optimizer = mechanisms.adam_bc(0.1, noise_stddev=0.5, b1=0.9, b2=0.99, floor=1e-3)
    x = {"w": jnp.zeros(50)}
    state = optimizer.init(x)
    m = v = expected = np.zeros(50)
    rng = np.random.default_rng(0)
    for t in range(1, 20):
        g = rng.normal(size=50).astype(np.float32)
        updates, state = optimizer.update({"w": g}, state, x)
        x = optax.apply_updates(x, updates)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g.astype(np.float64) ** 2
        corrected = np.maximum(v / (1 - 0.99**t) - 0.25, 1e-3)
        expected = expected - 0.1 * m / (1 - 0.9**t) / np.sqrt(corrected)
    np.testing.assert_allclose(x["w"], expected, rtol=1e-4, atol=1e-4)


def test_the_second_moment_of_pure_noise_is_corrected_to_nothing():
    """Where Adam divides by the noise, this one divides by the signal."""
    optimizer = mechanisms.adam_bc(1.0, noise_stddev=2.0, b1=0.0, b2=0.999, floor=1e-6)
    x = jnp.zeros(400)
    state = optimizer.init(x)
    rng = np.random.default_rng(1)
    step = jax.jit(lambda g, state: optimizer.update(g, state, x)[1])
    for _ in range(2000):
        state = step((3 + 2 * rng.normal(size=400)).astype(np.float32), state)
    moment = np.asarray(state[0].nu) / (1 - 0.999**2000) - 4
    assert np.mean(moment) == pytest.approx(9, rel=0.02)


@pytest.mark.parametrize("options", [{"noise_stddev": 0.0}, {"noise_stddev": 1.0, "floor": -1.0}])
def test_errors(options):
    with pytest.raises(ValueError, match="must be finite and above 0"):
        mechanisms.adam_bc(0.1, **options)
