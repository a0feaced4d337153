"""Opcodes: what each instruction of a warp takes. SASS is not documented; names are read as they are."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmarks.gpu.cycles.sass import Instruction

LANES = 32
WARP_GROUP = 4  # warps that issue one HGMMA together
HMMA = re.compile(r"^HMMA\.(16)(8)(4|8|16)\b")  # HMMA.16816: 16 x 8 results of 16 products
HGMMA = re.compile(r"^HGMMA\.(\d+)x(\d+)x(\d+)\b")
WIDTH = re.compile(r"\.(8|16|32|64|128)(?=\.|$)")
ONE_BYTE = ("U8", "S8")
TWO_BYTES = ("U16", "S16")

# Pipes beside the tensor cores, by the first part of the name. What is not here is ALU: integers,
# comparisons, moves, conversions between 16 and 32 bits.
FMA = ("FFMA", "FMUL", "FADD", "IMAD", "HFMA2", "HADD2", "HMUL2", "FFMA2", "FMUL2", "FADD2")
DOUBLE = ("DFMA", "DMUL", "DADD", "DSETP", "DMNMX")
SPECIAL = ("MUFU", "I2F", "F2I", "F2F", "I2FP", "FRND", "POPC", "FLO", "BREV")
MEMORY = re.compile(r"^(LD|ST|ATOM|RED(?!UX)|CCTL|MOVM|SHFL|VOTE|MATCH|UTMA|UBLKCP|SYNCS|BAR|S2R)")
CONTROL = ("BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "WARPSYNC", "NOP", "DEPBAR", "LDGDEPBAR",
           "BREAK", "YIELD", "WARPGROUP", "ARRIVES", "ERRBAR", "MEMBAR", "FENCE")  # fmt: skip
UNIFORM = re.compile(r"^(U[A-Z]|R2UR|S2UR)")


class Product(NamedTuple):
    """A tensor-core instruction: multiply-adds of a warp, and the type of its operands."""

    multiply_adds: int
    elements: str
    is_group: bool  # of a group of four warps, with operands from shared memory
    columns: int = 0  # of a group's product


def tensor_product(one: Instruction) -> Product | None:
    """What a tensor-core instruction multiplies, or None.

    >>> tensor_product(Instruction(0, "", "HMMA.16816.F32.BF16", "R4, R8, R12, R4"))
    Product(multiply_adds=2048, elements='bf16', is_group=False, columns=0)
    """
    if found := HMMA.match(one.opcode):
        m, n, k = (int(size) for size in found.groups())
        return Product(m * n * k, _elements(one), is_group=False)
    if found := HGMMA.match(one.opcode):
        m, n, k = (int(size) for size in found.groups())
        return Product(m * n * k // WARP_GROUP, _elements(one), is_group=True, columns=n)
    return None


def _elements(one: Instruction) -> str:
    return "tf32" if "TF32" in one.opcode else "bf16" if "BF16" in one.opcode else "f16"


def is_tensor(one: Instruction) -> bool:
    """Any instruction of a tensor core: HMMA, HGMMA, UTCHMMA, DMMA, IMMA."""
    return bool(re.match(r"^(UTC)?[A-Z]{1,2}MMA\b", one.opcode)) and one.base != "FMMA"


def access_bytes(one: Instruction) -> int:
    """Of one lane: 16 for LDG.E.128, 4 if nothing is said."""
    if one.base == "LDSM":
        return 4 * int(one.modifiers[-1] if one.modifiers[-1] in "124" else 1)
    if any(part in ONE_BYTE for part in one.modifiers):
        return 1
    if any(part in TWO_BYTES for part in one.modifiers):
        return 2
    sizes = [int(size) for size in WIDTH.findall(one.opcode)]
    return max(sizes[-1] // 8, 1) if sizes else 4


def is_generic(one: Instruction) -> bool:
    """A load or store that looks up its address space when it runs."""
    return one.base in ("LD", "ST")


def wavefronts(one: Instruction) -> float:
    """Cycles of shared memory, 128 bytes each, without conflicts between banks.

    >>> wavefronts(Instruction(0, "", "LDSM.16.M88.4", "R4, [R2]"))
    4.0
    """
    if one.base in ("LDS", "STS", "LDSM", "STSM", "LDGSTS", "LD", "ST", "ATOMS"):
        return max(1.0, LANES * access_bytes(one) / 128)
    if one.base == "LDG":  # through the same memory, which is the first cache as well
        return max(1.0, LANES * access_bytes(one) / 128)
    if one.base in ("SHFL", "MOVM"):
        return 1.0
    product = tensor_product(one)
    if product is not None and product.is_group:  # its operands, a quarter for each of four warps
        k = product.multiply_adds // (16 * product.columns)
        from_registers = one.operands.split(",")[1].strip().startswith("R")
        rows = product.columns + (0 if from_registers else 64)
        return rows * k * (4 if product.elements == "tf32" else 2) / 128 / WARP_GROUP
    return 0.0


def global_bytes(one: Instruction) -> int:
    """Read from global memory by a whole warp; generic loads are not counted."""
    return LANES * access_bytes(one) if one.base in ("LDG", "LDGSTS") else 0


def pipe(one: Instruction) -> str:
    """The unit that it keeps busy."""
    if is_tensor(one):
        return "tensor"
    if one.base in CONTROL:
        return "control"
    if UNIFORM.match(one.base):
        return "uniform"
    for name, members in (("fma", FMA), ("double", DOUBLE), ("special", SPECIAL)):
        if one.base in members:
            return name
    return "memory" if MEMORY.match(one.base) else "alu"
