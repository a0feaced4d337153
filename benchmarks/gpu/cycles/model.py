"""Model: the cap of a kernel on a GPU, and the time of a shape.

A multiprocessor runs several blocks at once. A turn of their main loop takes as long as the resource
that is busy longest: issue slots, tensor cores, another pipe, shared memory, the L2 cache. It is no
shorter than the latency of memory divided by the stages that are under way. The cap is the time of the
tensor cores over that. A shape takes waves of blocks, the last of them not full; every block has a
beginning, in which its first operands arrive, and an end, in which the rest of its code runs and its
result is written. Memory is an upper bound of its own.

What the model leaves out: conflicts between banks (but see `banks`), stalls between dependent
instructions, uneven clocks, and caches beyond "an operand of a wave is read once".
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from benchmarks.gpu.cycles.architectures import Architecture
from benchmarks.gpu.cycles.counts import Counts
from benchmarks.gpu.cycles.opcodes import LANES

RESERVED = 1024  # bytes of shared memory that a block takes beside its own
MEMORY_SHARE = 0.9  # of the bandwidth that long streams reach


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel as compiled for one architecture.

    Attributes:
      name: for people.
      turn: counts of one turn of its main loop, of a warp.
      warps: of a block, those that compute.
      tile: rows and columns of the result that a block has.
      registers: of a thread.
      shared: bytes of a block.
      outside: instructions of a warp outside of its main loops.
      products: tensor-core products for one of float32 (three for two TF32 numbers each).
      threads: of a block, all of them.
      load_bytes: bytes that a block loads in a turn, where the code does not say (TMA).
    """

    name: str
    turn: Counts
    warps: int
    tile: tuple[int, int]
    registers: int
    shared: int
    outside: int
    products: int = 1
    threads: int = 0
    load_bytes: int = 0

    @property
    def depth(self) -> float:
        """Of the sum that a turn adds to the tile."""
        rows, columns = self.tile
        return self.turn.multiply_adds * self.warps / self.products / (rows * columns)

    @property
    def loaded(self) -> int:
        """Bytes of a block in a turn."""
        return self.load_bytes or self.turn.loaded * self.warps

    @property
    def copies_ahead(self) -> bool:
        """Whether blocks stay and a warp of its own copies: those of warp groups."""
        return any(is_group for _, is_group in self.turn.tensor)

    @property
    def stages(self) -> int:
        """Turns that loads may take: as many as fit into shared memory beside the one in use."""
        if not self.turn.has("LDGSTS", "UTMALDG", "UBLKCP") and not self.load_bytes:
            return 1
        return max(1, self.shared // max(self.loaded, 1) - 1)


class Bound(NamedTuple):
    """What limits a loop, and the cycles of each resource in one turn of all blocks at once."""

    limit: str
    cycles: float
    resources: dict[str, float]


def blocks_at_once(kernel: Kernel, gpu: Architecture) -> int:
    """Blocks of a multiprocessor, as the occupancy calculator has it: registers in 256 for a warp."""
    warps = (kernel.threads or LANES * kernel.warps) // LANES
    of_warp = -(-kernel.registers * LANES // 256) * 256
    by_registers = gpu.registers // of_warp // 4 * 4 // warps
    by_shared = gpu.shared // (kernel.shared + RESERVED)
    return max(1, min(by_registers, by_shared, gpu.warps // warps, gpu.blocks))


def bound(kernel: Kernel, gpu: Architecture, blocks: int | None = None) -> Bound:
    """What a turn takes with so many blocks on a multiprocessor; as many as fit if none are named."""
    count = blocks_at_once(kernel, gpu) if blocks is None else blocks
    warps, turn = count * kernel.warps, kernel.turn
    lanes = {"fma": gpu.fp32, "alu": gpu.alu, "double": gpu.double, "special": gpu.special}
    resources = {
        "issue": turn.issued * warps / gpu.issue,
        "tensor": tensor_cycles(turn, gpu) * warps,
        "shared": turn.wavefronts * warps,
        "L2": count * kernel.loaded / gpu.l2_rate,
        "latency": gpu.latency / kernel.stages,
    }
    for name, width in lanes.items():
        resources[name] = LANES * turn.pipes.get(name, 0) * warps / width
    limit = max(resources, key=lambda name: resources[name])
    return Bound(limit, resources[limit], resources)


def tensor_cycles(turn: Counts, gpu: Architecture) -> float:
    """Of one warp, in cycles of the tensor cores of the whole multiprocessor."""
    return sum(value / gpu.tensor_rate(*kind) for kind, value in turn.tensor.items())


def cap(kernel: Kernel, gpu: Architecture) -> float:
    """Share of the GPU's peak that the main loop can reach, at its nominal clock.

    For kernels without tensor cores it is the share of the peak of float32.
    """
    found, count = bound(kernel, gpu), blocks_at_once(kernel, gpu)
    done = kernel.turn.multiply_adds * kernel.warps * count / kernel.products
    kinds = {elements for elements, _ in kernel.turn.tensor}
    best = (gpu.peak / 2 if "tf32" in kinds else gpu.peak) if kinds else gpu.fp32
    return done / found.cycles / best


class Work(NamedTuple):
    """What one launch computes: tiles, the length of the sum of each, and bytes of memory."""

    tiles: int
    length: float
    memory_bytes: float
    written: float = 0.0  # bytes of a tile's result


def seconds(kernel: Kernel, gpu: Architecture, work: Work) -> float:
    """Of one launch."""
    compute = cycles(kernel, gpu, work) / (gpu.clock * gpu.sustained)
    return max(compute, work.memory_bytes / (MEMORY_SHARE * gpu.memory)) + gpu.launch


def cycles(kernel: Kernel, gpu: Architecture, work: Work) -> float:
    """Whole waves, and one that is not full."""
    most = blocks_at_once(kernel, gpu)
    turns = math.ceil(work.length / kernel.depth)
    waves, rest = divmod(work.tiles, gpu.multiprocessors * most)
    total = waves * _wave(kernel, gpu, turns, most, work)
    if rest:
        total += _wave(kernel, gpu, turns, math.ceil(rest / gpu.multiprocessors), work)
    # A warp of its own copies for the next tile while others end the one before.
    return total + (_begin(kernel, gpu, turns) if kernel.copies_ahead else 0.0)


def _wave(kernel: Kernel, gpu: Architecture, turns: int, blocks: int, work: Work) -> float:
    """Blocks that begin together on a multiprocessor; beginnings and ends of some hide behind others."""
    loop = turns * bound(kernel, gpu, blocks).cycles
    begin = 0.0 if kernel.copies_ahead else _begin(kernel, gpu, turns)
    code = kernel.outside * kernel.warps / gpu.issue
    end = code + work.written / gpu.l2_rate
    return loop + begin + blocks * end


def _begin(kernel: Kernel, gpu: Architecture, turns: int) -> float:
    """Until the first operands are there."""
    return gpu.latency + min(kernel.stages, turns) * kernel.loaded / gpu.l2_rate
