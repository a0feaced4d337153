"""What if: steps and kernels as they would be with code that does not exist, by the same model.

- Clusters of blocks on an H100, whose copies (TMA) reach all of a cluster at once: of two blocks of
  128 x 128, one operand comes from the L2 cache once for both; of four, each operand once for two. Tiles
  of 128 x 256 in clusters of two take as many bytes for a product as clusters of four here.
- Norms of convolutions as products of patches on tensor cores; XLA writes the patches, our kernel reads
  them. Today's kernel gathers pixels and has no tensor cores.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from benchmarks.gpu.cycles import architectures, kernels, steps
from benchmarks.gpu.cycles.calls import ITEM, Calls, Dense
from benchmarks.gpu.cycles.model import Kernel

CLUSTERED = ("ghost norm", "product", "clipped sum")  # large tiles, aligned rows
CLUSTERS = {2: 0.75, 4: 0.5}  # blocks: bytes from the L2 cache of each, of those alone


class Convolution(NamedTuple):
    """Of 3 x 3 with padding: B images of side x side, channels in and out."""

    batch: int
    side: int
    channels_in: int
    channels_out: int

    @property
    def dense(self) -> Dense:
        """As a product of patches."""
        return Dense(self.batch, self.side**2, 9 * self.channels_in, self.channels_out)


CONVOLUTIONS = (  # of ResNets
    Convolution(32, 56, 64, 64),
    Convolution(32, 28, 128, 128),
    Convolution(32, 14, 256, 256),
    Convolution(32, 7, 512, 512),
)


def clustered(found: dict[str, Kernel], blocks: int) -> dict[str, Kernel]:
    """Kernels with large tiles in clusters of so many blocks."""
    changed = {
        key: dataclasses.replace(found[key], load_bytes=int(CLUSTERS[blocks] * found[key].loaded))
        for key in CLUSTERED
    }
    return {**found, **changed}


def clustered_steps(blocks: int, gpu: str = "H100") -> list[steps.Step]:
    """All cases."""
    found = clustered(kernels.recorded("after", gpu), blocks)
    calls = Calls(found, architectures.find(gpu))
    return [steps.predict(case, calls) for case in steps.CASES]


def patches_seconds(calls: Calls, one: Convolution) -> float:
    """Patches written by XLA, the norm by the kernel of dense layers, which reads them."""
    layer = one.dense
    written = ITEM * layer.batch * layer.tokens * (one.channels_in + layer.d)
    return calls.memory(written) + calls.gpu.launch + calls.direct_norm(layer)
