"""Limits: what each dense kernel is held to, and what it is let through, with the reason.

Three instructions for each of a tensor core where a kernel has no more; others have a limit of their
own, 5 % above what was read of them, so that they get no worse. The table is written by

    python -m benchmarks.gpu.cycles limits bazel-bin/custom_calls/cuda

A kernel that is let through a gate is held to exactly what was found there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.gpu.cycles import gates, opcodes
from benchmarks.gpu.cycles.sass import Function

ROOM = 1.05
# On the main loop of 16-bit elements: a tiling, and whether all rows are aligned, are in their names.
LOOP_KERNELS = ("GramKernel", "ProductTilesKernel", "ScaledProductsKernel", "TiedTilesKernel")
FLOAT32_KERNELS = ("GhostKernel", "ProductKernel", "ScaledRowsKernel")

# What is above three, and why. Gram tiles, and those of cross terms, leave the tensor core after every
# chunk of 64 terms, for the bound. ptxas writes other code for sm_120, and for small tiles on sm_100.
# Small tiles have half the products for the same copies. Rows that are not aligned are shifted in
# registers. float32 is split into two tf32 numbers.
MOST: dict[str, dict[str, float]] = {
    "GhostKernel": {"sm_100": 7.5, "sm_120": 7.6, "sm_80": 7.1, "sm_90a": 7.6},
    "GramKernel": {"sm_100": 3.8, "sm_120": 4.5, "sm_80": 3.6, "sm_90a": 4.3},
    "GramKernel, rows not aligned": {"sm_100": 12.4, "sm_120": 12.5, "sm_80": 12.6, "sm_90a": 12.4},
    "GramKernel, small tiles": {"sm_100": 4.0, "sm_120": 4.7, "sm_80": 3.9, "sm_90a": 3.9},
    "GramKernel, small tiles, rows not aligned": {
        "sm_100": 21.2,
        "sm_120": 21.1,
        "sm_80": 21.9,
        "sm_90a": 21.7,
    },
    "ProductKernel": {"sm_100": 7.2, "sm_120": 7.3, "sm_80": 7.3, "sm_90a": 7.6},
    "ProductTilesKernel": {"sm_120": 3.5},
    "ProductTilesKernel, rows not aligned": {
        "sm_100": 10.7,
        "sm_120": 10.6,
        "sm_80": 11.3,
        "sm_90a": 11.4,
    },
    "ProductTilesKernel, small tiles": {"sm_100": 3.5, "sm_120": 4.2},
    "ProductTilesKernel, small tiles, rows not aligned": {
        "sm_100": 19.1,
        "sm_120": 19.1,
        "sm_80": 20.8,
        "sm_90a": 21.3,
    },
    "ScaledProductsKernel": {"sm_120": 3.6},
    "ScaledProductsKernel, rows not aligned": {
        "sm_100": 12.2,
        "sm_120": 11.9,
        "sm_80": 11.9,
        "sm_90a": 12.4,
    },
    "ScaledProductsKernel, small tiles": {"sm_100": 3.6, "sm_120": 4.2},
    "ScaledProductsKernel, small tiles, rows not aligned": {
        "sm_100": 21.0,
        "sm_120": 20.2,
        "sm_80": 20.9,
        "sm_90a": 21.3,
    },
    "ScaledRowsKernel": {"sm_100": 10.4, "sm_120": 10.3, "sm_80": 8.9, "sm_90a": 9.2},
    "TiedTilesKernel": {"sm_100": 3.4, "sm_120": 4.0, "sm_80": 3.3, "sm_90a": 3.7},
    "TiedTilesKernel, rows not aligned": {
        "sm_100": 12.1,
        "sm_120": 12.2,
        "sm_80": 12.2,
        "sm_90a": 12.4,
    },
    "TiedTilesKernel, small tiles": {"sm_100": 3.6, "sm_120": 4.2, "sm_80": 3.6, "sm_90a": 3.6},
    "TiedTilesKernel, small tiles, rows not aligned": {
        "sm_100": 21.1,
        "sm_120": 20.7,
        "sm_80": 21.3,
        "sm_90a": 21.1,
    },
}


class Pass(NamedTuple):
    """What a gate finds and lets through, for one reason."""

    found: tuple[str, ...]
    reason: str


_SPLIT = Pass(
    ("no asynchronous copies and no loads of matrices",),
    "float32 is split into two tf32 numbers on its way through registers, which copies pass by",
)
_SHIFTED = Pass(
    ("no asynchronous copies",),
    "16 bytes are put together from two aligned loads, in registers; steps pad such rows instead",
)
_WMMA = Pass(
    ("32 generic loads and stores",), "wmma loads fragments of tf32 through generic addresses"
)
PASSES: dict[tuple[str, str], Pass] = {
    **{("copies", name): _SPLIT for name in FLOAT32_KERNELS},
    **{("generic", name): _WMMA for name in FLOAT32_KERNELS},
    **{
        ("copies", f"{name}{size}, rows not aligned"): _SHIFTED
        for name in LOOP_KERNELS
        for size in ("", ", small tiles")
    },
    ("division", "ScaledRowsKernel"): Pass(
        ("8 divisions", "16 divisions", "32 divisions"),
        "row r is of example r / T, looked up while it is loaded, and T is no constant",
    ),
}


def kernel_of(function: Function) -> str:
    """`GhostKernel` of a mangled name."""
    found = re.search(r"\d([A-Z][A-Za-z]*Kernel)", function.name)
    return found.group(1) if found else function.name


def name_of(function: Function) -> str:
    """The kernel, and what is special: small tiles, rows that are not aligned."""
    kernel = kernel_of(function)
    if kernel not in LOOP_KERNELS:
        return kernel
    size = ", small tiles" if "TilingILi1E" in function.name else ""
    rows = "" if "Lb1E" in function.name else ", rows not aligned"
    return f"{kernel}{size}{rows}"


def most(function: Function) -> float:
    """Instructions for each of a tensor core."""
    own = MOST.get(name_of(function), {})
    return own.get(function.architecture, gates.MOST_INSTRUCTIONS)


def problems(function: Function) -> dict[str, str]:
    """What is wrong with a kernel beyond what it is let through, by gate."""
    found = gates.problems(function, most(function))
    return {gate: text for gate, text in found.items() if text and not passes(function, gate, text)}


def passes(function: Function, gate: str, text: str) -> bool:
    """Whether this is let through."""
    known = PASSES.get((gate, name_of(function)))
    return known is not None and text in known.found


def unused(functions: Iterable[Function]) -> list[str]:
    """Kernels with a limit or a pass that is not theirs any more."""
    texts: dict[tuple[str, str], set[str]] = {}
    names = set()
    for function in functions:
        names.add(name_of(function))
        for gate, text in gates.problems(function, math.inf).items():
            texts.setdefault((gate, name_of(function)), set()).add(text)
    idle = [
        f"{gate} of {name}" for (gate, name), known in PASSES.items()
        if not texts.get((gate, name), set()) & set(known.found)
    ]  # fmt: skip
    return idle + [f"instructions of {name}" for name in MOST if name not in names]


def measured(functions: Iterable[Function]) -> dict[str, dict[str, float]]:
    """A table of limits above three, from machine code."""
    table: dict[str, dict[str, float]] = {}
    for function in functions:
        if not any(opcodes.is_tensor(one) for one in function.instructions):
            continue
        ratios = [gates.per_product(loop) for loop in gates.tensor_loops(function)]
        row = table.setdefault(name_of(function), {})
        worst = max(ratios)
        limit = math.ceil(10 * ROOM * worst) / 10 if worst > gates.MOST_INSTRUCTIONS else 0.0
        row[function.architecture] = max(row.get(function.architecture, 0.0), limit)
    kept = {name: {a: v for a, v in sorted(row.items()) if v} for name, row in table.items()}
    return {name: row for name, row in sorted(kept.items()) if row}


def as_text(table: dict[str, dict[str, float]]) -> str:
    """For this file."""
    rows = [
        f'    "{name}": {{{", ".join(f"{chr(34)}{a}{chr(34)}: {v}" for a, v in row.items())}}},'
        for name, row in table.items()
    ]
    return "\n".join(["MOST: dict[str, dict[str, float]] = {", *rows, "}"])
