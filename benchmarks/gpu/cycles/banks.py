"""Banks: conflicts of shared memory that follow from the numbers of threads alone.

The integer instructions before a loop are computed for the 32 lanes of the first warp. Whatever is
the same for all lanes and unknown here (parameters, numbers of blocks and of turns) counts as 0; what
comes from memory is unknown, and so are addresses made of it. That shows rows that fall on one another's
banks, not conflicts that depend on data or on a stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from benchmarks.gpu.cycles.opcodes import LANES, access_bytes
from benchmarks.gpu.cycles.sass import Instruction

BANKS = 32
WORD = 0xFFFFFFFF
SHARED = ("LDS", "STS", "LDSM", "STSM", "LDGSTS")
ADDRESS = re.compile(r"\[([^\]]*)\]")
REGISTER = re.compile(r"^([-~|!]?)\|?(U?R(?:\d+|Z)|UP?T|U?P\d)(?:\.\w+)*\|?$")
THREADS = np.int64(128)  # blockDim.x, where it is read
Lanes = np.ndarray  # of 32 whole numbers


class Conflict(NamedTuple):
    """An access, and how many turns its worst part takes."""

    instruction: Instruction
    ways: int


class Machine:
    """Registers of a warp; those without a known value are absent."""

    def __init__(self) -> None:
        """All registers are unknown but those that read as zero."""
        self.values: dict[str, Lanes] = {}

    def read(self, text: str) -> Lanes | None:
        """An operand: a register, a number or a constant."""
        text = text.strip().replace(".reuse", "")
        if re.match(r"^-?(0x[0-9a-f]+|\d+)$", text):
            return np.full(LANES, int(text, 0) & WORD)
        if text.startswith(("c[", "cx[", "-c[")):
            return np.full(LANES, THREADS if "[0x0][0x0]" in text or "0x360]" in text else 0)
        found = REGISTER.match(text)
        if not found:
            return None
        sign, name = found.groups()
        value = np.zeros(LANES, np.int64) if name in ("RZ", "URZ") else self.values.get(name)
        if value is None:
            return None
        if sign == "-":
            return -value & WORD
        return ~value & WORD if sign == "~" else value

    def address(self, one: Instruction) -> Lanes | None:
        """Of shared memory: the sum of what stands between the first brackets."""
        found = ADDRESS.search(one.operands)
        if not found:
            return None
        total = np.zeros(LANES, np.int64)
        for part in re.sub(r"(?<=[\w)])-", "+-", found.group(1)).split("+"):
            value = self.read(re.sub(r"\.(64|X4|X8|X16|32|U32)$", "", part))
            if value is None:
                return None
            total = total + value
        return total & WORD

    def step(self, one: Instruction) -> None:
        """Runs an instruction, whether its predicate holds or not; forgets what it cannot compute."""
        operands = _split(one.operands)
        if not operands or not re.match(r"^U?R\d+", operands[0]):
            return
        target = re.sub(r"\.\w+$", "", operands[0])
        value = self._result(one, [text for text in operands[1:] if text])
        for name in _written(one, target):
            self.values.pop(name, None)
        if value is not None:
            self.values[target] = value & WORD

    def _result(self, one: Instruction, operands: list[str]) -> Lanes | None:
        name = one.base[1:] if re.match(r"^U[A-Z]", one.base) else one.base
        if name in ("S2R", "S2UR", "2R") or one.base in ("S2UR", "S2R"):
            return np.arange(LANES) if "TID.X" in one.operands else np.zeros(LANES, np.int64)
        if name in ("LDC", "LDCU", "CS2R", "LDC64") or one.base.startswith(("ULDC", "LDC")):
            return np.full(LANES, THREADS if "[0x0][0x0]" in one.operands else 0)
        if name in ("LD", "LDG", "LDS", "LDSM", "ATOM", "ATOMG"):
            return None
        values = [self.read(text) for text in operands if not re.match(r"^!?U?P[\dT]$", text)]
        if any(value is None for value in values) or not values:
            return None
        return _compute(name, one.modifiers, [v for v in values if v is not None])


def _split(text: str) -> list[str]:
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text)]


def _written(one: Instruction, target: str) -> list[str]:
    """All registers of the result: vectors take several."""
    kind, number = re.match(r"^(U?R)(\d+)$", target).groups()  # type: ignore[union-attr]
    many = {"LDSM": 4, "LDG": 4, "LDS": 4, "LD": 4, "HMMA": 4}.get(one.base, 1)
    if "WIDE" in one.modifiers or "64" in one.modifiers:
        many = max(many, 2)
    return [f"{kind}{int(number) + offset}" for offset in range(many)]


def _signed(value: Lanes) -> Lanes:
    return np.where(value > 0x7FFFFFFF, value - (1 << 32), value)


def _lop3(values: list[Lanes]) -> Lanes:
    """A function of three bits, by its table."""
    a, b, c, table = (*values[:3], int(values[3][0]))
    result = np.zeros(LANES, np.int64)
    for row in range(8):
        if table >> row & 1:
            bits = [x if row >> (2 - i) & 1 else ~x for i, x in enumerate((a, b, c))]
            result |= bits[0] & bits[1] & bits[2]
    return result & WORD


def _compute(name: str, modifiers: tuple[str, ...], values: list[Lanes]) -> Lanes | None:
    """Whole numbers of 32 bits; nothing for what is not among these."""
    functions = {
        "MOV": lambda: values[0],
        "SEL": lambda: values[0],
        "SHFL": lambda: np.full(LANES, values[0][0]),  # from the first lane: the number of the warp
        "R2UR": lambda: np.full(LANES, values[0][0]),
        "IADD3": lambda: sum(values[:3], np.zeros(LANES, np.int64)),
        "VIADD": lambda: sum(values[:3], np.zeros(LANES, np.int64)),
        "IADD": lambda: sum(values[:3], np.zeros(LANES, np.int64)),
        "IMAD": lambda: (
            values[2] if "MOV" in modifiers else _signed(values[0]) * _signed(values[1]) + values[2]
        ),
        "LOP3": lambda: _lop3(values) if len(values) > 3 else None,
        "LEA": lambda: _scaled(modifiers, values),
        "SHF": lambda: _shift(modifiers, values),
    }
    return functions[name]() if name in functions else None


def _scaled(modifiers: tuple[str, ...], values: list[Lanes]) -> Lanes:
    """A value shifted to the left and added; HI: the upper half of the shifted one."""
    count = int(values[-1][0])
    if "HI" not in modifiers:
        return (values[0] << count) + values[1]
    wide = _signed(values[0]) if "SX32" in modifiers else values[0] | values[2] << 32
    return (wide >> (32 - count)) + values[1]


def _shift(modifiers: tuple[str, ...], values: list[Lanes]) -> Lanes | None:
    low, count, high = values[0], int(values[1][0]), values[2]
    if "L" in modifiers:
        return low << count if "HI" not in modifiers else None
    if "HI" not in modifiers:
        return (low >> count) | (high << (32 - count))
    return (_signed(high) if "S32" in modifiers else high) >> min(count, 31)


def ways(addresses: Lanes, nbytes: int) -> int:
    """Turns of the worst of the parts that an access has anyway: 8 lanes with 16 bytes, 16 with 8.

    >>> ways(np.arange(32) * 4, 4), ways(np.arange(32) * 128, 4), ways(np.arange(32) * 16, 16)
    (1, 32, 1)
    """
    lanes = min(LANES, max(8, 128 // max(nbytes, 4)))
    worst = 1
    for first in range(0, LANES, lanes):
        words: dict[int, set[int]] = {}
        for address in addresses[first : first + lanes]:
            for word in range(int(address) // 4, (int(address) + max(nbytes, 4) - 1) // 4 + 1):
                words.setdefault(word % BANKS, set()).add(word)
        worst = max(worst, *(len(different) for different in words.values()))
    return worst


def conflicts(before: Iterable[Instruction], loop: Iterable[Instruction]) -> list[Conflict]:
    """Accesses of a loop whose addresses are known, after the instructions before it."""
    machine = Machine()
    for one in before:
        machine.step(one)
    found = []
    for one in loop:
        if one.base in SHARED and (addresses := machine.address(one)) is not None:
            nbytes = 16 if one.base in ("LDSM", "STSM") else access_bytes(one)
            found.append(Conflict(one, ways(addresses, nbytes)))
        machine.step(one)
    return found
