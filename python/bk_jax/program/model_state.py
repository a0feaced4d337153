"""State of a model among its parameters: running statistics are no gradients, and must not be noised.

A whole `nnx.Module`, or all the variables of a linen model, holds more than what is trained. Clipping
and noise would go over statistics as if they were gradients, and an optimizer would subtract the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.boxes import KeyPath, boxes, is_parameter
from bk_jax.paths import leaf_names

NNX = (
    "graphdef, params, state = nnx.split(model, nnx.Param, ...), and in loss_fn "
    "model = nnx.merge(graphdef, params, state)"
)
LINEN = "variables['params'], and the other collections as another argument"
STATISTICS = "batch_stats"  # what linen calls them, beside "params"


def refuse_state(params: Sequence[Any]) -> None:
    """Raises where an argument to be differentiated holds real numbers that are no parameters."""
    tree = params[0] if len(params) == 1 else tuple(params)
    for state, instead in ((_of_nnx(tree), NNX), (_of_linen(tree), LINEN)):
        found = _floating(tree, state)
        if found:
            raise ValueError(
                f"{', '.join(found)}: state of the model and no parameter, so a noisy gradient of it "
                f"means nothing. Differentiate what is trained alone: {instead}."
            )


def _of_nnx(tree: Any) -> dict[KeyPath, str]:
    """The way to every variable that is no parameter, and what it is."""
    found = boxes(tree).items()
    return {path: type(box).__name__ for path, box in found if not is_parameter(box)}


def _of_linen(tree: Any) -> dict[KeyPath, str]:
    """The way to the statistics, where all collections of a model were handed over."""
    is_all = isinstance(tree, Mapping) and {"params", STATISTICS} <= tree.keys()
    return {(jax.tree_util.DictKey(STATISTICS),): STATISTICS} if is_all else {}


def _floating(tree: Any, state: Mapping[KeyPath, str]) -> list[str]:
    """The real arrays inside of these subtrees, by name and kind."""
    if not state:
        return []
    with_paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [
        f"{name!r} ({state[path[:depth]]})"
        for name, (path, leaf) in zip(leaf_names(tree), with_paths, strict=True)
        for depth in range(len(path) + 1)
        if path[:depth] in state and jnp.issubdtype(jax.typeof(leaf).dtype, jnp.floating)
    ]
