"""The public transform: `dp_value_and_grad`."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex

import jax

from bk_jax import validate
from bk_jax.clip import ClippingFunction
from bk_jax.grad_fn import ClippedSums, DPValueAndGrad
from bk_jax.planning.devices import check_device
from bk_jax.planning.methods import get_method
from bk_jax.program.trace import Signature
from bk_jax.summing.stats import Stats

__all__ = ["ClippedSums", "DPValueAndGrad", "Stats", "clipped_value_and_grad", "dp_value_and_grad"]


def dp_value_and_grad(
    loss_fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    l2_clip_norm: Any = 1.0,
    noise_multiplier: Any = 1.0,
    normalize_by: Any = 1.0,
    clipping: str | ClippingFunction = "abadi",
    pre_clip_scale: Any = None,
    loss_scale: Any = None,
    batch_argnums: int | Sequence[int] = 1,
    keep_batch_dim: bool = True,
    prng_argnum: int | None = None,
    shared_argnames: str | Sequence[str] = (),
    method: str = "auto",
    routes: Mapping[str, str] | None = None,
    microbatch_size: int | str | None = None,
    memory_limit: int | float | None = None,
    return_stats: bool = False,
    dtype: Any = None,
    device: str | None = None,
) -> DPValueAndGrad:
    """Like `jax.value_and_grad`, with every example's gradient clipped and noise added to the sum.

    The gradient that comes back is

        (sum_i C_i g_i + noise_multiplier * sensitivity * N(0, I)) / normalize_by

    where `g_i` is the gradient of `loss_fn` at example `i` alone and `C_i` scales it so that its norm
    is at most `l2_clip_norm`.

    >>> import jax, jax.numpy as jnp, bk_jax
    >>> def loss_fn(w, batch):
    ...     x, y = batch
    ...     return jnp.mean((x @ w - y) ** 2)
    >>> w = jnp.zeros(2)
    >>> batch = (jnp.asarray([[3.0, 4.0], [0.3, 0.4]]), jnp.asarray([-1.0, -1.0]))
    >>> grad_fn = bk_jax.dp_value_and_grad(loss_fn, l2_clip_norm=2.0, noise_multiplier=0.0)
    >>> value, grad = jax.jit(grad_fn)(w, batch)
    >>> print(value, [f"{g:.3f}" for g in grad])  # gradients (6, 8) and (0.6, 0.8): norms 10 and 1
    1.0 ['1.800', '2.400']

    Args:
      loss_fn: the loss of ONE example. It sees a batch whose leading axis has size 1
        (`keep_batch_dim=True`: ordinary batched model code works unchanged) or the bare example
        (`False`). Examples are computed side by side, as under `vmap`: one cannot influence another's
        gradient; a BatchNorm in training mode sees one example.
      argnums: the argument(s) to differentiate, as in `jax.value_and_grad`.
      has_aux: whether `loss_fn` returns `(loss, aux)`; aux comes back stacked per example.
      l2_clip_norm: the clip norm R, a number or traced scalar; or a tree of numbers that is a prefix
        of the parameters: then each subtree is clipped by itself, and the sensitivity is the root of
        the sum of squares.
      noise_multiplier: the noise's standard deviation in units of the sensitivity. With `0.0` the
        result is a clipped sum, which is not private, and no key is taken.
      normalize_by: a public constant to divide by, such as the expected batch size. Never the actual
        size of a sampled batch: that is private.
      clipping: `"abadi"` min(R/n, 1), `"automatic"` R/(n + 0.01), `"normalize"` R/n, `"indicator"`
        1 if n <= R else 0, or a function from norms to factors (it is cut off at R/n).
      pre_clip_scale: what gradients are multiplied by before they are clipped, and the result with
        them: a positive number, or a tree of them that is a prefix of the parameters. They may depend
        on what is public alone. An array of numbers broadcasts to its parameter: one for each row or
        column of a matrix multiplies what the matrix is multiplied with; any other makes the parameter
        take the route `"leaf"`. To get back to the size of the gradient, divide the result.
      loss_scale: a power of two that back-propagation starts from in place of 1, for losses in
        float16 whose gradients would underflow. It is undone before norms are taken, so the result is
        that of the loss itself. Do not choose it by the data of a step: that would not be private.
      batch_argnums: the argument(s) with a leading axis of examples.
      keep_batch_dim: see `loss_fn`.
      prng_argnum: an argument that is a PRNG key for `loss_fn` (dropout); each example gets its own.
      shared_argnames: names of arguments that are public and the same for all examples. Needed only
        for one that happens to have as many rows as the batch: without it that is an error, because
        it looks like data of the examples (labels) that `batch_argnums` forgot.
      method: `"auto"`, or a method of the paper by name; see `bk_jax.planning.methods`.
      routes: forces the route of parameters, as a mapping from patterns of their paths to `"ghost"`,
        `"fused"`, `"store"`, `"sparse"` or `"leaf"`, for example `{"*/kernel": "ghost"}`.
      microbatch_size: computes the sum in a scan over this many examples at a time, for batches that
        do not fit otherwise. The result is the same. `"auto"`: the largest that fits into
        `memory_limit`, or into the device's memory, by XLA's analysis of the compiled step.
      memory_limit: the temporary memory that the gradient may take: a whole number of bytes, or a
        float, which is a share of what the plain step takes (`0.7`). Implies
        `microbatch_size="auto"`: the largest number of examples at a time that stays below it, found
        by compiling a step of each size that is tried. Without it, time is what counts.
      return_stats: whether to return `Stats` as a last element.
      dtype: dtype of the returned gradient; default: that of the parameter.
      device: what routes are chosen for: `"cpu"`, or a GPU such as `"A100"`, `"H100"`, `"B200"`. By
        default the devices of `jax.set_mesh`, `jax.default_device` or JAX's own; name it to trace
        ahead for another one. It changes times, never results.

    Returns:
      A function `grad_fn(*args, key=None, is_padding_example=None, **kwargs)` that returns
      `(value, grads)`, `((value, aux), grads)` with `has_aux`, and one element more with
      `return_stats`. `value` is the mean loss over real examples; it is not private.

    Edge cases, each with a test:

    | case | result |
    |---|---|
    | empty batch | value 0, zero gradient, noised |
    | padding example (`is_padding_example`) | contributes exactly 0, even with NaN inside |
    | example whose gradient is NaN or infinite | contributes exactly 0, counted in `nonfinite_count` |
    | R = 0 | zero gradient; with noise: exactly zero noise as well |
    | R = inf | no clipping; allowed with `noise_multiplier=0.0` only |
    | zero gradient | stays zero, factor as in `bk_jax.ops.clip_factor` |
    | integer or boolean leaf | zeros of its own dtype, no noise |
    | parameter that the loss does not use | zero gradient, noised |
    | empty parameter tree | the value and an empty gradient |
    """
    signature = Signature(
        argnums=_as_tuple(argnums),
        batch_argnums=_as_tuple(batch_argnums),
        prng_argnum=prng_argnum,
        has_aux=has_aux,
        keep_batch_dim=keep_batch_dim,
        shared_argnames=_shared_names(loss_fn, shared_argnames),
    )
    validate.loss_parameters(loss_fn, signature.roles)
    validate.argument_numbers(signature.argnums, signature.batch_argnums, prng_argnum)
    validate.clipping(clipping)
    validate.normalize_by(normalize_by)
    validate.microbatch_size(microbatch_size)
    validate.memory_limit(memory_limit, microbatch_size)
    validate.gradient_dtype(dtype)
    check_device(device)
    validate.pre_clip_scale(jax.tree_util.tree_leaves(pre_clip_scale))
    validate.loss_scale(loss_scale)
    clip_norms = jax.tree_util.tree_leaves(l2_clip_norm)
    validate.clip_norms(clip_norms, clipping)
    validate.noise(noise_multiplier, clip_norms)
    grad_fn = DPValueAndGrad(
        loss_fn=loss_fn,
        signature=signature,
        single=isinstance(argnums, SupportsIndex),
        l2_clip_norm=l2_clip_norm,
        noise_multiplier=noise_multiplier,
        normalize_by=normalize_by,
        clipping=clipping,
        method=get_method(method),
        routes=dict(routes or {}),
        microbatch_size=microbatch_size if memory_limit is None else "auto",
        memory_limit=memory_limit,
        return_stats=return_stats,
        dtype=dtype,
        device=device,
        pre_clip_scale=pre_clip_scale,
        loss_scale=loss_scale,
    )
    functools.update_wrapper(grad_fn, loss_fn, updated=())
    return grad_fn


def clipped_value_and_grad(
    loss_fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    **options: Any,
) -> DPValueAndGrad:
    """`dp_value_and_grad` without noise, for people who add their own.

    The result is a sum of clipped gradients and NOT private until noise of the right size is added:
    `noise_multiplier * grad_fn.sensitivity()`. Takes all other options of `dp_value_and_grad`.

    >>> import jax.numpy as jnp, bk_jax
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: (w * x).sum(), l2_clip_norm=1.0)
    >>> value, grad = grad_fn(jnp.zeros(2), jnp.asarray([[3.0, 4.0]]))
    >>> print([f"{g:.4f}" for g in grad], grad_fn.sensitivity())
    ['0.6000', '0.8000'] 1.0
    """
    if "noise_multiplier" in options:
        raise TypeError(
            "clipped_value_and_grad adds no noise; use dp_value_and_grad for noise_multiplier."
        )
    return dp_value_and_grad(loss_fn, argnums, has_aux, noise_multiplier=0.0, **options)


def _shared_names(loss_fn: Any, names: str | Sequence[str]) -> tuple[str, ...]:
    """Those that the caller names and those that the loss names itself, as `bk_jax.peft`'s do."""
    given = (names,) if isinstance(names, str) else tuple(names)
    return (*given, *getattr(loss_fn, "shared_argnames", ()))


def _as_tuple(numbers: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(numbers, SupportsIndex):
        return (operator.index(numbers),)
    return tuple(operator.index(number) for number in numbers)
