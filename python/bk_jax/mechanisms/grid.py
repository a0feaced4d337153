"""Noise on a grid: sums of integers and discrete Gaussian noise, so that rounding breaks no proof.

Every example's clipped gradient becomes integers whose norm is checked exactly (`rounding`). Integers
are added without rounding, and noise is a discrete Gaussian of `2^bits` grid steps (`ops.
discrete_gaussian`). Everything after that is post-processing. docs/numerics.md has the theorem.

    Q^2 = floor((2^bits / noise_multiplier)^2)      no example's integers have a longer norm than Q
    step = noise_multiplier * sensitivity / 2^bits  what an integer stands for

Examples are taken one by one: an example's integers must be a function of that example alone, or of it
and of a secret key that no other example of the batch has (`prng_argnum`).
"""

from __future__ import annotations

import dataclasses
import fractions
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import checks, validate
from bk_jax._extras import require
from bk_jax.grad_fn import ClippedSums, DPValueAndGrad
from bk_jax.mechanisms.rounding import LARGEST, to_grid
from bk_jax.noise import add_grid_noise
from bk_jax.ops._gaussian_pieces import DEVIATIONS
from bk_jax.ops.discrete_gaussian import LEAST_BITS, MOST_BITS
from bk_jax.summing.stats import Stats

WHOLE_ORDERS = (*range(2, 129), 160, 192, 256, 384, 512, 1024)
MOST_SHRINKING = 0.01


def on_grid(grad_fn: DPValueAndGrad, *, bits: int = 18) -> GridRelease:
    """The sums of `grad_fn` on a grid, with discrete Gaussian noise of `2^bits` grid steps.

    >>> import bk_jax
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum(), noise_multiplier=2.0)
    >>> private = on_grid(grad_fn)
    >>> sums = private.clipped_sums(jnp.zeros(3), jnp.ones((4, 3))).sums
    >>> sums.dtype
    dtype('int32')
    >>> grads = private.release(sums, bk_jax.random.key())
    >>> private.event(), private.most_examples
    (GaussianDpEvent(noise_multiplier=2.0), 16351)

    Args:
      grad_fn: from `dp_value_and_grad`, with a clip norm and a noise multiplier that are numbers, and
        without `has_aux`.
      bits: from 8 to 24. More bits round less and leave room for fewer examples in 32 bits:
        `most_examples`. The default suits up to 10^9 parameters.
    """
    if not isinstance(grad_fn, DPValueAndGrad):
        raise TypeError(
            "on_grid expects grad_fn to be what dp_value_and_grad returned, not wrapped in jit or in "
            f"another function; got {type(grad_fn).__name__}."
        )
    if grad_fn.signature.has_aux or not grad_fn.single:
        raise ValueError("on_grid expects a grad_fn with one tree of parameters, and no has_aux.")
    known = [("noise_multiplier", grad_fn.noise_multiplier)]
    known += [("l2_clip_norm", n) for n in jax.tree_util.tree_leaves(grad_fn.l2_clip_norm)]
    for name, value in known:
        if not (number := validate.concrete(value, name)) or not math.isfinite(number):
            raise ValueError(
                f"noise on a grid needs a {name} that is a number above 0 and known now; got {value}."
            )
    return GridRelease(grad_fn, bits)


@dataclasses.dataclass(frozen=True)
class GridRelease:
    """What `on_grid` returns: the two halves of `grad_fn`, in integers.

    >>> import bk_jax
    >>> private = GridRelease(bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum()), bits=10)
    >>> private.bound_squared == 1024**2, private.step == 1 / 1024
    (True, True)
    """

    grad_fn: DPValueAndGrad
    bits: int

    def __post_init__(self) -> None:
        checks.whole_number("bits", self.bits, LEAST_BITS)
        if self.bits > MOST_BITS or self.bound_squared > LARGEST**2:
            most = min(MOST_BITS, MOST_BITS + math.floor(math.log2(self.multiplier)))
            raise ValueError(
                f"bits={self.bits} with noise_multiplier={self.multiplier:g} needs integers beyond 2^24 "
                f"for one example. Pass at most {most} bits."
            )

    @property
    def multiplier(self) -> float:
        """The noise multiplier."""
        return float(self.grad_fn.noise_multiplier)

    @property
    def bound_squared(self) -> int:
        """The largest sum of squares of one example's integers; exact."""
        return math.floor((2**self.bits / fractions.Fraction(self.multiplier)) ** 2)

    @property
    def step(self) -> float:
        """What an integer stands for: the distance of neighbours on the grid."""
        return float(self.grad_fn.noise_stddev()) / 2**self.bits

    @property
    def most_examples(self) -> int:
        """How many examples fit into 32 bits with their noise; beyond, sums wrap round."""
        room = 2**31 - 1 - DEVIATIONS * 2**self.bits
        return max(0, room // max(1, math.isqrt(self.bound_squared)))

    def shrinking(self, size: int) -> float:
        """What `size` numbers are shrunk by, so that rounding to the nearest rarely makes them too long.

        Rounding adds 1/12 to each square on average, and twice `q` times a rounding error, which adds up
        to a deviation of 0.6 times the norm; 8 times the norm is allowed for.
        """
        bound = math.sqrt(self.bound_squared)
        return size / (24 * bound**2) + 4 / bound

    def event(self) -> Any:
        """One release, as a `dp_accounting.DpEvent`: a Gaussian's, for `accountant()` and no other."""
        return require("dp_accounting", "dp-accounting").dp_event.GaussianDpEvent(self.multiplier)

    def accountant(self) -> Any:
        """Renyi accounting at whole orders, where a discrete Gaussian's moments are a Gaussian's.

        That is so with Poisson sampling, too. `PrivacyPlan(accountant="rdp_whole")` uses the same.
        """
        rdp = require("dp_accounting", "dp-accounting").rdp
        return rdp.RdpAccountant(orders=WHOLE_ORDERS)

    def clipped_sums(
        self, *args: Any, is_padding_example: Any = None, **kwargs: Any
    ) -> ClippedSums:
        """`grad_fn.clipped_sums` in grid steps, as int32: sums may be added up. NOT private.

        A loss that draws random numbers needs a secret key, another one for each part of a batch.
        """
        rows = [args[i] for i in self.grad_fn.signature.batch_argnums]
        size = validate.batch_size(rows)
        if size > self.most_examples:
            raise ValueError(
                f"{size} examples do not fit into 32 bits with bits={self.bits}, which leaves room for "
                f"{self.most_examples}. Pass fewer bits."
            )
        is_padding = jnp.zeros(size, bool) if is_padding_example is None else is_padding_example
        validate.padding_mask(is_padding, size)
        return self._added_up(args, kwargs, rows, jnp.asarray(is_padding))

    def release(self, sums: Any, key: Any, *, like: Any = None) -> Any:
        """The private gradient from integer sums: noise, then everything that only looks at the result.

        Args:
          sums: from `clipped_sums`, or several added up.
          key: the key of the noise.
          like: the parameters, whose dtypes the result has; default: float32.
        """
        manual = self.grad_fn.check_release(key)
        leaves, treedef = jax.tree_util.tree_flatten(sums)
        models = leaves if like is None else jax.tree_util.tree_leaves(like)
        real = [i for i, model in enumerate(models) if like is None or _is_real(model)]
        with jax.named_scope("bk.noise"):
            noisy = add_grid_noise([leaves[i] for i in real], key, self.bits, manual)
        size = self.step / self.grad_fn.normalize_by
        for i, total in zip(real, noisy, strict=True):
            dtype = self.grad_fn.dtype or (jnp.float32 if like is None else models[i].dtype)
            wide = jnp.promote_types(dtype, jnp.float32)
            leaves[i] = (total.astype(wide) * jnp.asarray(size, wide)).astype(dtype)
        return jax.tree_util.tree_unflatten(treedef, leaves)

    def _added_up(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], rows: Any, is_padding: jax.Array
    ) -> ClippedSums:
        params = args[self.grad_fn.signature.argnums[0]]
        zeros = jax.tree_util.tree_map(_zeros, params)

        def add(sums: Any, example: tuple[Any, ...]) -> tuple[Any, Any]:
            number, padding, row = example
            found = self.grad_fn.clipped_sums(
                *self._one(args, row, number), is_padding_example=padding[None], **kwargs
            )
            integers, is_kept = self._rounded(found.sums)
            added = jax.tree_util.tree_map(jnp.add, sums, integers)
            stats = found.stats
            lost = (~is_kept & ~padding) | (stats.nonfinite_count > 0)
            return added, (
                stats.losses[0],
                stats.norms[0],
                stats.clip_factors[0],
                lost,
            )

        examples = (jnp.arange(len(is_padding)), is_padding, rows)
        sums, (losses, norms, factors, lost) = jax.lax.scan(add, zeros, examples)
        count = jnp.maximum(jnp.sum(~is_padding), 1)
        value = (jnp.sum(jnp.where(is_padding, 0, losses)) / count).astype(losses.dtype)
        clipped = jnp.any(factors.reshape(len(factors), -1) < 1, axis=1) & ~is_padding
        stats = Stats(losses, norms, factors, jnp.sum(clipped) / count, jnp.sum(lost))
        return ClippedSums(sums, value, (), stats)

    def _one(self, args: Sequence[Any], row: Any, number: jax.Array) -> list[Any]:
        """The arguments of a call for one example; its key is that of its place, and of no other."""
        signature, own = self.grad_fn.signature, list(args)
        for i, example in zip(signature.batch_argnums, row, strict=True):
            own[i] = jax.tree_util.tree_map(lambda x: x[None], example)
        if signature.prng_argnum is not None:
            own[signature.prng_argnum] = jax.random.fold_in(own[signature.prng_argnum], number)
        return own

    def _rounded(self, gradient: Any) -> tuple[Any, jax.Array]:
        leaves, treedef = jax.tree_util.tree_flatten(gradient)
        real = [i for i, leaf in enumerate(leaves) if _is_real(leaf)]
        shrinking = self.shrinking(sum(leaves[i].size for i in real))
        if shrinking > MOST_SHRINKING:
            raise ValueError(
                f"a grid of bits={self.bits} is too coarse for {sum(leaves[i].size for i in real)} "
                f"parameters: rounding would cost {shrinking:.0%} of every gradient. Pass more bits."
            )
        scale = (1 - shrinking) / self.step
        rounded = to_grid([leaves[i] for i in real], scale, self.bound_squared)
        for i, integers in zip(real, rounded.integers, strict=True):
            leaves[i] = integers
        return jax.tree_util.tree_unflatten(treedef, leaves), rounded.is_kept


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _zeros(leaf: Any) -> jax.Array:
    array = jnp.asarray(leaf)
    return jnp.zeros(array.shape, jnp.int32 if _is_real(array) else array.dtype)
