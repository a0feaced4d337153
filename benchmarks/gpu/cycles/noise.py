"""Noise: the turn of a kernel that makes normals from ChaCha20, which has no products to find it by.

A thread makes a block of 16 words and from them 16 values in float32. The way through its outer loop
is the one that stores them; the loop of ChaCha's double rounds is inside and runs ten times. Divisions
and square roots are correctly rounded: their short ways are counted, which all but rare operands take.
"""

from __future__ import annotations

from benchmarks.gpu.cycles import counts
from benchmarks.gpu.cycles.compiled import Shape
from benchmarks.gpu.cycles.loops import Loop, loops, steady_path
from benchmarks.gpu.cycles.model import Kernel
from benchmarks.gpu.cycles.sass import Block, Function, Instruction, basic_blocks

DOUBLE_ROUNDS = 10  # of ChaCha20
EXCLUSIVE_ORS = 32  # of one double round


def turn(function: Function) -> tuple[Instruction, ...]:
    """What a warp runs for one block of each of its threads."""
    blocks = basic_blocks(function.instructions)
    found = loops(blocks)
    if not found:
        raise ValueError(f"{function.name} has no loop.")
    outer = max(found, key=lambda loop: len(loop.body))
    rounds, times = _rounds(blocks, found, outer, function.name)
    return steady_path(blocks, outer, _worth) + (times - 1) * rounds


def _worth(one: Instruction) -> tuple[float, ...]:
    """Values stored, then no subroutine for rare operands, then as few instructions as can be."""
    return float(one.base == "STG"), -float(one.base == "CALL"), -1.0


def _rounds(
    blocks: dict[int, Block], found: list[Loop], outer: Loop, name: str
) -> tuple[tuple[Instruction, ...], int]:
    """One turn of the loop of double rounds, and how often it runs."""
    for loop in found:
        way = steady_path(blocks, loop, _worth)
        orders = sum(one.base == "LOP3" for one in way)
        double_rounds = orders // EXCLUSIVE_ORS
        if loop.body < outer.body and double_rounds and DOUBLE_ROUNDS % double_rounds == 0:
            return way, DOUBLE_ROUNDS // double_rounds
    raise ValueError(f"{name} has no loop with the double rounds of ChaCha20.")


def read_kernel(function: Function, shape: Shape, used: tuple[int, int]) -> Kernel:
    """A kernel of the model whose tile are the threads of a block and the values of each."""
    way = turn(function)
    registers, shared = used
    outside = len(function.instructions) - len({one.address for one in way})
    return Kernel(
        shape.label, counts.count(way), shape.warps, shape.tile, registers, shared, outside
    )


def values(kernel: Kernel) -> int:
    """Of a block in one turn."""
    threads, each = kernel.tile
    return threads * each
