"""The oracle: the definition of clipped per-example gradients, written out in double precision.

`per_example` takes the gradient of every example by itself with `jax.vmap` of plain `jax.grad`; the
rest is arithmetic in NumPy. `check_against_oracle` runs `bk_jax.dp_value_and_grad` without noise
and compares everything that it returns.

A loss that draws random numbers must say in which dtype it draws (for example
`jax.random.bernoulli(key, jnp.float32(0.9), shape)`), else double precision draws others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bk_jax
from support.tolerance import assert_within, eps, gradient_rtol, norm_rtol

# How much smaller than ideal a factor may be: a certified bound inflates the norm a little.
FACTOR_SLACK = {"float64": 1e-6, "float32": 0.02}


# The oracle runs once: what counts is the time to compile it.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What `dp_value_and_grad` is told about the arguments of the loss."""

    argnums: int | Sequence[int] = 0
    has_aux: bool = False
    batch_argnums: int | Sequence[int] = 1
    keep_batch_dim: bool = True
    prng_argnum: int | None = None


@dataclasses.dataclass(frozen=True)
class PerExample:
    """Losses `[B]`, aux (stacked) and one gradient `[B, ...]` per floating-point leaf, by path."""

    losses: np.ndarray
    aux: Any
    gradients: dict[str, np.ndarray]


def _tuple(numbers: int | Sequence[int]) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)


def _is_real(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.floating))


def _double(tree: Any) -> Any:
    """Floating-point arrays in float64; integers, keys and Python numbers stay."""
    return jax.tree.map(
        lambda x: np.asarray(x).astype(np.float64) if hasattr(x, "dtype") and _is_real(x) else x,
        tree,
    )


def named_leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by path."""
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}


def parameters(args: Sequence[Any], argnums: int | Sequence[int]) -> Any:
    """The differentiated argument, or the tuple of them."""
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def per_example(
    loss_fn: Callable[..., Any], args: Sequence[Any], how: Arguments, **kwargs: Any
) -> PerExample:
    """Gradients of single examples in float64, one `jax.grad` under one `jax.vmap`."""
    with jax.enable_x64(True):
        args = [_double(arg) for arg in args]
        params = parameters(args, how.argnums)
        leaves, treedef = jax.tree.flatten(params)
        trainable = [i for i, leaf in enumerate(leaves) if _is_real(leaf)]
        batched = {i: args[i] for i in _tuple(how.batch_argnums)}
        size = len(jax.tree.leaves(batched)[0])

        def loss(values: list[Any], example: dict[int, Any]) -> Any:
            merged = list(leaves)
            for i, value in zip(trainable, values, strict=True):
                merged[i] = value
            call = list(args)
            tree = jax.tree.unflatten(treedef, merged)
            for i, value in zip(_tuple(how.argnums), _as_sequence(tree, how.argnums), strict=True):
                call[i] = value
            for i, value in example.items():
                one = how.keep_batch_dim and i != how.prng_argnum
                call[i] = jax.tree.map(lambda x: x[None], value) if one else value
            out = loss_fn(*call, **kwargs)
            return out if how.has_aux else (out, None)

        def every_example(values: list[Any], batched: dict[int, Any], key: Any) -> Any:
            if how.prng_argnum is not None:
                batched = {**batched, how.prng_argnum: jax.random.split(key, size)}
            grad_fn = jax.value_and_grad(loss, has_aux=True)
            return jax.vmap(grad_fn, in_axes=(None, 0))(values, batched)

        values = [np.asarray(leaves[i], np.float64) for i in trainable]
        key = None if how.prng_argnum is None else args[how.prng_argnum]
        out = jax.jit(every_example, compiler_options=QUICK)(values, batched, key)
        (losses, aux), gradients = jax.tree.map(np.asarray, out)
        paths = list(named_leaves(params))
        by_path = {paths[i]: g for i, g in zip(trainable, gradients, strict=True)}
        return PerExample(losses, aux, by_path)


def _as_sequence(tree: Any, argnums: int | Sequence[int]) -> Any:
    return (tree,) if isinstance(argnums, int) else tree


def squared_norms(gradients: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Squared norms `[B]` over all given leaves."""
    with np.errstate(invalid="ignore", over="ignore"):
        parts = [np.square(g.reshape(size, int(g[:1].size))).sum(1) for g in gradients]
        return np.sum(parts, axis=0) if parts else np.zeros(size)


def ideal_factors(norms: np.ndarray, clip_norm: float, clipping: Any) -> np.ndarray:
    """The factor of each example by the definition of the clipping function, in float64."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(norms > 0, clip_norm / np.where(norms > 0, norms, 1), np.inf)
        if clipping == "abadi":
            factors = np.minimum(ratio, 1.0)
        elif clipping == "automatic":
            factors = clip_norm / (norms + 0.01)
        elif clipping == "normalize":
            factors = np.where(norms > 0, ratio, 0.0)
        elif clipping == "indicator":
            factors = np.where(norms <= clip_norm, 1.0, 0.0)
        else:
            factors = np.minimum(np.asarray(clipping(jnp.asarray(norms)), np.float64), ratio)
    usable = np.isfinite(norms) & np.isfinite(factors) & (factors > 0) & (clip_norm > 0)
    return np.where(usable, factors, 0.0)


def clip_groups(l2_clip_norm: Any, params: Any) -> tuple[list[float], dict[str, int]]:
    """The clip norms, and for each leaf path the number of the one it belongs to."""
    norms, prefix = jax.tree.flatten(l2_clip_norm)
    numbers = jax.tree.unflatten(prefix, list(range(len(norms))))
    return [float(r) for r in norms], named_leaves(jax.tree.broadcast(numbers, params))


def weighted(factors: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """`sum_i C_i g_i`, where an example with the factor 0 contributes exactly 0."""
    scale = factors.reshape(-1, *[1] * (gradients.ndim - 1))
    return np.where(scale != 0, gradients * scale, 0.0).sum(0)


def check_against_oracle(
    loss_fn: Callable[..., Any],
    *args: Any,
    is_padding_example: Any = None,
    kwargs: dict[str, Any] | None = None,
    rtol: float | None = None,
    jit: bool = True,
    truth: PerExample | None = None,
    **options: Any,
) -> tuple[Any, ...]:
    """Checks value, aux, norms, factors, clipped sums and counts against the oracle.

    Args:
      loss_fn: the loss, as for `dp_value_and_grad`.
      *args: the arguments of the loss: by default parameters, batch.
      is_padding_example: as for the call of the transform.
      kwargs: keyword arguments of the loss.
      rtol: relative error of norms and of the terms of the sums; default: from dtype and sizes.
      jit: whether the transform is compiled as a whole.
      truth: what `per_example` returned for these arguments, to save its time.
      **options: options of `dp_value_and_grad`; unknown ones are handed through.

    Returns:
      What the transform returned, as NumPy arrays, `Stats` last.
    """
    kwargs = kwargs or {}
    how = Arguments(**{k: v for k, v in options.items() if k in Arguments.__dataclass_fields__})
    options = {"noise_multiplier": 0.0, **options, "return_stats": True}
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **options)
    run = jax.jit(grad_fn) if jit else grad_fn
    out = run(*args, is_padding_example=is_padding_example, **kwargs)
    out = jax.tree.map(np.asarray, out)

    truth = truth or per_example(loss_fn, args, how, **kwargs)
    size = len(truth.losses)
    is_padding = np.zeros(size, bool) if is_padding_example is None else is_padding_example
    check = _Check(truth, parameters(args, how.argnums), np.asarray(is_padding), options, rtol)
    check.value(out[0], how.has_aux)
    check.norms_and_factors(out[-1])
    check.sums(out[1], out[-1])
    check.counts(out[-1])
    return out


class _Check:
    """One comparison: what is true, what was asked for, and the tolerances that follow."""

    def __init__(
        self, truth: PerExample, params: Any, is_padding: np.ndarray, options: Any, rtol: Any
    ) -> None:
        self.truth, self.params, self.is_padding, self.options = truth, params, is_padding, options
        self.clip_norms, self.groups = clip_groups(options.get("l2_clip_norm", 1.0), params)
        self.clipping = options.get("clipping", "abadi")
        real = [jnp.result_type(x) for x in jax.tree.leaves(params) if _is_real(x)]
        self.dtype = max(real, key=eps) if real else jnp.dtype(jnp.float32)
        self.double = self.dtype == jnp.float64
        lengths = [len(is_padding), *(n for g in truth.gradients.values() for n in g.shape[1:])]
        self.norm_rtol = rtol or norm_rtol(self.dtype)
        self.sum_rtol = rtol or gradient_rtol(self.dtype, *lengths)

    def group_norms(self, group: int) -> np.ndarray:
        members = [g for path, g in self.truth.gradients.items() if self.groups[path] == group]
        return np.sqrt(squared_norms(members, len(self.is_padding)))

    def reported(self, stats: Any, group: int) -> tuple[np.ndarray, np.ndarray]:
        norms, factors = stats.norms, stats.clip_factors
        expected = (len(self.is_padding), len(self.clip_norms))
        assert norms.shape == factors.shape == (expected if expected[1] != 1 else expected[:1])
        norms, factors = norms.reshape(expected), factors.reshape(expected)
        return norms[:, group].astype(np.float64), factors[:, group].astype(np.float64)

    def value(self, out: Any, has_aux: bool) -> None:
        value, aux = out if has_aux else (out, None)
        real = self.truth.losses[~self.is_padding]
        bound = self.sum_rtol * np.abs(real).mean() if real.size else 0.0
        assert_within(value, real.mean() if real.size else 0.0, bound, "value")
        assert jax.tree.structure(aux) == jax.tree.structure(self.truth.aux)
        for path, expected in named_leaves(self.truth.aux).items():
            bound = self.sum_rtol * np.max(np.abs(expected), initial=0.0)
            assert_within(named_leaves(aux)[path], expected, bound, f"aux{path}")

    def norms_and_factors(self, stats: Any) -> None:
        real = ~self.is_padding
        bound = self.sum_rtol * np.max(np.abs(self.truth.losses[real]), initial=0.0)
        assert_within(stats.losses[real], self.truth.losses[real], bound, "losses")
        for group, clip_norm in enumerate(self.clip_norms):
            true_norms = self.group_norms(group)[real]
            norms, factors = (x[real] for x in self.reported(stats, group))
            finite = np.isfinite(true_norms)
            assert not np.any(np.isfinite(norms[~finite])), (
                "a non-finite gradient has a finite norm"
            )
            true_norms, norms, good = true_norms[finite], norms[finite], factors[finite]
            assert_within(norms, true_norms, self.norm_rtol * true_norms, f"norms, group {group}")
            assert np.all(factors[~finite] == 0), "a non-finite gradient has a factor other than 0"
            self.one_sided(true_norms, norms, good, clip_norm)
            self.near_ideal(true_norms, good, clip_norm)

    def one_sided(
        self, true_norms: np.ndarray, norms: np.ndarray, factors: np.ndarray, clip_norm: float
    ) -> None:
        """`C n <= R`: exactly for the reported norm, and to the error of `g` for the true one."""
        if np.isinf(clip_norm):
            return
        rounded = float(np.float64(clip_norm) if self.double else np.float32(clip_norm))
        over = factors * norms - max(clip_norm, rounded)
        assert np.all(over <= 0), f"factor * norm exceeds R = {clip_norm} by {over.max():.3g}"
        over = factors * true_norms / (clip_norm or 1.0) - (1.0 if clip_norm else 0.0)
        assert np.all(over <= self.norm_rtol), f"clipped norm exceeds R = {clip_norm}: {over.max()}"

    def near_ideal(self, norms: np.ndarray, factors: np.ndarray, clip_norm: float) -> None:
        """Clipping takes no more than it has to."""
        slack = FACTOR_SLACK["float64" if self.double else "float32"]
        ideal = ideal_factors(norms, clip_norm, self.clipping)
        settled = np.ones_like(ideal, bool)
        if self.clipping == "indicator":  # a jump: near R either side is right
            settled = (
                np.abs(norms - clip_norm) > slack * clip_norm if clip_norm < np.inf else settled
            )
        low = factors < (1 - slack) * ideal
        assert not np.any(low & settled), f"factors {factors} fall short of the ideal {ideal}"
        if isinstance(self.clipping, str):
            high = factors > (1 + self.norm_rtol) * ideal
            assert not np.any(high & settled), f"factors {factors} exceed the ideal {ideal}"

    def sums(self, grads: Any, stats: Any) -> None:
        """`grads == sum_i C_i g_i / normalize_by` with the reported `C_i`."""
        assert jax.tree.structure(grads) == jax.tree.structure(self.params)
        divisor = float(self.options.get("normalize_by", 1.0))
        wanted = self.options.get("dtype")
        leaves = named_leaves(self.params)
        for path, got in named_leaves(grads).items():
            dtype = jnp.result_type(leaves[path])
            assert got.shape == np.shape(leaves[path]), path
            if path not in self.truth.gradients:
                assert got.dtype == dtype, path
                assert not np.any(got), f"{path} is not trainable but has a gradient"
                continue
            assert got.dtype == (wanted or dtype), path
            _, factors = self.reported(stats, self.groups[path])
            assert np.all(factors[self.is_padding] == 0), "a padding example has a factor"
            self.one_sum(path, got, factors, self.truth.gradients[path], divisor)

    def one_sum(
        self, path: str, got: Any, factors: np.ndarray, gradients: np.ndarray, divisor: float
    ) -> None:
        expected = weighted(factors, gradients) / divisor
        norms = np.sqrt(squared_norms([gradients], len(factors)))
        scale = np.sum(np.where(factors != 0, factors * norms, 0.0)) / divisor
        rounding = eps(got.dtype) * np.abs(expected)  # of the cast to the returned dtype
        assert_within(got, expected, self.sum_rtol * scale + rounding, f"clipped sum of {path}")

    def counts(self, stats: Any) -> None:
        real = ~self.is_padding
        norms = np.stack([self.group_norms(g) for g in range(len(self.clip_norms))], axis=1)
        nonfinite = ~np.all(np.isfinite(norms), axis=1) & real
        assert int(stats.nonfinite_count) == nonfinite.sum()
        factors = stats.clip_factors.reshape(len(real), len(self.clip_norms))
        clipped = np.any(factors < 1, axis=1) & real
        fraction = clipped.sum() / max(real.sum(), 1)
        assert_within(stats.clipped_fraction, fraction, eps(jnp.float32), "clipped_fraction")
