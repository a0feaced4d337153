"""Layouts: how parameters lie on a mesh with the axes `data` and `model`.

| layout | parameters |
|---|---|
| `data` | whole on every device |
| `fsdp` | each cut along its longest axis, over `data` |
| `tensor` | layers of transformers cut over `model`: the first of two by columns, the second by rows |
| `both` | as `tensor`, the table of words too; and the other axis of each matrix over `data` |
"""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

COLUMNS = ("qkv", "up", "gate", "query", "key", "value")
ROWS = ("out", "down")
WORDS = ("token", "head")
FACTORS = ("a", "b")


def parameter_specs(params: Any, layout: str, mesh: Mesh) -> Any:
    """A tree like the parameters, with the part that a device has of each."""
    if layout == "fsdp":
        return jax.tree.map(lambda x: _longest(x.shape, mesh.shape["data"]), params)
    if layout == "tensor":
        return jax.tree_util.tree_map_with_path(_by_name, params)
    if layout == "both":
        return jax.tree_util.tree_map_with_path(_along_both, params)
    return jax.tree.map(lambda x: P(), params)


def _along_both(path: Any, leaf: Any) -> P:
    """Columns or rows over `model`, the other axis over `data`; vectors stay whole.

    Low-rank factors (`a`, `b`) are small and whole, too: their weights' names come before theirs.
    """
    names, rank = _names(path), len(leaf.shape)
    if rank < 2 or names[-1] in FACTORS or not {*names} & {*COLUMNS, *ROWS, *WORDS}:
        return P()
    by_rows = bool({*names} & {*ROWS, "token"})
    return P(*[None] * (rank - 2), *(("model", "data") if by_rows else ("data", "model")))


def _names(path: Any) -> list[str]:
    return [str(getattr(key, "key", "")) for key in path]


def _longest(shape: tuple[int, ...], parts: int) -> P:
    """The longest axis that divides evenly; small arrays stay whole."""
    axes = [axis for axis, size in enumerate(shape) if size % parts == 0]
    if not axes or math.prod(shape) < 1024:
        return P()
    cut = max(axes, key=lambda axis: shape[axis])
    return P(*[("data" if axis == cut else None) for axis in range(len(shape))])


def _by_name(path: Any, leaf: Any) -> P:
    names = _names(path)
    rank, is_bias = len(leaf.shape), names[-1] == "b"
    if any(name in COLUMNS for name in names):
        return P(*[None] * (rank - 1), "model")
    if any(name in ROWS for name in names) and not is_bias:
        return P(*[None] * (rank - 2), "model", None)
    return P()
