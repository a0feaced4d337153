"""Hosts: one batch for all processes, where each loads its share.

    rows = NamedSharding(mesh, P("data"))
    loader = sampling.Loader(data, sampler, hosts=sampling.Hosts.of_sharding(rows))
    batch = sampling.spread(loader.batch(step.sampling_key), rows, loader.hosts)

All processes draw the same batch from the same key, so hosts do not affect the accounting. The rows
of a batch are dealt out in turn, and every share is padded to the same size. Processes whose
devices hold the same rows, because the layers are spread over them, count as one host and load the
same share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bk_jax.privacy import checks
from bk_jax.sampling.batches import Batch


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Number `index` of `count` hosts that share batches; by default there is one.

    >>> Hosts(1, 3).share(np.asarray([10, 20, 30, 40, 50])), Hosts(1, 3).rows(6)
    (array([20, 50]), 2)
    """

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        checks.whole_number("count", self.count, 1)
        checks.whole_number("index", self.index, 0)
        if self.index >= self.count:
            raise ValueError(f"host {self.index} of {self.count}: hosts are counted from 0.")

    @staticmethod
    def of_sharding(sharding: jax.sharding.Sharding) -> Hosts:
        """This process in `jax.distributed`; processes that hold the same rows are one host.

        Args:
          sharding: cuts the rows of a batch over devices, such as `NamedSharding(mesh, P("data"))`.
        """
        rows: dict[int, set[int]] = {}
        places: Mapping[Any, Any] = sharding.devices_indices_map((sharding.num_devices,))
        for device, (own,) in places.items():
            rows.setdefault(device.process_index, set()).add(own.start or 0)
        shares = sorted({tuple(sorted(own)) for own in rows.values()})
        starts = [start for share in shares for start in share]
        if len(set(map(len, shares))) > 1 or len(starts) != len(set(starts)):
            raise ValueError(
                f"the devices of the processes hold {len(shares)} different shares of the rows, which "
                "overlap or are not of one size. Put the axis of the batch first: "
                'jax.make_mesh((hosts, ...), ("data", ...)).'
            )
        return Hosts(shares.index(tuple(sorted(rows[jax.process_index()]))), len(shares))

    def share(self, indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """This host's examples of a batch."""
        return indices[self.index :: self.count]

    def rows(self, size: int) -> int:
        """How many rows this host has of a batch of `size` rows."""
        if size % self.count:
            raise ValueError(
                f"{self.count} hosts cannot share {size} rows evenly; choose physical_batch_size, or "
                f"max_batch_size of the plan, as a multiple of {self.count}."
            )
        return size // self.count


ONE = Hosts()


def spread(batch: Batch, sharding: jax.sharding.Sharding, hosts: Hosts) -> Batch:
    """The shares of all hosts as one batch of global arrays.

    Args:
      batch: this host's share, from a `Loader` with `hosts`.
      sharding: cuts the leading axis over the devices of all hosts, such as
        `NamedSharding(mesh, P("data"))`. The devices of a host must hold neighbouring rows, as they
        do if `jax.make_mesh` made the mesh with the batch axis first.
      hosts: those of the loader. It is an error if they do not fit the sharding, because devices
        that should hold the same examples would hold different ones.

    >>> import jax, numpy as np
    >>> from bk_jax import sampling
    >>> sharding = jax.sharding.NamedSharding(
    ...     jax.make_mesh((1,), ("data",)), jax.sharding.PartitionSpec("data"))
    >>> batch = sampling.Batch(np.ones((4, 2)), np.zeros(4, bool))
    >>> spread(batch, sharding, sampling.Hosts.of_sharding(sharding)).examples.shape
    (4, 2)
    """
    if hosts != (own := Hosts.of_sharding(sharding)):
        raise ValueError(
            f"the loader deals to {hosts}, but by the sharding this is {own}: devices that share rows "
            "would get different examples. Make the loader with hosts=Hosts.of_sharding(sharding)."
        )
    return jax.tree_util.tree_map(
        lambda x: jax.make_array_from_process_local_data(sharding, np.asarray(x)), batch
    )
