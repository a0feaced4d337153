"""SASS: machine code as `cuobjdump -sass` prints it, as instructions and basic blocks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

LINE = re.compile(
    r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(@!?U?P[0-9T]+\s+)?([A-Z][\w.]*)\s*([^;]*);",
    re.MULTILINE,
)
TARGET = re.compile(r"\b0x([0-9a-f]+)\s*$")
ENDS = ("EXIT", "RET", "BRX", "JMX", "KILL", "BPT")  # nothing follows, or nobody knows what


class Instruction(NamedTuple):
    """One line: `@P0 LDG.E.128 R4, [R2.64]`."""

    address: int
    guard: str
    opcode: str
    operands: str

    @property
    def base(self) -> str:
        """Without its modifiers: LDG of LDG.E.128."""
        return self.opcode.split(".", 1)[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """E and 128 of LDG.E.128."""
        return tuple(self.opcode.split(".")[1:])

    @property
    def target(self) -> int | None:
        """Where a jump or a call goes."""
        found = TARGET.search(self.operands)
        return int(found.group(1), 16) if found else None

    @property
    def always(self) -> bool:
        """Whether no predicate guards it."""
        return self.guard in ("", "@PT", "@UPT")


class Block(NamedTuple):
    """Instructions that run one after the other, and the blocks that may follow."""

    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]

    @property
    def start(self) -> int:
        """Its name: the address of the first instruction."""
        return self.instructions[0].address


class Function(NamedTuple):
    """The machine code of one kernel for one architecture."""

    name: str
    architecture: str
    code: str

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All of them, without the NOPs at the end."""
        return parse(self.code)


def functions(text: str) -> Iterator[Function]:
    """All kernels in what cuobjdump printed; those of one architecture follow a line that names it."""
    for part in re.split(r"^\s*(?:arch = |code for )", text, flags=re.MULTILINE)[1:]:
        architecture = part.split("\n", 1)[0].strip()
        for body in part.split("Function : ")[1:]:
            name, code = body.split("\n", 1)
            yield Function(name.strip(), architecture, code)


def parse(code: str) -> tuple[Instruction, ...]:
    """The instructions of one function.

    >>> code = "        /*0010*/               @P0 LDG.E.128 R4, [R2.64] ;     /* 0x0000 */"
    >>> parse(code)
    (Instruction(address=16, guard='@P0', opcode='LDG.E.128', operands='R4, [R2.64]'),)
    """
    found = [
        Instruction(int(address, 16), (guard or "").strip(), opcode, operands.strip())
        for address, guard, opcode, operands in LINE.findall(code)
    ]
    while found and found[-1].base == "NOP":
        found.pop()
    if found and found[-1].base == "BRA" and found[-1].target == found[-1].address:
        found.pop()  # the trap after the last EXIT
    return tuple(found)


def is_jump(instruction: Instruction) -> bool:
    """Whether it goes somewhere in the same function. A call comes back."""
    return instruction.base in ("BRA", "JMP", "BRA.U") and instruction.target is not None


def basic_blocks(instructions: tuple[Instruction, ...]) -> dict[int, Block]:
    """The control flow graph, by the addresses of the first instructions."""
    starts = _starts(instructions)
    bodies: list[list[Instruction]] = []
    for instruction in instructions:
        if instruction.address in starts:
            bodies.append([])
        bodies[-1].append(instruction)
    following = [body[0].address for body in bodies[1:]]
    blocks = {}
    for number, body in enumerate(bodies):
        after = following[number] if number < len(following) else None
        blocks[body[0].address] = Block(tuple(body), _successors(body[-1], after))
    return blocks


def _starts(instructions: tuple[Instruction, ...]) -> set[int]:
    addresses = {instruction.address for instruction in instructions}
    starts = {instructions[0].address} if instructions else set()
    for one, after in itertools.pairwise(instructions):
        if is_jump(one) or one.base in ENDS:
            starts.add(after.address)
    jumps = {one.target for one in instructions if is_jump(one)}
    calls = {one.target for one in instructions if one.base == "CALL"}
    return starts | {target for target in jumps | calls if target in addresses}


def _successors(last: Instruction, after: int | None) -> tuple[int, ...]:
    next_one = () if after is None else (after,)
    if is_jump(last):
        assert last.target is not None
        # `BRA.DIV UR4, 0x10` and `BRA P0, 0x10` have their condition among the operands.
        conditional = not last.always or "," in last.operands
        return (last.target, *(next_one if conditional else ()))
    if last.base in ENDS and last.always:
        return ()
    return next_one
