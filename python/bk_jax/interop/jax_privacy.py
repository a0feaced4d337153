"""jax_privacy: its `clipped_grad`, with bk_jax's gradients inside.

    from bk_jax.interop.jax_privacy import clipped_grad

takes the place of `jax_privacy.clipped_grad`: the same arguments, the same result, the same
`BoundedSensitivityCallable`, for all that jax_privacy builds on it. What bk_jax cannot do is handed to
the original, with a `HandedOverWarning` that says what and why.

| option | here |
|---|---|
| `nan_safe` | an example with a NaN counts 0 as a whole; with `False` the sum is NaN everywhere |
| `pre_clipping_transform` | if it multiplies leaves; any other function is handed over |
| `microbatch_size` | need not divide the batch |
| `spmd_axis_name` | not needed: sharding constraints inside the loss are kept as they are |
| options of `bk_jax.dp_value_and_grad` | may be given as well: `method`, `routes`, `shared_argnames` |
| others, such as `grid_scale` | handed over, unless they are `None` |

`GradientsOfBkJax(config)` is a configuration for jax_privacy's `DPTrainer`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import validate
from bk_jax._extras import require
from bk_jax.api import clipped_value_and_grad, dp_value_and_grad
from bk_jax.grad_fn import DPValueAndGrad
from bk_jax.interop.scaling import Scales, find_scales, scaled

__all__ = ["GradientsOfBkJax", "HandedOverWarning", "clipped_grad", "with_gradients_of_bk_jax"]

OWN_OPTIONS = frozenset(inspect.signature(dp_value_and_grad).parameters)
SHARED_OPTIONS = ("l2_clip_norm", "normalize_by", "rescale_to_unit_norm", "dtype")
# What `PerformanceFlags` say of a gradient; the others are about noise.
FLAGS = ("dtype", "microbatch_size", "spmd_axis_name", "keep_batch_dim")


class HandedOverWarning(UserWarning):
    """jax_privacy computes the gradient itself, because bk_jax cannot."""


def clipped_grad(
    fun: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    l2_clip_norm: Any,
    rescale_to_unit_norm: bool = False,
    normalize_by: float = 1.0,
    batch_argnums: int | Sequence[int] = 1,
    keep_batch_dim: bool = True,
    return_values: bool = False,
    return_grad_norms: bool = False,
    pre_clipping_transform: Callable[[Any], Any] | None = None,
    microbatch_size: int | None = None,
    nan_safe: bool = True,
    dtype: Any = None,
    prng_argnum: int | None = None,
    spmd_axis_name: str | None = None,
    **options: Any,
) -> Any:
    """`jax_privacy.clipped_grad`, without per-example gradients of the large layers.

    All arguments mean what they mean there; the table of this module says where a result differs.

    Returns:
      A `jax_privacy.clipping.BoundedSensitivityCallable`. It returns the clipped sum, or the sum and
      an `AuxiliaryOutput` of values, norms and aux per example. The sum is NOT private without noise.
    """
    peer = require("jax_privacy.clipping", "jax_privacy", install="jax_privacy")
    if isinstance(batch_argnums, Sequence) and not batch_argnums:
        raise ValueError(
            "batch_argnums must name the argument(s) with a row for each example, got ()."
        )
    own = {name: options.pop(name) for name in OWN_OPTIONS & options.keys()}
    # Defaults of later versions, written out: `grid_scale=None` asks for nothing.
    options = {name: value for name, value in options.items() if value is not None}
    both: dict[str, Any] = {
        "normalize_by": normalize_by,
        "batch_argnums": batch_argnums,
        "keep_batch_dim": keep_batch_dim,
        "microbatch_size": microbatch_size,
        "dtype": dtype,
        "prng_argnum": prng_argnum,
    }
    theirs = {
        "l2_clip_norm": l2_clip_norm,
        "rescale_to_unit_norm": rescale_to_unit_norm,
        "return_values": return_values,
        "return_grad_norms": return_grad_norms,
        "pre_clipping_transform": pre_clipping_transform or _unchanged,
        "nan_safe": nan_safe,
        "spmd_axis_name": spmd_axis_name,
    }
    original = functools.partial(
        peer.clipped_grad, fun, argnums, has_aux, **both, **theirs, **options
    )
    reason = _beyond(options, l2_clip_norm, rescale_to_unit_norm, return_grad_norms)
    if reason:
        return _hand_over(original, reason)
    own |= _clipping(l2_clip_norm, rescale_to_unit_norm)
    grad_fn = clipped_value_and_grad(fun, argnums, has_aux, return_stats=True, **both, **own)
    wanted = _Wanted(return_values, return_grad_norms, has_aux, nan_safe, peer.AuxiliaryOutput)
    call = _ClippedGrad(grad_fn, wanted, pre_clipping_transform or _unchanged, original)
    return peer.BoundedSensitivityCallable(call, grad_fn.sensitivity(), wanted.any)


def _unchanged(grads: Any) -> Any:
    return grads


def with_gradients_of_bk_jax(plan: Any, config: Any, **options: Any) -> Any:
    """The same `DPExecutionPlan`, with bk_jax's gradients.

    Args:
      plan: a plan of jax_privacy.
      config: the configuration that it was made from, such as a `BandMFExecutionPlanConfig`: clip norm
        and divisor are taken from it.
      **options: options of `clipped_grad` that the configuration does not have.
    """
    known = {name: getattr(config, name) for name in SHARED_OPTIONS if hasattr(config, name)}
    ours: Callable[..., Any] = functools.partial(clipped_grad, **{**known, **options})
    expected, got = (f(lambda: None).sensitivity() for f in (plan.clipped_grad, ours))
    if not np.isclose(expected, got, rtol=1e-6):
        raise ValueError(
            f"the noise of this plan is for a sensitivity of {expected}, but gradients with "
            f"{known | options} have {got}. Pass the configuration that the plan was made from."
        )
    return dataclasses.replace(plan, clipped_grad=ours)


@dataclasses.dataclass(frozen=True)
class GradientsOfBkJax:
    """A configuration for jax_privacy's `DPTrainer`, whose plans have bk_jax's gradients.

        DPTrainer(config=GradientsOfBkJax(BandMFConfig(...)), loss_fn=..., optimizer=...)

    Attributes:
      config: one of jax_privacy's, such as a `BandMFConfig`. Batches, noise and accounting are its own.
      options: options of `clipped_grad` that the configuration does not have, such as `routes`.
    """

    config: Any
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def make(self, performance_flags: Any = None) -> Any:
        """The `DPExecutionPlan` of the configuration, with bk_jax's gradients."""
        if performance_flags is None:
            peer = require("jax_privacy.execution_plan", "jax_privacy", install="jax_privacy")
            performance_flags = peer.PerformanceFlags()
        plan = self.config.make(performance_flags)
        flags = {name: getattr(performance_flags, name) for name in FLAGS}
        return with_gradients_of_bk_jax(plan, self.config, **{**flags, **self.options})


def _beyond(
    unknown: Mapping[str, Any], l2_clip_norm: Any, rescale: bool, norms: bool
) -> str | None:
    """Why bk_jax cannot do what is asked for, or `None`."""
    if unknown:
        return f"it has no option {', '.join(sorted(unknown))}"
    if np.ndim(l2_clip_norm) == 0 and not isinstance(l2_clip_norm, Mapping | Sequence):
        return None
    return "of clip norms by group it returns neither norms nor unit norms" * (rescale or norms)


def _hand_over(original: Callable[[], Any], reason: str) -> Any:
    warnings.warn(
        f"bk_jax hands this gradient to jax_privacy: {reason}. It is computed with vmap.",
        HandedOverWarning,
        stacklevel=3,
    )
    return original()


def _clipping(l2_clip_norm: Any, rescale_to_unit_norm: bool) -> dict[str, Any]:
    """Options of bk_jax: clipping at a norm and dividing by it is clipping to norm 1 by a function."""

    def factor(norms: jax.Array) -> jax.Array:
        least = jnp.asarray(jnp.finfo(norms.dtype).tiny, norms.dtype)
        return 1 / jnp.maximum(norms, jnp.maximum(l2_clip_norm, least))

    if rescale_to_unit_norm:
        return {"l2_clip_norm": 1.0, "clipping": factor}
    return {"l2_clip_norm": l2_clip_norm}


@dataclasses.dataclass(frozen=True)
class _Wanted:
    """What is returned besides the sum, and the type that holds it."""

    values: bool
    norms: bool
    aux: bool
    nan_safe: bool
    kind: Callable[..., Any]

    @property
    def any(self) -> bool:
        return self.values or self.norms or self.aux

    def result(self, value: Any, grads: Any, stats: Any, keep_batch_dim: bool) -> Any:
        """The sum, or the sum and what is known per example, as jax_privacy returns them."""
        if not self.nan_safe:
            spoilt = jnp.where(stats.nonfinite_count > 0, jnp.nan, 0)
            grads = jax.tree_util.tree_map(lambda g: (g + spoilt).astype(g.dtype), grads)
        if not self.any:
            return grads
        aux = value[1] if self.aux else None
        more = self.kind(
            values=stats.losses if self.values else None,
            grad_norms=stats.norms if self.norms else None,
            aux=jax.tree_util.tree_map(_without_unit_axis, aux) if keep_batch_dim else aux,
        )
        return grads, more


def _without_unit_axis(x: jax.Array) -> jax.Array:
    """An array per example without the batch axis of size 1 that the loss saw."""
    return x[:, 0] if x.ndim >= 2 and x.shape[1] == 1 else x


@dataclasses.dataclass(frozen=True)
class _ClippedGrad:
    """The function inside of a `BoundedSensitivityCallable`."""

    grad_fn: DPValueAndGrad
    wanted: _Wanted
    transform: Callable[[Any], Any]
    original: Callable[[], Any]

    def __call__(self, *args: Any, is_padding_example: Any = None, **kwargs: Any) -> Any:
        scales = self._scales(args)
        if isinstance(scales, str):
            padding = (
                {} if is_padding_example is None else {"is_padding_example": is_padding_example}
            )
            return _hand_over(self.original, scales)(*args, **padding, **kwargs)
        signature = self.grad_fn.signature
        validate.argument_count(len(args), signature.roles)
        call_args, first = list(args), signature.batch_argnums[0]
        if kwargs:
            call_args[first] = (args[first], kwargs)  # they have a row for each example
        grad_fn = dataclasses.replace(self.grad_fn, loss_fn=self._loss(scales, bool(kwargs)))
        value, grads, stats = grad_fn(*call_args, is_padding_example=is_padding_example)
        return self.wanted.result(value, grads, stats, signature.keep_batch_dim)

    def _scales(self, args: Sequence[Any]) -> Scales | str | None:
        """What gradients are multiplied by before clipping, or why that cannot be said."""
        signature = self.grad_fn.signature
        prng = signature.prng_argnum
        if prng is not None and not hasattr(args[prng], "dtype"):
            return "prng_argnum names a tree of keys"
        if self.transform is _unchanged:
            return None
        params = [args[i] for i in signature.argnums]
        scales = find_scales(self.transform, params[0] if self.grad_fn.single else tuple(params))
        if scales is None:
            return "pre_clipping_transform does more than multiply the leaves of a gradient"
        if self.wanted.norms and any(scale is not None for scale in scales):
            return "return_grad_norms are norms before pre_clipping_transform"
        return scales

    def _loss(self, scales: Scales | None, has_keywords: bool) -> Callable[..., Any]:
        """The loss of arguments as `__call__` passes them."""
        signature, fun = self.grad_fn.signature, self.grad_fn.loss_fn
        first = signature.batch_argnums[0]

        @functools.wraps(fun)
        def loss_fn(*args: Any) -> Any:
            call_args, kwargs = list(args), {}
            if has_keywords:
                call_args[first], kwargs = args[first]
            if signature.keep_batch_dim:
                kwargs = jax.tree_util.tree_map(lambda x: x[0], kwargs)
            if scales is not None:
                params = scaled([args[i] for i in signature.argnums], scales)
                for i, param in zip(signature.argnums, params, strict=True):
                    call_args[i] = param
            return fun(*call_args, **kwargs)

        return loss_fn
