"""Equinox: `bk_jax.equinox.filter_value_and_grad` stands where `eqx.filter_value_and_grad` stood.

A model is split into its real arrays, which are trained, and everything else; the loss of one example
puts it together again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax._extras import require
from bk_jax.api import dp_value_and_grad
from bk_jax.interop.adapted import STATE, Adapted, PureCall, adapt

eqx = require("equinox", "equinox", install="equinox")

__all__ = ["filter_value_and_grad"]


def filter_value_and_grad(
    loss_fn: Callable[..., Any] | None = None, *, has_aux: bool = False, **options: Any
) -> Any:
    """Like `eqx.filter_value_and_grad`, with every example's gradient clipped and noise added.

    The gradient is one of all floating-point arrays in the first argument, and `None` in place of
    everything else in it.

    >>> import bk_jax, equinox as eqx, jax, jax.numpy as jnp
    >>> model = eqx.nn.MLP(2, 1, 8, 1, key=jax.random.key(0))
    >>> def loss_fn(model, batch):
    ...     return jnp.mean((jax.vmap(model)(batch["x"]) - batch["y"]) ** 2)
    >>> grad_fn = bk_jax.equinox.filter_value_and_grad(loss_fn, noise_multiplier=1.1)
    >>> batch = {"x": jnp.ones((8, 2)), "y": jnp.ones((8, 1))}
    >>> value, grads = grad_fn(model, batch, key=bk_jax.random.key())
    >>> grads.layers[0].weight.shape, grads.activation
    ((8, 2), None)

    Args:
      loss_fn: the loss of ONE example, as for `bk_jax.dp_value_and_grad`: `loss_fn(model, batch)` with
        a batch of one row, or the bare example with `keep_batch_dim=False`. Without it, a decorator is
        returned, as by Equinox.
      has_aux: whether `loss_fn` returns `(loss, aux)`; arrays of aux come back stacked per example,
        anything else in it as it is.
      **options: those of `bk_jax.dp_value_and_grad`, without `argnums`.

    Returns:
      A function `grad_fn(model, *args, key=None, is_padding_example=None)` as
      `bk_jax.dp_value_and_grad` returns it.
    """
    if "argnums" in options:
        raise TypeError(
            "filter_value_and_grad differentiates its first argument, as Equinox does; to differentiate "
            "several objects, pass a tuple of them as the first argument."
        )
    if loss_fn is None:
        return functools.partial(filter_value_and_grad, has_aux=has_aux, **options)
    return adapt(EquinoxValueAndGrad, dp_value_and_grad(loss_fn, 0, has_aux, **options))


@dataclasses.dataclass(eq=False)
class EquinoxValueAndGrad(Adapted):
    """The function that `filter_value_and_grad` returns."""

    def pure_call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, abstract: bool = False
    ) -> PureCall:
        """Splits the first argument: real arrays are trained, other arrays and the rest are not."""
        del abstract  # nothing is changed
        validate.argument_count(len(args), self.signature.roles)
        model, *others = args
        _refuse_batch_norm(model)
        arrays, static = eqx.partition(model, _is_array)
        trained, state = eqx.partition(arrays, _is_real)

        kept: list[Any] = [None]  # what is no array in the aux of the traced loss

        @functools.wraps(self.loss_fn)
        def pure_loss(trained: Any, *args: Any, **kwargs: Any) -> Any:
            whole = eqx.combine(trained, kwargs.pop(STATE), static)
            out = self.loss_fn(whole, *args, **kwargs)
            if not self.signature.has_aux:
                return out
            seen, kept[0] = eqx.partition(out[1], eqx.is_array_like)
            return out[0], seen

        def whole_aux(seen: Any) -> Any:
            return eqx.combine(seen, kept[0])

        return PureCall(pure_loss, [trained, *others], {**kwargs, STATE: state}, whole_aux)


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _is_real(leaf: Any) -> bool:
    return eqx.is_inexact_array(leaf) or (
        isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    )


def _refuse_batch_norm(model: Any) -> None:
    """In training mode it asks for the mean over an axis of examples, which does not exist here."""

    def is_norm(node: Any) -> bool:
        return isinstance(node, eqx.nn.BatchNorm)

    nodes = jax.tree_util.tree_leaves(model, is_leaf=is_norm)
    if any(is_norm(node) and not node.inference for node in nodes):
        raise ValueError(
            "the model has an eqx.nn.BatchNorm in training mode, which mixes examples: clipping would "
            "bound nothing. Replace it by GroupNorm or LayerNorm, or keep its statistics as they are: "
            "eqx.nn.inference_mode(model)."
        )
