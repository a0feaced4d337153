"""What if: steps as they would be with code that does not exist, by the same model.

Clusters of blocks on an H100, whose copies (TMA) reach all of a cluster at once: of two blocks of
128 x 128, one operand comes from the L2 cache once for both; of four, each operand once for two. Tiles
of 128 x 256 in clusters of two take as many bytes for a product as clusters of four here.
"""

from __future__ import annotations

import dataclasses

from benchmarks.gpu.cycles import architectures, kernels, steps
from benchmarks.gpu.cycles.calls import Calls
from benchmarks.gpu.cycles.model import Kernel

CLUSTERED = ("ghost norm", "product", "clipped sum")  # large tiles, aligned rows
CLUSTERS = {2: 0.75, 4: 0.5}  # blocks: bytes from the L2 cache of each, of those alone


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
