"""A call of a private gradient: its arguments by role, read once, and the loss at one example."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax.program.derivatives import refuse_derivatives
from bk_jax.program.isolation import check_collectives, isolate
from bk_jax.program.model_state import refuse_state
from bk_jax.program.shared_data import check_shared, warn_constants
from bk_jax.program.trace import Parameters, Signature, Traced, flatten_parameters, trace_loss
from bk_jax.sharding import manual as manual_axes
from bk_jax.sharding.manual import Manual


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of a call by their roles.

    Attributes:
      args: all positional arguments.
      kwargs: all keyword arguments of the loss.
      parameters: the differentiated ones, flattened.
      batch: the batch arguments and a key for each example, if the loss takes one; leading axis B.
      size: B.
      manual: what is known inside a `shard_map`.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    parameters: Parameters
    batch: Any
    size: int
    manual: Manual

    @property
    def examples(self) -> list[jax.Array]:
        """The arrays of the batch, as the traced loss takes them."""
        return jax.tree_util.tree_leaves(self.batch)


def read_call(
    loss_fn: Callable[..., Any],
    signature: Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Call:
    """Checks the arguments and sorts them by their roles."""
    args, kwargs = refuse_derivatives((args, dict(kwargs)))
    validate.argument_count(len(args), signature.roles)
    parameters = flatten_parameters(args, signature.argnums)
    refuse_state([args[i] for i in signature.argnums])
    batch = tuple(jax.tree_util.tree_map(jnp.asarray, args[i]) for i in signature.batch_argnums)
    size = validate.batch_size(batch[0] if len(batch) == 1 else batch)
    check_shared(loss_fn, signature, args, kwargs, size)
    prng = signature.prng_argnum
    keys = None if prng is None else jax.random.split(args[prng], size)
    manual = manual_axes.find(jax.tree_util.tree_leaves((batch, keys)))
    if manual.examples:
        paths = [leaf.path for leaf in parameters.leaves]
        copies = manual.copies(paths, parameters.arrays)
        parameters = dataclasses.replace(parameters, arrays=copies)
    return Call(args, kwargs, parameters, (batch, keys), size, manual)


def trace_call(loss_fn: Callable[..., Any], signature: Signature, call: Call) -> Traced:
    """The loss of one example, in which no example can see another."""
    manual = call.manual
    example = jax.tree_util.tree_map(
        # inside a shard_map an example that says along which axes it differs
        lambda x: x[0] if manual.examples else jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        call.batch,
    )
    traced = trace_loss(loss_fn, signature, call.args, dict(call.kwargs), call.parameters, example)
    check_collectives(traced.jaxpr, set(manual.sizes))
    if manual:
        manual_axes.check_loss(manual, traced.jaxpr)
    warn_constants(traced.jaxpr, _closed_over(signature, call), call.size)
    return dataclasses.replace(traced, jaxpr=isolate(traced.jaxpr))


def _closed_over(signature: Signature, call: Call) -> list[Any]:
    """What the loss closes over by right: shared arguments, and leaves that have no gradient."""
    others = [arg for i, arg in enumerate(call.args) if i not in signature.roles]
    leaves = zip(call.parameters.arrays, call.parameters.leaves, strict=True)
    frozen = [array for array, leaf in leaves if not leaf.trainable]
    return jax.tree_util.tree_leaves((others, dict(call.kwargs), frozen))
