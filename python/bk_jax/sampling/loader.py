"""The loader: from a step's key to its batch, from arrays or anything with `[i]` and `len`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from bk_jax.privacy import checks
from bk_jax.sampling.batches import Batch, PaddedCollate, pad, stack
from bk_jax.sampling.hosts import ONE, Hosts
from bk_jax.sampling.sampler import Sampler


@dataclasses.dataclass(frozen=True)
class Loader:
    """Batches of a data set, always in the same shape.

    >>> import jax, numpy as np
    >>> data = {"x": np.arange(1000.0), "y": np.arange(1000)}
    >>> from bk_jax.sampling import PoissonSampler
    >>> loader = Loader(data, PoissonSampler(1000, 5), physical_batch_size=4)
    >>> for batch in loader.physical_batches(jax.random.key(3)):
    ...     print(batch.examples["y"], batch.is_padding_example.sum())
    [ 28 137 179 231] 0
    [367 399 694 738] 0
    [868 974   0   0] 2

    Attributes:
      source: a tree of arrays with a leading axis of examples; or a data set with `__getitem__` and
        `__len__` (PyTorch's map-style data sets, Grain's data sources and `MapDataset`), whose
        examples are trees of arrays. `__getitems__` is used if it exists.
      sampler: which examples a batch holds.
      physical_batch_size: rows of a physical batch; default: `max_batch_size` of the sampler.
      collate_fn: for data sets, how a list of examples becomes arrays.
      hosts: which of several processes this is. Each gets its share of the same batches, and sizes
        count all shares together. `sampling.Hosts.of_sharding` finds it.
    """

    source: Any
    sampler: Sampler
    physical_batch_size: int | None = None
    collate_fn: Callable[[Sequence[Any]], Any] = stack
    hosts: Hosts = ONE

    def __post_init__(self) -> None:
        if self.physical_batch_size is not None:
            checks.whole_number("physical_batch_size", self.physical_batch_size, 1)
        elif self.sampler.max_batch_size is None:
            raise ValueError(
                "batches of any size need physical_batch_size: the loader cuts them into parts of this "
                "many rows (bk_jax.sampling.accumulated adds them up). Or set the plan's max_batch_size."
            )
        self.hosts.rows(self.physical_batch_size or self.sampler.max_batch_size or 0)
        size = _size(self.source)
        if size != self.sampler.num_examples:
            raise ValueError(
                f"the data has {size} examples, but the plan was made for {self.sampler.num_examples}; "
                "the chance to be sampled would not be the one that is accounted for."
            )

    def batch(self, key: jax.Array) -> Batch:
        """The whole batch of a step in one piece, `max_batch_size` rows long."""
        size = self.sampler.max_batch_size
        if size is None:
            raise ValueError(
                "a batch of any size does not fit into one shape. Set max_batch_size in the plan "
                '("auto" costs next to nothing), or use physical_batches.'
            )
        return self._gather(self.sampler.indices(key), size)

    def physical_batches(self, key: jax.Array) -> Iterator[Batch]:
        """The batch of a step in parts of `physical_batch_size` rows; an empty batch is one."""
        indices = self.sampler.indices(key)
        size = self.physical_batch_size or self.sampler.max_batch_size
        assert size is not None  # checked when the loader was created
        for start in range(0, max(1, len(indices)), size):
            yield self._gather(indices[start : start + size], size)

    def _gather(self, indices: np.ndarray[Any, Any], size: int) -> Batch:
        indices, size = self.hosts.share(indices), self.hosts.rows(size)
        if _is_indexable(self.source):
            template = None if len(indices) else self.source[0]
            collate = PaddedCollate(size, template, self.collate_fn)
            return collate(_items(self.source, indices.tolist()))
        places = np.zeros(
            size, np.int64
        )  # one shape, also for the code that a device compiles to fetch rows
        places[: len(indices)] = indices
        rows = jax.tree_util.tree_map(lambda x: np.asarray(x[places]), self.source)
        return pad(rows, len(indices), size)


def _is_indexable(source: Any) -> bool:
    """Whether this is a data set, rather than a tree of arrays."""
    if hasattr(source, "dtype") or not jax.tree_util.all_leaves([source]):
        return False
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _items(source: Any, indices: list[int]) -> Sequence[Any]:
    if indices and hasattr(source, "__getitems__"):
        return list(source.__getitems__(indices))
    return [source[i] for i in indices]


def _size(source: Any) -> int:
    if _is_indexable(source):
        return len(source)
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree_util.tree_leaves(source)}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(
            "the data must be a tree of arrays that share a leading axis of examples, or an object with "
            f"__getitem__ and __len__; got {type(source).__name__} with leading axes {sorted(sizes)}."
        )
    return int(next(iter(sizes))[0])
