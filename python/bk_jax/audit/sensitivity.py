"""`assert_sensitivity`: checks neighbouring batches and noise against what was promised."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bk_jax import random
from bk_jax.api import dp_value_and_grad
from bk_jax.audit.cause import likely_cause, padding_cause
from bk_jax.audit.neighbours import Moved, Neighbours
from bk_jax.audit.noise import check_noise
from bk_jax.audit.subject import AuditError, Subject
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.ops.chacha import KEY_WORDS
from bk_jax.program.shared_data import BatchSizedConstantWarning
from bk_jax.program.trace import Signature
from bk_jax.relations import relation_name

NUM_KEYS = 32


class Report(NamedTuple):
    """What a passed audit saw.

    Attributes:
      moved: the largest distance between neighbouring batches, by relation.
      bounds: what was declared, by relation.
      noise_stddev: the measured standard deviation of the noise, or 0.

    >>> import bk_jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(w * x))
    >>> report = assert_sensitivity(grad_fn, jnp.zeros(2), jnp.ones((3, 2)))
    >>> report.bounds["ADD_OR_REMOVE_ONE"], report.noise_stddev
    (1.0, 0.0)
    """

    moved: dict[str, float]
    bounds: dict[str, float]
    noise_stddev: float


@dataclasses.dataclass(frozen=True)
class _Declared:
    grad_fn: Callable[..., Any]
    bounds: dict[str, float]
    noise_stddev: float
    batch_arguments: int = 1
    shared: tuple[str, ...] = ()


def assert_sensitivity(
    fun: Callable[..., Any],
    params: Any,
    batch: Any,
    *,
    bound: float | None = None,
    noise_stddev: float = 0.0,
    relation: Any = "ADD_OR_REMOVE_ONE",
    keys: Sequence[Any] | None = None,
    examples: int = 8,
    padding: bool = True,
    kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Raises `AuditError` if one example can move a private gradient further than it declares.

    Replays neighbouring batches (an example removed, added, replaced) with the same key, and checks
    that the content of padding rows does not matter. For a function with noise, also checks that
    the noise is fresh for each key, independent between parameters, of the declared size, and
    independent of the data.

    >>> import bk_jax, jax.numpy as jnp
    >>> from bk_jax import audit
    >>> def loss_fn(w, x):
    ...     return jnp.sum(jnp.square(x @ w))
    >>> w, batch = jnp.ones(3), jnp.arange(12.0).reshape(4, 3)
    >>> report = audit.assert_sensitivity(loss_fn, w, batch, l2_clip_norm=2.0)
    >>> print(f"{report.moved['ADD_OR_REMOVE_ONE']:.2f} of {report.bounds['ADD_OR_REMOVE_ONE']}")
    2.00 of 2.0
    >>> def mean_of_clipped(w, batch, is_padding_example):
    ...     real = ~is_padding_example
    ...     clipped = batch / jnp.maximum(jnp.linalg.norm(batch, axis=1, keepdims=True), 1)
    ...     return 0.0, jnp.sum(clipped * real[:, None], 0) / jnp.maximum(jnp.sum(real), 1)
    >>> audit.assert_sensitivity(mean_of_clipped, w, batch, bound=1 / 4)
    Traceback (most recent call last):
    ...
    bk_jax.audit.subject.AuditError: example 0 ... moves the result by ...

    Args:
      fun: what to audit, one of
        a loss, which is passed to `dp_value_and_grad` with `options`, without noise by default;
        a function that `dp_value_and_grad` returned, which knows its bound and its noise;
        any function `grad_fn(params, batch, *, key, is_padding_example) -> (value, gradients)`,
        with its `bound`. It is called as it is: jit it if you want it compiled.
      params: the parameters.
      batch: any number of examples; those with gradients beyond the clip norm show most. With
        several `batch_argnums`, a tuple of them.
      bound: the declared sensitivity of `fun`, for `relation`.
      noise_stddev: the declared standard deviation of the noise in the result. If it is 0, `fun` is
        called without a key.
      relation: the neighbouring relation of `bound`, a name or one of `dp_accounting`'s. With
        `"ADD_OR_REMOVE_ONE"` or `"REPLACE_SPECIAL"`, a replaced example counts twice; with
        `"REPLACE_ONE"`, only replacements are tried.
      keys: the keys of the coming steps, to check that they differ; by default 32 from a fixed
        seed.
      examples: how many examples to make neighbours from, evenly spread over the batch.
      padding: whether `fun` takes `is_padding_example`; if not, rows are cut out of the batch.
      kwargs: other keyword arguments of `fun`, such as `frozen`. An array in them with as many rows
        as the batch is exchanged along with the batch, unless the function declares it in
        `shared_argnames`.
      **options: options of `dp_value_and_grad`, if `fun` is a loss.
    """
    declared = _declared(fun, bound, noise_stddev, relation_name(relation, "relation"), options)
    count, shared = declared.batch_arguments, declared.shared
    subject = Subject(declared.grad_fn, params, batch, kwargs or {}, padding, count, shared)
    if subject.size == 0:
        raise ValueError("the batch has no example; neighbouring batches need one at least.")
    if keys is None:
        keys = _fixed_keys()
    if len(keys) < 2:
        raise ValueError(f"keys must be those of at least 2 steps, got {len(keys)}.")
    noisy = declared.noise_stddev > 0
    neighbours = Neighbours(subject, *(keys[:2] if noisy else (None, None)))
    moved = _largest(neighbours, declared.bounds, min(examples, subject.size))
    measured = check_noise(subject, keys, declared.noise_stddev) if noisy else 0.0
    return Report(moved, declared.bounds, measured)


def _fixed_keys() -> list[jax.Array]:
    """Keys for a repeatable test, made without compiling anything."""
    words = np.random.default_rng(0).integers(2**32, size=(NUM_KEYS, KEY_WORDS), dtype=np.uint32)
    return [jax.random.wrap_key_data(row, impl=random.CHACHA20) for row in words]


def _declared(
    fun: Callable[..., Any],
    bound: float | None,
    noise_stddev: float,
    relation: str,
    options: dict[str, Any],
) -> _Declared:
    """The gradient function, with the bound for each relation that it must keep."""
    if bound is not None:
        if options:
            raise TypeError(f"options of a loss, {sorted(options)}, do not go together with bound.")
        return _Declared(fun, _bounds(float(bound), relation), float(noise_stddev))
    if noise_stddev:
        raise TypeError(
            "noise_stddev goes together with bound; without it fun declares both itself."
        )
    if not isinstance(fun, DPValueAndGrad):
        _check_is_loss(fun)
        fun = dp_value_and_grad(fun, **{"noise_multiplier": 0.0, **options})
    elif options:
        raise TypeError(f"options {sorted(options)} belong to a loss; this function has its own.")
    bounds = {name.upper(): fun.sensitivity(name) for name in ("add_or_remove_one", "replace_one")}
    stddev = float(fun.noise_multiplier) * float(fun.sensitivity())
    return _Declared(
        _no_closures(jax.jit(fun)),
        {k: float(v) for k, v in bounds.items()},
        stddev,
        _batch_arguments(fun.signature),
        fun.signature.shared_argnames,
    )


def _batch_arguments(signature: Signature) -> int:
    """The batch comes right after the parameters; everything else is a keyword."""
    count = len(signature.batch_argnums)
    if signature.argnums != (0,) or signature.batch_argnums != tuple(range(1, count + 1)):
        raise ValueError(
            "the audit calls grad_fn(params, *batch): it needs argnums=0 and batch_argnums that follow, "
            f"got argnums={signature.argnums} and batch_argnums={signature.batch_argnums}."
        )
    return count


def _no_closures(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A constant of the loss cannot be replayed, so what the warning suspects is an error here."""

    def audited(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error", BatchSizedConstantWarning)
            try:
                return fun(*args, **kwargs)
            except BatchSizedConstantWarning as found:
                raise AuditError(
                    f"{found} An audit cannot exchange the rows of a constant; for one that is public, "
                    "audit with a batch of another size."
                ) from None

    return audited


def _check_is_loss(fun: Any) -> None:
    """A wrapper around a private gradient (`jit`, a decorator) does not know its bound."""
    if isinstance(getattr(fun, "__wrapped__", None), DPValueAndGrad):
        raise TypeError(
            "fun wraps a function that dp_value_and_grad returned. Pass that function itself, which is "
            "compiled here, or declare the bound= and noise_stddev= of the wrapped one."
        )


def _bounds(bound: float, relation: str) -> dict[str, float]:
    if math.isnan(bound) or bound < 0:
        raise ValueError(f"bound must be at least 0, got {bound}.")
    if relation == "replace_one":
        return {"REPLACE_ONE": bound}
    return {"ADD_OR_REMOVE_ONE": bound, "REPLACE_ONE": 2 * bound}


def _largest(neighbours: Neighbours, bounds: dict[str, float], examples: int) -> dict[str, float]:
    """Checks the neighbours of every relation, and returns the largest distances."""
    size = neighbours.subject.size
    indices = [int(i) for i in np.linspace(0, size - 1, examples).round()]
    if neighbours.subject.padding and size > 1:
        for index in indices:
            _check_padding(neighbours, index)
    tries = {"ADD_OR_REMOVE_ONE": neighbours.without_one, "REPLACE_ONE": neighbours.replaced}
    largest = dict.fromkeys(bounds, 0.0)
    for relation, bound in bounds.items():
        for index in indices:
            for moved in tries[relation](index):
                _check(neighbours, moved, bound, index)
                largest[relation] = max(largest[relation], moved.distance)
    return largest


def _check_padding(neighbours: Neighbours, index: int) -> None:
    """The content of a padding row must not matter."""
    moved = neighbours.padding_moves(index)
    if moved.distance > moved.rounding:
        raise AuditError(
            f"padding rows contribute: {moved.what} moves the result by {moved.distance:.4g}. "
            f"{padding_cause(neighbours, index)}"
        )


def _check(neighbours: Neighbours, moved: Moved, bound: float, index: int) -> None:
    if moved.distance > bound + moved.rounding:
        times = moved.distance / max(bound, 1e-300)
        raise AuditError(
            f"{moved.what} moves the result by {moved.distance:.6g}, more than the declared bound "
            f"{bound:.6g} ({times:.3g} times). {likely_cause(neighbours, index)}"
        )
