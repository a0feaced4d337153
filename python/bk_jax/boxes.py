"""Boxes: what Flax puts around an array, known without importing Flax.

Nobody can hand over an object of a library that is not loaded, so `sys.modules` is all there is to
look at. A box is a node of the tree with an entry of its own (`.value`) in the way to the array.
"""

from __future__ import annotations

import sys
from typing import Any

import jax

KeyPath = tuple[Any, ...]


def _loaded(module: str, name: str) -> tuple[type, ...]:
    """A class of a module that somebody has imported."""
    found = getattr(sys.modules.get(module), name, None)
    return (found,) if isinstance(found, type) else ()


def _box_types() -> tuple[type, ...]:
    """Variables of nnx, and what linen keeps with the axes of a partitioned parameter."""
    return (*_loaded("flax.nnx", "Variable"), *_loaded("flax.core.meta", "AxisMetadata"))


def boxes(tree: Any) -> dict[KeyPath, Any]:
    """All boxes in a tree, by the way to them."""
    types = _box_types()
    if not types:
        return {}
    nodes, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, types))
    return {path: node for path, node in nodes if isinstance(node, types)}


def is_parameter(box: Any) -> bool:
    """Whether a box says that it holds a parameter, or says nothing; nnx trains `Param` alone."""
    variable = _loaded("flax.nnx", "Variable")
    return not isinstance(box, variable) or isinstance(box, _loaded("flax.nnx", "Param"))
