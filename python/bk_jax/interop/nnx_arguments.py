"""Arguments with objects of nnx in them, taken apart and put together again.

    loss_fn((encoder, decoder), batch, rngs=rngs)

A model may be an argument itself, or stand in a tuple, a list or a dictionary, beside arrays. Variables
are found in all arguments together, because objects may share some. An argument then has a `State` in
place of each object, as gradients of nnx have: what is trained of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bk_jax._extras import require

nnx = require("flax.nnx", "flax", install="flax")

Place = int | str  # the position of an argument, or its name


class Held(NamedTuple):
    """An argument that holds variables.

    Attributes:
      place: which one it is.
      leaves: the objects and arrays in it.
      treedef: what is around them.
    """

    place: Place
    leaves: Sequence[Any]
    treedef: Any

    def objects(self) -> dict[int, Any]:
        """The objects among the leaves."""
        return {j: leaf for j, leaf in enumerate(self.leaves) if _is_object(leaf)}

    def with_states(self, states: Mapping[int, Any]) -> Any:
        """The argument with a state in place of each object; one without any has an empty one."""
        leaves = [
            states.get(j, nnx.State({})) if _is_object(leaf) else leaf
            for j, leaf in enumerate(self.leaves)
        ]
        return jax.tree_util.tree_unflatten(self.treedef, leaves)

    def states(self, argument: Any) -> dict[int, Any]:
        """The states of an argument that `with_states` has made, or of one like it."""
        leaves = self.treedef.flatten_up_to(argument)
        found = {j: leaves[j] for j in self.objects()}
        return {j: state for j, state in found.items() if jax.tree_util.tree_leaves(state)}

    def with_objects(self, argument: Any, objects: Mapping[int, Any]) -> Any:
        """The argument as the loss takes it."""
        leaves = self.treedef.flatten_up_to(argument)
        return jax.tree_util.tree_unflatten(
            self.treedef, [objects.get(j, leaf) for j, leaf in enumerate(leaves)]
        )


def held_in(args: Mapping[Place, Any]) -> list[Held]:
    """The arguments that hold variables."""
    return [
        Held(place, *jax.tree_util.tree_flatten(arg, is_leaf=_is_object))
        for place, arg in args.items()
        if any(variables(arg))
    ]


def variables(tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The path of every variable in a tree of objects, each once."""
    found = nnx.iter_graph(tree)
    return ((path, node) for path, node in found if isinstance(node, nnx.Variable))


def _is_object(node: Any) -> bool:
    return isinstance(node, nnx.Pytree | nnx.Variable | nnx.State)
