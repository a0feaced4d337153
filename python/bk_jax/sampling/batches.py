"""Batches of a fixed shape: real rows first, then rows of zeros marked as padding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bk_jax.privacy import checks


class Batch(NamedTuple):
    """What `dp_value_and_grad` takes: examples, and which of them are padding.

    `grad_fn(params, batch.examples, is_padding_example=batch.is_padding_example, key=key)`

    >>> batch = Batch(np.ones((3, 2)), np.asarray([False, False, True]))
    >>> int((~batch.is_padding_example).sum())
    2
    """

    examples: Any
    is_padding_example: np.ndarray[Any, Any]


def stack(items: Sequence[Any]) -> Any:
    """Stacks examples, which are trees of arrays and numbers: the default way to collate.

    >>> stack([{"x": [1.0, 2.0], "y": 3}, {"x": [4.0, 5.0], "y": 6}])["y"]
    array([3, 6])
    """
    if any(item is None for item in items):
        raise ValueError(
            "an example is None, as from a data set of Grain that filters: the plan counts rows, and a "
            "row that was chosen must arrive. Make the table of the rows that are left before the plan."
        )
    treedef: Any = jax.tree_util.tree_structure(items[0])
    for item in items[1:]:
        if jax.tree_util.tree_structure(item) != treedef:
            raise ValueError(
                f"examples differ in structure: {treedef} and {jax.tree_util.tree_structure(item)}. "
                "Give a collate_fn that brings them into one form."
            )
    return jax.tree_util.tree_map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *items)


def pad(examples: Any, count: int, size: int) -> Batch:
    """The first `count` rows of every array, then zeros up to `size` rows.

    >>> pad(np.asarray([[1, 2], [3, 4]]), 1, 3)
    Batch(examples=array([[1, 2], [0, 0], [0, 0]]), is_padding_example=array([False,  True,  True]))
    """
    return Batch(
        jax.tree_util.tree_map(lambda x: _pad_rows(x, count, size), examples),
        np.arange(size) >= count,
    )


def _pad_rows(array: Any, count: int, size: int) -> np.ndarray[Any, Any]:
    rows = np.asarray(array)
    out = np.zeros((size, *rows.shape[1:]), rows.dtype)
    out[:count] = rows[:count]
    return out


@dataclasses.dataclass(frozen=True)
class PaddedCollate:
    """A `collate_fn` for PyTorch-like loaders that pads every batch to `size` rows, empty ones too.

    >>> collate = PaddedCollate(3, template=np.zeros(2, np.int32))
    >>> collate([]).examples.shape, int(collate([np.ones(2, np.int32)]).examples.sum())
    ((3, 2), 2)

    Attributes:
      size: rows of a batch; the plan's `max_batch_size`. A larger batch is refused, since cutting
        it here would not match the accounting.
      template: any example; it gives an empty batch its shapes. Its values are not used.
      collate_fn: turns a list of examples into a tree of arrays with a leading axis.
    """

    size: int
    template: Any
    collate_fn: Callable[[Sequence[Any]], Any] = stack

    def __post_init__(self) -> None:
        checks.whole_number("size", self.size, 1)

    def __call__(self, items: Sequence[Any]) -> Batch:
        """The examples as one padded batch."""
        if len(items) > self.size:
            raise ValueError(
                f"a batch of {len(items)} examples does not fit into {self.size} rows. Set "
                "max_batch_size in the plan, so that the sampler cuts it and the accounting knows."
            )
        examples = self.collate_fn(list(items) if items else [self.template])
        _check_rows(examples, max(1, len(items)))
        return pad(examples, len(items), self.size)


def _check_rows(examples: Any, count: int) -> None:
    for leaf in jax.tree_util.tree_leaves(examples):
        if np.shape(leaf)[:1] != (count,):
            raise ValueError(
                f"collate_fn made an array of shape {np.shape(leaf)} from {count} examples; every array "
                "needs a leading axis with one row per example."
            )
