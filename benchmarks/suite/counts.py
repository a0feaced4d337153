"""What is counted in compiled steps: no noise can blur it, so one copy more is found at once.

| counted | a step fails when |
|---|---|
| copies, transposes | there is one more |
| custom calls, by target | there is any other number: fewer means that XLA does what a kernel did |
| temporary bytes | they are more by over `SLACK` |

What XLA makes of a program depends on its version, on the instruction set and on the number of cores, so
numbers are stored for all three together. Nothing is run.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import jaxlib.version

import bk_jax.hlo
from bk_jax.hlo import Module

SLACK = 0.02  # of temporary bytes: XLA's heap packs buffers by a heuristic
MOVES = {"copies": ("copy", "copy-start"), "transposes": ("transpose",)}
FLAGS = ("XLA_FLAGS", "BK_JAX_ISA")  # that change what is compiled
Counts = dict[str, Any]  # copies, transposes, calls by target, temporary bytes


def key(isa: str) -> str:
    """What counts depend on.

    >>> key("avx2").startswith("avx2, jaxlib ")
    True
    """
    cores = len(os.sched_getaffinity(0))
    flags = [f"{name}={os.environ[name]}" for name in FLAGS if name in os.environ]
    return ", ".join([isa, f"jaxlib {jaxlib.version.__version__}", f"{cores} cores", *flags])


def count(module: Module, temporary: int) -> Counts:
    """The counts of a compiled program; instructions inside of fusions count too."""
    opcodes = Counter(instruction.opcode for instruction in module)
    calls = Counter(one.target for one in module if one.opcode == "custom-call")
    moves = {name: sum(opcodes[code] for code in codes) for name, codes in MOVES.items()}
    return {**moves, "calls": dict(sorted(calls.items())), "temporary": temporary}


def count_program(program: Any, temporary: int) -> Counts:
    """Those of a `jax.stages.Compiled`."""
    return count(bk_jax.hlo.load(program)[0], temporary)


def worse(found: Counts, stored: Counts) -> list[str]:
    """What is worse than stored, in words."""
    lines = [
        f"{found[name]} {name}, stored {stored[name]}"
        for name in MOVES
        if found[name] > stored[name]
    ]
    calls, before = found["calls"], stored["calls"]
    lines += [
        f"{calls.get(target, 0)} {target}, stored {before.get(target, 0)}"
        for target in sorted(calls.keys() | before.keys())
        if calls.get(target, 0) != before.get(target, 0)
    ]
    if found["temporary"] > stored["temporary"] * (1 + SLACK):
        lines.append(f"{found['temporary']} temporary bytes, stored {stored['temporary']}")
    return lines


def better(found: Counts, stored: Counts) -> bool:
    """Whether there is something to store: fewer of what moves data, or less memory."""
    fewer = any(found[name] < stored[name] for name in MOVES)
    return fewer or found["temporary"] < stored["temporary"] * (1 - SLACK)


def check(name: str, found: dict[str, Counts], stored: dict[str, Counts]) -> bool:
    """Whether the steps of a comparison pass; prints why."""
    if not stored:
        print(f"unknown {name}: no counts are stored; count a good commit with --update")
        return False
    wrong = []
    for step in sorted(found.keys() | stored.keys()):
        if step not in found or step not in stored:
            wrong.append(f"{step}: only {'stored' if step in stored else 'counted'}")
        else:
            wrong += [f"{step}: {line}" for line in worse(found[step], stored[step])]
    if wrong:
        print(f"more    {name}: {'; '.join(wrong)}", flush=True)
        return False
    gains = [step for step in stored if better(found[step], stored[step])]
    note = f"; less than stored in {', '.join(gains)}: --update keeps it so" if gains else ""
    print(
        f"exact   {name}: copies, calls and memory of {len(found)} steps as stored{note}",
        flush=True,
    )
    return True


def read(path: Path) -> dict[str, dict[str, dict[str, Counts]]]:
    """Stored counts: by key, comparison and step."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, table: dict[str, Any]) -> None:
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
