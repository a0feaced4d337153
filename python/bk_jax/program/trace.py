"""Trace: the loss of one example as a jaxpr over the trainable leaves.

The user's function is traced exactly once, on abstract values. What is neither a trainable parameter
nor part of the batch (other arguments, integer leaves, Python flags) is closed over and stays what it
was; the batch enters as one example, with a leading axis of size 1 when `keep_batch_dim` is set.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat, validate
from bk_jax.paths import leaf_names


@dataclasses.dataclass(frozen=True)
class Signature:
    """Which positional arguments are what; see `bk_jax.dp_value_and_grad`."""

    argnums: tuple[int, ...]
    batch_argnums: tuple[int, ...]
    prng_argnum: int | None
    has_aux: bool
    keep_batch_dim: bool
    shared_argnames: tuple[str, ...] = ()

    @property
    def roles(self) -> tuple[int, ...]:
        """The positions that have a role."""
        prng = () if self.prng_argnum is None else (self.prng_argnum,)
        return (*self.argnums, *self.batch_argnums, *prng)


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One parameter array: `path` is how a person finds it in the parameter tree."""

    path: str
    shape: tuple[int, ...]
    dtype: Any
    trainable: bool


@dataclasses.dataclass(frozen=True)
class Parameters:
    """The parameter arguments, flattened: every leaf in order, and the tree that holds them."""

    leaves: tuple[Leaf, ...]
    arrays: tuple[Any, ...]
    treedef: Any

    @property
    def trainable(self) -> tuple[int, ...]:
        """Positions of the leaves that have a gradient."""
        return tuple(i for i, leaf in enumerate(self.leaves) if leaf.trainable)

    def trainable_arrays(self) -> list[Any]:
        """The arrays that have a gradient, in order."""
        return [self.arrays[i] for i in self.trainable]

    def trainable_leaves(self) -> list[Leaf]:
        """The descriptions that belong to `trainable_arrays`."""
        return [self.leaves[i] for i in self.trainable]

    def unflatten(self, trainable: Sequence[Any]) -> Any:
        """A tree of the parameters' structure: the trainable leaves as given, zeros for the others."""
        zeros = [
            None if leaf.trainable else jnp.zeros(leaf.shape, leaf.dtype) for leaf in self.leaves
        ]
        for position, value in zip(self.trainable, trainable, strict=True):
            zeros[position] = value
        return jax.tree_util.tree_unflatten(self.treedef, zeros)

    def merge(self, trainable: Sequence[Any]) -> list[Any]:
        """All leaves with the trainable ones replaced."""
        merged = list(self.arrays)
        for position, value in zip(self.trainable, trainable, strict=True):
            merged[position] = value
        return merged


@dataclasses.dataclass(frozen=True)
class Traced:
    """The traced loss: inputs are the trainable arrays and then the example's arrays."""

    jaxpr: Any
    aux_treedef: Any
    leaves: tuple[Leaf, ...]

    @property
    def is_surely_linear(self) -> bool:
        """Whether back-propagation is linear in its seed.

        JAX's own rules are; the backward function of a `custom_vjp` may be anything, such as one that
        clips what it is given.
        """
        return not _compat.contains(self.jaxpr, _compat.prims.custom_vjp_call_p)

    @property
    def num_leaves(self) -> int:
        """Number of trainable arrays, which are the jaxpr's first inputs."""
        return len(self.leaves)


def flatten_parameters(args: Sequence[Any], argnums: Sequence[int]) -> Parameters:
    """Flattens the parameter arguments and names every leaf."""
    chosen = tuple(args[i] for i in argnums)
    names = leaf_names(chosen[0] if len(chosen) == 1 else chosen)
    arrays, treedef = jax.tree_util.tree_flatten(chosen)
    leaves = tuple(_describe(name, array) for name, array in zip(names, arrays, strict=True))
    return Parameters(leaves, tuple(arrays), treedef)


def _describe(name: str, array: Any) -> Leaf:
    validate.parameter_leaf(name, array)
    aval = jax.typeof(array)
    trainable = bool(jnp.issubdtype(aval.dtype, jnp.floating))
    return Leaf(name, tuple(aval.shape), aval.dtype, trainable)


def trace_loss(
    loss_fn: Callable[..., Any],
    signature: Signature,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    parameters: Parameters,
    example: Any,
) -> Traced:
    """Traces `loss_fn` at one example; `example` is a tree of shapes."""

    def one_example(trainable: list[Any], example: Any) -> tuple[Any, Any]:
        call_args = list(args)
        merged = jax.tree_util.tree_unflatten(parameters.treedef, parameters.merge(trainable))
        for argnum, value in zip(signature.argnums, merged, strict=True):
            call_args[argnum] = value
        batch, key = example
        for argnum, value in zip(signature.batch_argnums, batch, strict=True):
            call_args[argnum] = _with_batch_dim(value) if signature.keep_batch_dim else value
        if signature.prng_argnum is not None:
            call_args[signature.prng_argnum] = key
        out = loss_fn(*call_args, **kwargs)
        return validate.split_aux(out) if signature.has_aux else (out, None)

    jaxpr, shapes = _compat.trace(one_example, parameters.trainable_arrays(), example)
    loss, aux = shapes
    validate.loss_shape(loss, signature.keep_batch_dim)
    aux_treedef = jax.tree_util.tree_structure(aux)
    return Traced(jaxpr, aux_treedef, tuple(parameters.trainable_leaves()))


def _with_batch_dim(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda x: jnp.expand_dims(x, 0), tree)


def is_array(value: Any) -> bool:
    """Whether a leaf is an array, or stands for one."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def arrays_of(args: Sequence[Any]) -> list[Any]:
    """The array leaves of the arguments; what is static stays out of tracing."""
    return [leaf for leaf in jax.tree_util.tree_leaves(args) if is_array(leaf)]


def merge_arrays(args: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with their array leaves replaced."""
    leaves, treedef = jax.tree_util.tree_flatten(tuple(args))
    rest = iter(arrays)
    merged = [next(rest) if is_array(leaf) else leaf for leaf in leaves]
    return jax.tree_util.tree_unflatten(treedef, merged)
