"""Counts: what one turn of a kernel's main loops takes, for one warp."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.gpu.cycles import opcodes
from benchmarks.gpu.cycles.loops import Loop, loops, main, steady_path
from benchmarks.gpu.cycles.sass import Block, Function, Instruction, basic_blocks

VECTOR = 16  # bytes of a load that counts as one of the fast way


@dataclasses.dataclass(frozen=True)
class Counts:
    """Of one warp, along the way that a long run takes.

    Attributes:
      issued: instructions.
      tensor: multiply-adds of tensor cores, by type of operands, single warps' and groups'.
      tensor_instructions: how many instructions those are.
      pipes: instructions of every pipe.
      ffma: of them, multiply-adds in float32.
      wavefronts: cycles of shared memory.
      loaded: bytes from global memory.
      opcodes: how often each occurs.
    """

    issued: float
    tensor: dict[tuple[str, bool], float]
    tensor_instructions: float
    pipes: dict[str, float]
    ffma: float
    wavefronts: float
    loaded: float
    opcodes: dict[str, float]

    @property
    def multiply_adds(self) -> float:
        """Of tensor cores, or without them those of single numbers."""
        return sum(self.tensor.values()) or opcodes.LANES * self.ffma

    @property
    def per_product(self) -> float:
        """Instructions for each of a tensor core; an HGMMA counts as the HMMAs of its size."""
        groups = sum(value for (_, group), value in self.tensor.items() if group)
        products = groups / 2048 if groups else self.tensor_instructions
        return self.issued / (products or self.ffma or 1)

    def has(self, *bases: str) -> bool:
        """Whether an instruction with one of these names occurs."""
        return any(name.split(".", 1)[0] in bases for name in self.opcodes)


def count(instructions: Iterable[Instruction]) -> Counts:
    """Counts instructions that run one after the other."""
    found = list(instructions)
    tensor: collections.Counter[tuple[str, bool]] = collections.Counter()
    for one in found:
        if product := opcodes.tensor_product(one):
            tensor[product.elements, product.is_group] += product.multiply_adds
    return Counts(
        issued=len(found),
        tensor=dict(tensor),
        tensor_instructions=sum(opcodes.is_tensor(one) for one in found),
        pipes=dict(collections.Counter(opcodes.pipe(one) for one in found)),
        ffma=sum(one.base == "FFMA" for one in found),
        wavefronts=sum(opcodes.wavefronts(one) for one in found),
        loaded=sum(opcodes.global_bytes(one) for one in found),
        opcodes=dict(collections.Counter(one.opcode for one in found)),
    )


def tensor_weight(blocks: dict[int, Block]) -> Callable[[int], float]:
    """Tensor-core instructions of a block."""
    return lambda name: sum(opcodes.is_tensor(one) for one in blocks[name].instructions)


def main_loops(function: Function) -> list[tuple[Instruction, ...]]:
    """The ways through one turn of the loops with products, in the order of addresses.

    Those of tensor cores, or if there are none, those of multiply-adds in float32.
    """
    blocks = basic_blocks(function.instructions)
    found = loops(blocks)
    chosen = main(found, tensor_weight(blocks)) or main(
        found, lambda name: sum(one.base == "FFMA" for one in blocks[name].instructions)
    )
    return [usual_way(blocks, loop) for loop in chosen]


def usual_way(blocks: dict[int, Block], loop: Loop) -> tuple[Instruction, ...]:
    """Of a long run; where operands are copied asynchronously, other loads are of rare ends.

    Those of clipped sums read factors where an example ends, to find the next one.
    """
    body = [one for name in loop.body for one in blocks[name].instructions]
    if not any(one.base == "LDGSTS" for one in body):
        return steady_path(blocks, loop, worth)
    return steady_path(
        blocks, loop, lambda one: worth(one) if one.base != "LDG" else (0.0, 0.0, 0.0, -1.0)
    )


def worth(one: Instruction) -> tuple[float, ...]:
    """Products first, then wide loads, then all loads, then as few instructions as can be."""
    product = opcodes.tensor_product(one)
    flops = product.multiply_adds if product else 32 * (one.base == "FFMA")
    # Copies into shared memory are guarded by predicates; single loads are the slow way.
    loaded = opcodes.global_bytes(one)
    vector = loaded if opcodes.access_bytes(one) >= VECTOR else 0
    other = 2048 * (opcodes.is_tensor(one) and not product)  # of a size that is not in the name
    return float(flops + other), float(vector), float(loaded), -1.0


def mean(turns: list[Counts]) -> Counts:
    """Of several loops, each as often as the others."""

    def average(parts: list[dict[Any, Any]]) -> dict[Any, float]:
        keys = {key for part in parts for key in part}
        return {key: sum(part.get(key, 0) for part in parts) / len(parts) for key in sorted(keys)}

    numbers = ("issued", "tensor_instructions", "ffma", "wavefronts", "loaded")
    tables = ("tensor", "pipes", "opcodes")
    return Counts(
        **{name: sum(getattr(turn, name) for turn in turns) / len(turns) for name in numbers},
        **{name: average([getattr(turn, name) for turn in turns]) for name in tables},
    )
