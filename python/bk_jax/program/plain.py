"""The plain step: the gradient of the mean loss that a private step is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.program.trace import Signature, flatten_parameters


def plain_value_and_grad(
    loss_fn: Callable[..., Any], signature: Signature, args: Sequence[Any], **kwargs: Any
) -> Any:
    """The value and the gradients of all trainable leaves, by `jax.value_and_grad`."""
    mean_loss = loss_fn if signature.keep_batch_dim else _mean(loss_fn, signature)
    parameters = flatten_parameters(args, signature.argnums)

    def loss(trainable: list[Any]) -> Any:
        call_args = list(args)
        merged = parameters.treedef.unflatten(parameters.merge(trainable))
        for argnum, value in zip(signature.argnums, merged, strict=True):
            call_args[argnum] = value
        return mean_loss(*call_args, **kwargs)

    trainable = parameters.trainable_arrays()
    return jax.value_and_grad(loss, has_aux=signature.has_aux)(trainable)


def _mean(loss_fn: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """The mean of a loss that sees a bare example."""
    prng = () if signature.prng_argnum is None else (signature.prng_argnum,)
    batched = (*signature.batch_argnums, *prng)

    def mean_loss(*args: Any, **kwargs: Any) -> Any:
        def one(*example: Any) -> Any:
            call_args = list(args)
            for argnum, value in zip(batched, example, strict=True):
                call_args[argnum] = value
            return loss_fn(*call_args, **kwargs)

        examples = [args[i] for i in signature.batch_argnums]
        size = jax.tree_util.tree_leaves(examples)[0].shape[0]
        keys = [jax.random.split(args[i], size) for i in prng]
        out = jax.vmap(one)(*examples, *keys)
        return (jnp.mean(out[0]), out[1]) if signature.has_aux else jnp.mean(out)

    return mean_loss
