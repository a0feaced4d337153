"""DP-AdamBC: Adam whose second moment is corrected for the noise (Tang, Shpilevskiy, Lecuyer, 2024).

Noise of variance `s^2` adds `s^2` to the average of squared gradients, which is known exactly and can
be subtracted. Without that, Adam under much noise is momentum with a fixed step size.

    u = m / sqrt(max(v - s^2, floor))        m, v: Adam's moments without bias
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import checks
from bk_jax._extras import require


def adam_bc(
    learning_rate: Any,
    noise_stddev: float,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    floor: float = 1e-8,
) -> Any:
    """An `optax.GradientTransformation`; its state is that of `optax.adam`.

    It sees noisy gradients only, so it costs no privacy.

    >>> import optax
    >>> optimizer = adam_bc(1.0, noise_stddev=3.0, b1=0.0, b2=0.0)
    >>> params = jnp.zeros(2)
    >>> updates, _ = optimizer.update(jnp.asarray([5.0, 1.0]), optimizer.init(params), params)
    >>> print(updates)  # -5 / sqrt(25 - 9), and 1 - 9 is below the floor
    [-1.25e+00 -1.00e+04]

    Args:
      learning_rate: a number or a schedule of optax.
      noise_stddev: deviation of the noise in the gradients that it gets:
        `grad_fn.noise_stddev() / normalize_by`. With correlated noise, the deviation of one step's.
      b1: decay of the first moment.
      b2: decay of the second moment.
      floor: the least that the corrected second moment may be. Where gradients are far below the noise
        it sets the step size, so it is a setting like the learning rate.
    """
    optax = require("optax", "optax")
    variance = checks.positive("noise_stddev", noise_stddev) ** 2
    least = checks.positive("floor", floor)
    adam = optax.scale_by_adam(b1=b1, b2=b2)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        _, state = adam.update(updates, state, params)
        unbias = 1 - jnp.asarray(b1) ** state.count
        second_unbias = 1 - jnp.asarray(b2) ** state.count

        def direction(m: jax.Array, v: jax.Array) -> jax.Array:
            corrected = jnp.maximum(v / second_unbias - variance, least)
            return (m / unbias / jnp.sqrt(corrected)).astype(m.dtype)

        return jax.tree_util.tree_map(direction, state.mu, state.nu), state

    corrected = optax.GradientTransformation(adam.init, update)
    return optax.chain(corrected, optax.scale_by_learning_rate(learning_rate))
