"""Steps: the private and the plain step of one loss, compiled, with the parameters that they train."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.api import DPValueAndGrad
from bk_jax.program.trace import Signature, arrays_of, flatten_parameters, merge_arrays


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """Bytes of a step by XLA's own account; `total` are arguments, results and temporaries.

    XLA's peak is not used: on the CPU it leaves temporaries out.
    """

    temporary: int
    total: int


@dataclasses.dataclass(frozen=True)
class Step:
    """A compiled step; its last results are the gradients, one for each parameter that is trained."""

    compiled: Any
    run: Callable[[], Any]

    @property
    def memory(self) -> StepMemory | None:
        """What XLA says of it, where it says anything."""
        found = self.compiled.memory_analysis()
        if found is None:
            return None
        kept = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
        return StepMemory(found.temp_size_in_bytes, kept + found.temp_size_in_bytes)


def private_step(grad_fn: DPValueAndGrad, args: Sequence[Any], key: Any, name: str) -> Step:
    """The value and the private gradients."""

    def step(arrays: list[Any], key: Any) -> Any:
        call_args = merge_arrays(args, arrays)
        value, grads = grad_fn(*call_args, key=key)
        several = (grads,) if grad_fn.single else grads
        leaves = jax.tree_util.tree_leaves(several)
        return value, [leaves[i] for i in _trained(grad_fn.signature, call_args)]

    return _compile(step, name, arrays_of(args), key)


def plain_step(
    loss_fn: Callable[..., Any], signature: Signature, args: Sequence[Any], name: str
) -> Step:
    """The value and the gradients of the mean loss, by `jax.value_and_grad`."""
    mean_loss = loss_fn if signature.keep_batch_dim else _mean(loss_fn, signature)

    def step(arrays: list[Any]) -> Any:
        given = merge_arrays(args, arrays)
        parameters = flatten_parameters(given, signature.argnums)

        def loss(trainable: list[Any]) -> Any:
            call_args = list(given)
            merged = parameters.treedef.unflatten(parameters.merge(trainable))
            for argnum, value in zip(signature.argnums, merged, strict=True):
                call_args[argnum] = value
            return mean_loss(*call_args)

        trainable = parameters.trainable_arrays()
        return jax.value_and_grad(loss, has_aux=signature.has_aux)(trainable)

    return _compile(step, name, arrays_of(args))


def _trained(signature: Signature, args: Sequence[Any]) -> tuple[int, ...]:
    return flatten_parameters(args, signature.argnums).trainable


def _compile(step: Callable[..., Any], name: str, *args: Any) -> Step:
    step.__name__ = step.__qualname__ = f"bk_tax_{name}"
    args = jax.device_put(args)
    compiled = jax.jit(step).lower(*args).compile()
    return Step(compiled, lambda: compiled(*args))


def _mean(loss_fn: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """The mean of a loss that sees a bare example."""
    batched = (*signature.batch_argnums, *_numbers(signature.prng_argnum))

    def mean_loss(*args: Any) -> Any:
        def one(*example: Any) -> Any:
            call_args = list(args)
            for argnum, value in zip(batched, example, strict=True):
                call_args[argnum] = value
            return loss_fn(*call_args)

        examples = [args[i] for i in signature.batch_argnums]
        size = jax.tree_util.tree_leaves(examples)[0].shape[0]
        keys = [jax.random.split(args[i], size) for i in _numbers(signature.prng_argnum)]
        out = jax.vmap(one)(*examples, *keys)
        return (jnp.mean(out[0]), out[1]) if signature.has_aux else jnp.mean(out)

    return mean_loss


def _numbers(number: int | None) -> tuple[int, ...]:
    return () if number is None else (number,)
