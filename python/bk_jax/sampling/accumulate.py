"""Accumulation: a logical batch in physical parts, with one draw of noise for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.ops.numerics import accumulation_dtype
from bk_jax.sampling.batches import Batch


class Sums(NamedTuple):
    """The running sums: clipped gradients, losses, and examples."""

    gradients: Any
    loss: jax.Array
    size: jax.Array
    clipped: jax.Array
    nonfinite: jax.Array


class BatchStats(NamedTuple):
    """Statistics of a batch in parts. Not private: for monitoring and tests only.

    >>> import bk_jax, jax.numpy as jnp, numpy as np
    >>> from bk_jax import sampling
    >>> grad_fn = bk_jax.dp_value_and_grad(
    ...     lambda w, x: jnp.sum(w * x), noise_multiplier=0.0, return_stats=True)
    >>> part = sampling.Batch(np.asarray([[2.0], [0.5]], np.float32), np.zeros(2, bool))
    >>> _, _, stats = sampling.accumulated(grad_fn)(jnp.zeros(1), [part, part])
    >>> print(stats.size, stats.clipped_fraction)
    4 0.5
    """

    size: jax.Array
    clipped_fraction: jax.Array
    nonfinite_count: jax.Array


def accumulated(grad_fn: DPValueAndGrad) -> Accumulated:
    """Makes `grad_fn` take a batch in parts: clip each, add them up, add noise once, divide once.

    The noise and the divisor are those of `grad_fn` on the whole batch; the sum differs only by the
    order of additions. Sums are kept in float32 or wider. All parts have one shape, so the part and
    the final step are each compiled once. Do not put `jax.jit` around the result: it loops over the
    parts in Python.

    >>> import jax, jax.numpy as jnp, bk_jax, numpy as np
    >>> from bk_jax import sampling
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(w * x), noise_multiplier=0.0)
    >>> loader = sampling.Loader(np.ones((20, 1)), sampling.PoissonSampler(20, 20), 8)
    >>> parts = loader.physical_batches(jax.random.key(0))
    >>> value, grads = sampling.accumulated(grad_fn)(jnp.zeros(1), parts)
    >>> print(grads)
    [20.]

    Args:
      grad_fn: made by `dp_value_and_grad`, with the parameters as argument 0 and the batch as
        argument 1, without `has_aux`.

    Returns:
      A function `(params, batches, *others, key=None) -> (value, grads)`, with `BatchStats` as a
      last element if `grad_fn` has `return_stats`. `batches` are `bk_jax.sampling.Batch`es; an
      empty iterable yields pure noise. If an argument is a PRNG key for the loss (`prng_argnum`),
      the number of the part is folded into it.
    """
    if type(grad_fn) is not DPValueAndGrad:
        raise TypeError(
            "accumulated needs what bk_jax.dp_value_and_grad returns, with parameters as a tree of "
            f"arrays, got a {type(grad_fn).__name__}. Split the model first, as in docs/interop.md, or "
            "let microbatch_size divide the batch inside the step."
        )
    signature = grad_fn.signature
    if signature.argnums != (0,) or signature.batch_argnums != (1,) or not grad_fn.single:
        raise ValueError(
            "accumulated needs a grad_fn with argnums=0 and batch_argnums=1, got argnums="
            f"{signature.argnums} and batch_argnums={signature.batch_argnums}."
        )
    if signature.has_aux:
        raise ValueError(
            "accumulated returns the value and the gradient; make grad_fn without has_aux, which is "
            "per example."
        )
    return Accumulated(grad_fn)


class Accumulated:
    """The function that `accumulated` returns.

    >>> import bk_jax, jax.numpy as jnp, numpy as np
    >>> from bk_jax import sampling
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(w * x), normalize_by=4.0)
    >>> parts = [sampling.Batch(np.ones((2, 1), np.float32), np.zeros(2, bool)) for _ in range(2)]
    >>> whole = sampling.accumulated(grad_fn)
    >>> value, grads = whole(jnp.zeros(1), parts, key=bk_jax.random.key())
    >>> grads.shape
    (1,)
    """

    def __init__(self, grad_fn: DPValueAndGrad):
        self.grad_fn = grad_fn
        self._add: Callable[..., Sums] = jax.jit(self._add_part, donate_argnums=0)
        self._end: Callable[..., Any] = jax.jit(self._finish)

    def __call__(
        self, params: Any, batches: Iterable[Batch], *others: Any, key: Any = None, **kwargs: Any
    ) -> Any:
        """Adds up the parts, and releases the sum; see `accumulated`."""
        validate.key_given(key, self.grad_fn.noise_multiplier)
        return self._end(self.add_up(params, batches, *others, **kwargs), params, key)

    def add_up(self, params: Any, batches: Iterable[Batch], *others: Any, **kwargs: Any) -> Sums:
        """The sums over all parts, without noise. NOT private."""
        sums = _zeros(params)
        for number, batch in enumerate(batches):
            sums = self._add(sums, params, batch, others, kwargs, number)
        return sums

    def _add_part(
        self,
        sums: Sums,
        params: Any,
        batch: Batch,
        others: tuple[Any, ...],
        kwargs: dict[str, Any],
        number: Any,
    ) -> Sums:
        args = [params, batch.examples, *others]
        if (prng := self.grad_fn.signature.prng_argnum) is not None:
            args[prng] = jax.random.fold_in(args[prng], number)
        is_padding = jnp.asarray(batch.is_padding_example)
        part = self.grad_fn.clipped_sums(*args, is_padding_example=is_padding, **kwargs)
        stats = part.stats
        loss = jnp.sum(jnp.where(is_padding, 0, stats.losses.astype(sums.loss.dtype)))
        return Sums(
            jax.tree_util.tree_map(jnp.add, sums.gradients, part.sums),
            sums.loss + loss,
            sums.size + jnp.sum(~is_padding),
            sums.clipped + _count_clipped(stats.clip_factors, is_padding),
            sums.nonfinite + stats.nonfinite_count,
        )

    def _finish(self, sums: Sums, params: Any, key: Any) -> Any:
        grads = self.grad_fn.release(sums.gradients, key, like=params)
        value, stats = summary(sums)
        return (value, grads, stats) if self.grad_fn.return_stats else (value, grads)


def summary(sums: Sums) -> tuple[jax.Array, BatchStats]:
    """The mean loss, and the statistics of the batch. Not private."""
    count = jnp.maximum(sums.size, 1)
    stats = BatchStats(sums.size, sums.clipped / count, sums.nonfinite)
    return sums.loss / count, stats


def _count_clipped(factors: jax.Array, is_padding: jax.Array) -> jax.Array:
    """Examples with any group of parameters clipped; factors are `[B]` or `[B, groups]`."""
    clipped = jnp.any(factors.reshape(len(factors), -1) < 1, axis=1)
    return jnp.sum(clipped & ~is_padding)


@jax.jit
def _zeros(params: Any) -> Sums:
    def zeros(x: Any) -> jax.Array:
        is_real = jnp.issubdtype(x.dtype, jnp.floating)
        return jnp.zeros(x.shape, accumulation_dtype(x.dtype) if is_real else x.dtype)

    counts = [jnp.zeros((), jnp.int32) for _ in range(3)]
    return Sums(jax.tree_util.tree_map(zeros, params), jnp.zeros(()), *counts)
