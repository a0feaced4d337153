"""Writes the predicted tables of memory into docs/gpu.md, from docs/gpu_memory.json.

    python -m benchmarks.gpu.memory_document [--check]

`--check` writes nothing and fails if the tables are not those of the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from benchmarks.gpu.printed import PRINTED

DOCUMENT = "docs/gpu.md"
DATA = "docs/gpu_memory.json"
HEADER = 2  # lines
BEGIN, END = "<!-- memory tables: begin -->", "<!-- memory tables: end -->"
NAMES = {
    "none": "non-private",
    "auto": "ours, `auto`",
    "ghost_clip": "GhostClip",
    "opacus": "Opacus",
}


def batches(found: dict[str, Any]) -> list[str]:
    """One row for each model and method of the paper that was compiled."""
    rows = [
        "| model | method | 40 GB | over non-private | paper, 40 GB | over non-private | 80 GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, methods in PRINTED.items():
        for method in ("none", "auto", "ghost_clip", "opacus"):
            if largest := found.get(model, {}).get(method, {}).get("largest"):
                plain = found[model]["none"]["largest"]["40"]
                here, printed = largest["40"], methods[method].batch
                ratios = (f"{one:.2f}" for one in (here / plain, printed / methods["none"].batch))
                cells = [model, NAMES[method], here, next(ratios), printed, next(ratios)]
                rows.append(_row([*cells, _twice(found[model][method])]))
    return rows


def _twice(one: dict[str, Any]) -> str:
    """The batch of a compiled step, or what the line says."""
    compiled, by_line = (one.get(kind, {}).get("80") for kind in ("largest", "by line"))
    return f"{compiled}" if compiled else f"about {by_line}" if by_line else ""


def _row(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def lengths(found: dict[str, Any]) -> list[str]:
    """Memory of one long example."""
    rows = [
        "| tokens | step | temporary, GB | with parameters and gradients, GB | arrays of T x T |",
        "|---|---|---|---|---|",
    ]
    for name, methods in found.items():
        if name.startswith("llama T="):
            for method, one in methods.items():
                sizes = (f"{one[kind] / 1e9:.1f}" for kind in ("temporary", "peak"))
                cells = [name.partition("=")[2], NAMES[method], *sizes, _shown(one["squares"])]
                rows.append(_row(cells))
    return rows


def _shown(squares: int | None) -> str:
    return "as wide as a layer" if squares is None else str(squares)


def filled(document: str, found: dict[str, Any]) -> str:
    """The document with new tables between its marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = [table for table in (batches(found), lengths(found)) if len(table) > HEADER]
    parts = [line for table in tables for line in [*table, ""]]
    return before + "\n".join([BEGIN, "", *parts, END]) + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with open(DATA, encoding="utf-8") as file:
        found = json.load(file)
    with open(DOCUMENT, encoding="utf-8") as file:
        document = file.read()
    new = filled(document, found)
    if arguments.check:
        if new != document:
            sys.exit(f"{DOCUMENT} is not what {DATA} says: run this without --check")
        return
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(new)


if __name__ == "__main__":
    main()
