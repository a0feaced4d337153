"""Gates: what the main loops of dense kernels must keep to, read off their machine code.

| gate | |
|---|---|
| `instructions` | at most three instructions for each of a tensor core, or what `limits` says |
| `copies` | operands come by asynchronous copies (LDGSTS, TMA) and by matrices (LDSM), or warp groups |
| `generic` | no load or store that looks up its address space |
| `division` | no division of whole numbers |
| `banks` | no access of shared memory in more than two turns beyond its size, where that is known |

What is let through, and why, is in `limits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.gpu.cycles import banks, counts, opcodes
from benchmarks.gpu.cycles.loops import Loop, loops, main
from benchmarks.gpu.cycles.sass import Block, Function, Instruction, basic_blocks

MOST_INSTRUCTIONS = 3.0
MOST_WAYS = 2
COPIES = ("LDGSTS", "UTMALDG", "UBLKCP")


class MainLoop(NamedTuple):
    """A loop with tensor-core instructions: its usual way, all its code, and the code before it."""

    way: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    before: tuple[Instruction, ...]
    function: tuple[Instruction, ...]


def tensor_loops(function: Function) -> list[MainLoop]:
    """The loops of tensor cores that do the work."""
    instructions = function.instructions
    blocks = basic_blocks(instructions)

    return [
        MainLoop(
            counts.usual_way(blocks, loop),
            _body(blocks, loop),
            tuple(one for one in instructions if one.address < loop.header),
            instructions,
        )
        for loop in main(loops(blocks), counts.tensor_weight(blocks))
    ]


def _body(blocks: dict[int, Block], loop: Loop) -> tuple[Instruction, ...]:
    return tuple(one for name in sorted(loop.body) for one in blocks[name].instructions)


def per_product(loop: MainLoop) -> float:
    """Instructions for each of a tensor core."""
    return counts.count(loop.way).per_product


def instructions(loop: MainLoop, most: float = MOST_INSTRUCTIONS) -> str:
    """Empty, or what is wrong."""
    ratio = per_product(loop)
    return f"{ratio:.2f} instructions for each product, at most {most:g}" if ratio > most else ""


def copies(loop: MainLoop) -> str:
    """Warp groups read shared memory themselves; one of their warps copies, in a loop of its own."""
    here = {one.base for one in loop.body}
    everywhere = {one.base for one in loop.function}
    if here & {"HGMMA"}:
        return "" if everywhere & set(COPIES) else "no asynchronous copies"
    missing = [] if here & set(COPIES) else ["asynchronous copies"]
    missing += [] if here & {"LDSM"} else ["loads of matrices"]
    return f"no {' and no '.join(missing)}" if missing else ""


def generic(loop: MainLoop) -> str:
    """Of all ways, the slow ones too."""
    found = sum(opcodes.is_generic(one) for one in loop.body)
    return f"{found} generic loads and stores" if found else ""


def division(loop: MainLoop) -> str:
    """A subroutine, or the reciprocal that a division of whole numbers begins with."""
    calls = sum(one.base == "CALL" and _returns(loop, one.target) for one in loop.body)
    made = any(one.base == "I2F" for one in loop.body)
    reciprocals = sum(one.opcode.startswith("MUFU.RCP") for one in loop.body) if made else 0
    return f"{calls + reciprocals} divisions" if calls + reciprocals else ""


def _returns(loop: MainLoop, target: int | None) -> bool:
    """Whether what is called comes back; some calls are jumps."""
    after = (one for one in loop.function if one.address >= (target or 0))
    ends = (one.base for one in after if one.base in ("RET", "EXIT", "HMMA", "HGMMA"))
    return next(ends, "RET") == "RET"


def bank_conflicts(loop: MainLoop) -> str:
    """The worst access."""
    found = banks.conflicts(loop.before, loop.way)
    worst = max(found, key=lambda conflict: conflict.ways, default=None)
    if worst is None or worst.ways <= MOST_WAYS:
        return ""
    return f"{worst.ways} ways at {worst.instruction.opcode}"


GATES: dict[str, Callable[[MainLoop], str]] = {
    "instructions": instructions,
    "copies": copies,
    "generic": generic,
    "division": division,
    "banks": bank_conflicts,
}


def problems(function: Function, most: float = MOST_INSTRUCTIONS) -> dict[str, str]:
    """What is wrong with a kernel, by gate; empty texts where nothing is."""
    found = tensor_loops(function)
    texts = {name: [gate(loop) for loop in found] for name, gate in GATES.items()}
    texts["instructions"] = [instructions(loop, most) for loop in found]
    return {
        name: "; ".join(sorted({text for text in parts if text})) for name, parts in texts.items()
    }
