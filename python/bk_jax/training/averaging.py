"""Averages of parameters along a run: an optimizer that keeps one beside its own state.

Noise moves the parameters to and fro; an average over the last steps has less of it. It is made of
parameters that are private already, so it costs nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import checks
from bk_jax._extras import require


class Averaged(NamedTuple):
    """The state of an optimizer made by `averaged`: steps taken, the average, its optimizer's state."""

    steps: jax.Array
    average: Any
    inner: Any


def averaged(optimizer: Any, decay: float) -> Any:
    """The optimizer, which also keeps an exponential moving average of the parameters.

    A step multiplies the average by `decay`, or by `(1 + steps) / (10 + steps)` while that is less, so
    that the start is forgotten soon. `fit` evaluates and returns the average.

    Args:
      optimizer: of optax.
      decay: between 0 and 1; 0.99 averages over the last hundred steps.

    >>> import optax, numpy as np
    >>> optimizer = averaged(optax.sgd(1.0), decay=0.5)
    >>> state = optimizer.init(np.float32(0))
    >>> updates, state = optimizer.update(np.float32(-1), state, np.float32(0))
    >>> print(f"{updates:.1f} {average_of(state):.1f}")  # 0.1 * 0 + 0.9 * 1
    1.0 0.9
    """
    optax = require("optax", "optax")
    if not 0 < checks.positive("decay", decay) < 1:
        raise ValueError(f"decay must be less than 1, such as 0.99, got {decay}.")

    def init(params: Any) -> Averaged:
        return Averaged(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    def update(grads: Any, state: Averaged, params: Any) -> tuple[Any, Averaged]:
        updates, inner = optimizer.update(grads, state.inner, params)
        kept = jnp.minimum(decay, (1 + state.steps) / (10 + state.steps))
        new = optax.apply_updates(params, updates)
        average = optax.incremental_update(new, state.average, 1 - kept)
        return updates, Averaged(state.steps + 1, average, inner)

    return optax.GradientTransformation(init, update)


def average_of(optimizer_state: Any, otherwise: Any = None) -> Any:
    """The average in the state of an optimizer made by `averaged`; of any other, `otherwise`.

    >>> import optax
    >>> average_of(averaged(optax.sgd(0.1), decay=0.9).init({"w": 1.0}))
    {'w': 1.0}
    >>> average_of(optax.sgd(0.1).init({"w": 1.0}), otherwise="none is kept")
    'none is kept'
    """
    return optimizer_state.average if isinstance(optimizer_state, Averaged) else otherwise
