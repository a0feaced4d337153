"""Options that are trees: one value for each subtree of the parameters."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def spread(name: str, values: Any, treedef: Any) -> list[int]:
    """For each leaf of the parameters, the number of the value that belongs to it.

    >>> params = {"a": {"b": 1, "c": 2}, "d": 3}
    >>> spread("scale", {"a": 0.5, "d": 2.0}, jax.tree_util.tree_structure(params))
    [0, 0, 1]
    """
    structure: Any = jax.tree_util.tree_structure(values)
    numbered = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    whole = jax.tree_util.tree_unflatten(treedef, np.zeros(treedef.num_leaves, int).tolist())
    try:
        full = jax.tree_util.tree_map(
            lambda number, part: jax.tree_util.tree_map(lambda _: number, part), numbered, whole
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{name} must be a scalar or a tree whose structure is a prefix of the parameters' "
            f"(one number for each subtree); got {structure} for parameters {treedef}."
        ) from error
    return list(jax.tree_util.tree_leaves(full))
