"""Back-propagation: one example's loss and the cotangents of all taps as one program, then of all.

The program of one example is differentiated first and batched afterwards: what a derivative rule does
is in it for everybody to see, and nothing that clipping would throw away is ever formed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bk_jax import _compat
from bk_jax.program.batching import EXAMPLES_FIRST, Batching, Value, at
from bk_jax.program.book import evaluate, tap_type
from bk_jax.program.replay import Book
from bk_jax.program.sites import Path, Site
from bk_jax.program.trace import Traced
from bk_jax.sharding.mesh_check import explicit_axes
from bk_jax.sharding.varying import vary


class Pass(NamedTuple):
    """What one back-propagation gives, each array with a leading axis of examples.

    Attributes:
      losses: of every example.
      aux: what else the loss returned.
      book: what was recorded at every site.
      taps: output gradients of every site.
      leaves: gradients of the leaves that are tapped themselves.
    """

    losses: jax.Array
    aux: list[jax.Array]
    book: Book
    taps: dict[Path, jax.Array]
    leaves: dict[int, jax.Array]


class Backward(NamedTuple):
    """What is differentiated, the same for every batch.

    Attributes:
      traced: the loss.
      sites: where taps are.
      tapped: leaves that are tapped themselves.
    """

    traced: Traced
    sites: Mapping[Path, Site]
    tapped: Sequence[int]

    def __call__(
        self,
        arrays: Sequence[jax.Array],
        examples: Sequence[jax.Array],
        size: int,
        weights: jax.Array | None = None,
    ) -> Pass:
        """One forward and backward pass; each example's loss is multiplied by its weight, if given."""
        return self.batched(Batching(size), arrays, examples, weights)

    def batched(
        self,
        batching: Batching,
        arrays: Sequence[jax.Array],
        examples: Sequence[jax.Array],
        weights: jax.Array | None = None,
    ) -> Pass:
        """The same by an interpreter that remembers which equations it had no rule for."""
        given = [*examples, *([] if weights is None else [weights])]
        jaxpr, treedef = self._one_example(arrays, given, weights is not None)
        values = [*map(Value, arrays), *(Value(array, EXAMPLES_FIRST) for array in given)]
        whole = batching.by_vmap if any(map(explicit_axes, given)) else batching.evaluate
        outs = whole(jaxpr, values)
        first = [at(value, EXAMPLES_FIRST, batching.size).array for value in outs]
        found: Pass = jax.tree_util.tree_unflatten(treedef, first)
        return found

    def _one_example(
        self, arrays: Sequence[jax.Array], given: Sequence[jax.Array], weighted: bool
    ) -> tuple[Any, Any]:
        """The pass of one example as a jaxpr, and the tree of its results."""

        def one_pass(arrays: Sequence[jax.Array], example: list[jax.Array]) -> Pass:
            weight = example.pop() if weighted else None

            def loss(taps: Any, tapped: dict[int, jax.Array]) -> Any:
                leaves = [tapped.get(leaf, array) for leaf, array in enumerate(arrays)]
                inputs = [*leaves, *example]
                (value, *aux), book = evaluate(self.traced.jaxpr, inputs, taps, self.sites)
                return value, (aux, book)

            tapped = {leaf: arrays[leaf] for leaf in self.tapped}
            primals = (_zero_taps(self.sites), tapped)
            value, pullback, (aux, book) = jax.vjp(loss, *primals, has_aux=True)
            seed = jnp.ones_like(value) if weight is None else weight.astype(value.dtype)
            return Pass(value, aux, book, *pullback(seed))

        types = [_type_of_one(array) for array in given]
        jaxpr, shapes = _compat.trace(one_pass, list(arrays), types)
        return jaxpr, jax.tree_util.tree_structure(shapes)


def _type_of_one(array: jax.Array) -> jax.ShapeDtypeStruct:
    """The type of one example's part, which says along which axes of a `shard_map` it differs."""
    return _compat.struct_like(jax.ShapeDtypeStruct(array.shape[1:], array.dtype), array)


def _zero_taps(sites: Mapping[Path, Site]) -> dict[Path, jax.Array]:
    """A tap for every site; those of one type are one array."""
    types = {path: (tap_type(site), site.varying) for path, site in sites.items()}
    zeros = {
        kind: vary(jnp.zeros(kind[0].shape, kind[0].dtype), kind[1])
        for kind in dict.fromkeys(types.values())
    }
    return {path: zeros[kind] for path, kind in types.items()}
