"""Empirical epsilon: how well runs with a canary can be told from runs without it.

If a mechanism is (epsilon, delta)-private, no test can have

    P(test says "with" | with) > exp(epsilon) * P(test says "with" | without) + delta

nor the same with "with" and "without" exchanged. So the rates of any test give a lower bound of
epsilon. The rates are estimated from a number of runs; Clopper-Pearson intervals turn counts into a
bound that holds with the stated confidence. The test is a threshold on a number that each run
returns. It is chosen on one half of the runs and counted on the other, so the choice does not bias
the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from bk_jax import random, validate

Run = Callable[[Any, bool], Any]


def empirical_epsilon(
    run: Run, *, delta: float, trials: int = 1000, confidence: float = 0.95, key: Any = None
) -> float:
    """A lower bound of epsilon that holds with the given confidence, from `2 * trials` runs.

    >>> import jax
    >>> def run(key, included):  # a sum of at most one number of size 1, with noise
    ...     return (1.0 if included else 0.0) + 0.1 * jax.random.normal(key)
    >>> epsilon = empirical_epsilon(run, delta=1e-5, trials=400)
    >>> print(f"{epsilon:.1f}")  # no more can be shown with so few trials
    4.0

    Args:
      run: `run(key, included)` runs the mechanism on data with or without the canary, and returns a
        number that tends to be larger (or smaller) with it; see `canary_statistic`. It is compiled
        for all trials at once, with `vmap` over keys.
      delta: the delta of the guarantee.
      trials: the number of runs of each kind. The bound cannot exceed about `log(trials / 7.4)`.
      confidence: the probability that the bound holds.
      key: a PRNG key; by default from a fixed seed.
    """
    if trials < 2:
        raise ValueError(f"trials must be at least 2, got {trials}: half of them choose the test.")
    keys = jax.random.split(random.key(0) if key is None else key, 2 * trials)
    with_canary = jax.jit(jax.vmap(lambda k: run(k, True)))(keys[:trials])
    without = jax.jit(jax.vmap(lambda k: run(k, False)))(keys[trials:])
    return epsilon_lower_bound(with_canary, without, delta=delta, confidence=confidence)


def canary_statistic(
    grad_fn: Callable[..., Any],
    params: Any,
    batch: Any,
    *,
    canary: int = 0,
    steps: int = 1,
    kwargs: Mapping[str, Any] | None = None,
) -> Run:
    """A run for `empirical_epsilon`: a private gradient of a batch that contains a canary.

    Without the canary, its row is padding. The number is the inner product of the result with what
    the canary adds to it, summed over `steps` releases at the same parameters with fresh keys.

    Args:
      grad_fn: a function that `dp_value_and_grad` returned, or one called in the same way.
      params: the parameters.
      batch: a batch; the attacker knows the other examples in it.
      canary: the row of the canary; the example with the largest gradient reveals most.
      steps: the number of releases.
      kwargs: other keyword arguments of `grad_fn`.

    >>> import bk_jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(w * x), noise_multiplier=4.0)
    >>> run = canary_statistic(grad_fn, jnp.zeros(2), jnp.ones((3, 2)))
    >>> empirical_epsilon(run, trials=200, delta=1e-3, key=bk_jax.random.key(0)) < 1.0
    True
    """
    size = validate.batch_size(batch)
    is_canary = np.arange(size) == canary

    def gradient(key: Any, included: bool) -> jax.Array:
        padding = np.zeros(size, bool) if included else is_canary
        options = {**(kwargs or {}), "key": key, "is_padding_example": jnp.asarray(padding)}
        leaves = jax.tree_util.tree_leaves(grad_fn(params, batch, **options)[1])
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in leaves])

    @jax.jit
    def added(key: Any) -> jax.Array:
        return gradient(key, True) - gradient(key, False)  # the noise cancels

    direction = added(random.key(0))
    length = float(jnp.linalg.norm(direction))
    if not length > 0:
        raise ValueError(f"example {canary} adds nothing to the result; choose another canary.")
    unit = direction / length

    def run(key: Any, included: bool) -> jax.Array:
        keys = jax.random.split(key, steps)
        return jnp.sum(jax.vmap(lambda k: jnp.vdot(gradient(k, included), unit))(keys))

    return run


def epsilon_lower_bound(
    with_canary: Any, without: Any, *, delta: float, confidence: float = 0.95
) -> float:
    """A lower bound of epsilon from the numbers that runs with and without a canary returned.

    >>> import numpy as np
    >>> print(f"{epsilon_lower_bound(np.ones(2000), np.zeros(2000), delta=0.0):.2f}")
    5.60
    >>> epsilon_lower_bound(np.arange(2000), np.arange(2000), delta=0.0)
    0.0
    """
    if not 0 <= delta < 1 or not 0 < confidence < 1:
        raise ValueError(f"need 0 <= delta < 1 and 0 < confidence < 1, got {delta}, {confidence}.")
    (choose_with, count_with), (choose_without, count_without) = map(halves, (with_canary, without))
    alpha = (1 - confidence) / 2  # two rates are bounded, each with half of the risk
    tests = [
        (*_best_test(sign * a, sign * b, delta, alpha), sign, exchanged)
        for sign in (1, -1)
        for exchanged, (a, b) in enumerate(_both_ways(choose_with, choose_without))
    ]
    _, threshold, sign, exchanged = max(tests)
    a, b = _both_ways(count_with, count_without)[exchanged]
    (bound,) = _bounds(sign * a, sign * b, np.asarray([threshold]), delta, alpha)
    return max(0.0, float(bound))


def checked(values: Any) -> np.ndarray:
    """What runs returned, as numbers that can be compared."""
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or numbers.size < 2 or not np.all(np.isfinite(numbers)):
        raise ValueError(
            "each kind of run must give a vector of at least 2 finite numbers, one for each run; got "
            f"shape {numbers.shape}."
        )
    return numbers


def halves(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers to choose a test by, and numbers to count it on."""
    numbers = checked(values)
    return numbers[::2], numbers[1::2]


def _both_ways(a: np.ndarray, b: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    return (a, b), (b, a)


def _best_test(a: np.ndarray, b: np.ndarray, delta: float, alpha: float) -> tuple[float, float]:
    """The largest bound that any threshold gives, and that threshold."""
    thresholds = np.unique(np.concatenate([a, b]))
    bounds = _bounds(a, b, thresholds, delta, alpha)
    best = int(np.argmax(bounds))
    return float(bounds[best]), float(thresholds[best])


def _bounds(
    a: np.ndarray, b: np.ndarray, thresholds: np.ndarray, delta: float, alpha: float
) -> np.ndarray:
    """`log((P(a >= t) - delta) / P(b >= t))`, with the least first rate and the largest second."""
    rate_a = least_rate(count_from(a, thresholds), a.size, alpha)
    rate_b = largest_rate(count_from(b, thresholds), b.size, alpha)
    return np.log(np.maximum(rate_a - delta, np.finfo(float).tiny) / rate_b)


def count_from(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many numbers are at least each threshold."""
    return values.size - np.searchsorted(np.sort(values), thresholds, side="left")


def least_rate(successes: Any, trials: int, alpha: float) -> np.ndarray:
    """Clopper-Pearson: the rate is below this with probability at most `alpha`.

    >>> print(least_rate([0, 10], 10, 0.05))  # 0.05 ** (1 / 10)
    [0.         0.74113445]
    """
    k = np.asarray(successes)
    return np.where(k == 0, 0.0, special.betaincinv(np.maximum(k, 1), trials - k + 1, alpha))


def largest_rate(successes: Any, trials: int, alpha: float) -> np.ndarray:
    """Clopper-Pearson: the rate is above this with probability at most `alpha`.

    >>> print(largest_rate([0, 10], 10, 0.05))
    [0.25886555 1.        ]
    """
    k = np.asarray(successes)
    rest = np.maximum(trials - k, 1)
    return np.where(k == trials, 1.0, special.betaincinv(k + 1, rest, 1 - alpha))
