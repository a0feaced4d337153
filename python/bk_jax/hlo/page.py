"""Page: a program as one HTML file that works offline: memory over the schedule, a table, graphs.

The file contains all data, as columns with every string once. Nothing is fetched: its content
policy forbids it. A program with more than `most` instructions keeps our calls, then what runs,
then the contents of fusions; the page says how many were left out.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from bk_jax.hlo import cost
from bk_jax.hlo.model import Instruction, Module
from bk_jax.hlo.schedule import Timeline, timeline
from bk_jax.hlo.stacks import computation_runs, layers_in, name_stacks
from bk_jax.hlo.summary import summarize
from bk_jax.hlo.words import kind, what
from bk_jax.palette import FAINT, INK, KINDS, LINE

MOST_ROWS = 40_000
MOST_BUFFERS = 20_000
MOST_POINTS = 20_000
_SCRIPTS = ("format.js", "memory.js", "rows.js", "layout.js", "graph.js", "main.js")
_LONGEST = 400  # characters in a string: name stacks and shapes of tuples may be very long


def to_html(module: Module, most: int = MOST_ROWS) -> str:
    """The page of one program.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.sin).lower(jnp.ones(3)))
    >>> to_html(module).startswith("<!doctype html>")
    True
    """
    assets = resources.files("bk_jax.hlo") / "assets"
    read = {name: (assets / name).read_text() for name in ("page.html", "page.css", *_SCRIPTS)}
    parts = {
        "STYLE": _colours() + read["page.css"],
        "SCRIPT": "\n".join(read[name] for name in _SCRIPTS),
        "DATA": json.dumps(page_data(module, most), separators=(",", ":")).replace("<", "\\u003c"),
    }
    head, *rest = read["page.html"].split("/*")
    out = [head]
    for piece in rest:
        name, text = piece.split("*/", 1)
        out += [parts[name], text]
    return "".join(out)


def _colours() -> str:
    """The palette as variables of the style, and the kind of an element as its colour `--k`."""
    kinds = {f"k-{name.replace(' ', '-')}": (name, colour) for name, colour in KINDS.items()}
    values = {"ink": INK, "faint": FAINT, "line": LINE} | {v: c for v, (_, c) in kinds.items()}
    root = "".join(f" --{variable}: {colour};" for variable, colour in values.items())
    rules = [f'[data-kind="{name}"] {{ --k: var(--{v}); }}' for v, (name, _) in kinds.items()]
    return "\n".join([f":root {{{root} }}", *rules, ""])


def page_data(module: Module, most: int = MOST_ROWS) -> dict[str, Any]:
    """What the page shows, for JSON."""
    time = timeline(module)
    kept = _kept(module, time, most)
    number = {instruction.name: row for row, instruction in enumerate(kept)}
    summary = summarize(module)
    strings = _Strings()
    return {
        "title": module.name,
        "source": module.source,
        "stage": module.stage,
        "examples": summary.batch_size,
        "flops": summary.flops,
        "nbytes": summary.nbytes,
        "memory": summary.memory,
        "calls": len(module.bk_calls),
        "instructions": summary.instructions,
        "costs": [[kind, c.count, c.flops, c.nbytes] for kind, c in summary.costs.items()],
        "rows": _rows(module, time, kept, number, strings),
        "time": _time(time, number),
        "strings": strings.texts,
    }


class _Strings:
    """Numbers for strings; each is kept once, and cut if it is very long."""

    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self._numbers = {"": 0}

    def __call__(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
        return self._numbers[text]


def _kept(module: Module, time: Timeline, most: int) -> list[Instruction]:
    """Instructions to show: in the order they run, then those inside others."""
    running = set(time.order)
    inside = [i for i in module if i.name not in running]
    every = [*(module.by_name[name] for name in time.order), *inside]
    if len(every) <= most:
        return every
    chosen = sorted(every, key=lambda i: _rank(module, i, running))[:most]
    names = {instruction.name for instruction in chosen}
    return [instruction for instruction in every if instruction.name in names]


def _rank(module: Module, instruction: Instruction, running: set[str]) -> tuple[bool, bool, int]:
    """Small for what to keep first: our calls, what runs, what moves many bytes."""
    moved = cost.traffic(module, instruction)
    return not instruction.is_bk_call, instruction.name not in running, -moved


def _rows(
    module: Module, time: Timeline, kept: list[Instruction], number: dict[str, int], s: _Strings
) -> dict[str, list[Any]]:
    """Columns of the table."""
    at = {name: place for place, name in enumerate(time.order)}
    runs = computation_runs(module)
    times = [runs[module.computation_of[i.name]] for i in kept]
    stacks = [name_stacks(module, i)[0] for i in kept]
    rows: dict[str, list[Any]] = {
        "name": [i.name for i in kept],
        "what": [s(what(module, i)) for i in kept],
        "kind": [s(kind(module, i)) for i in kept],
        "shape": [s(str(i.shape)) for i in kept],
        "size": [i.shape.nbytes for i in kept],
        "runs": times,
        "layer": [s(", ".join(layers_in(stack))) for stack in stacks],
        "stack": [s(stack) for stack in stacks],
        "source": [s(i.source) for i in kept],
        "config": [s(i.config) for i in kept],
        "place": [at.get(i.name, -1) for i in kept],
        "where": [s(module.computation_of[i.name]) for i in kept],
        "operands": [[number[o] for o in dict.fromkeys(i.operands) if o in number] for i in kept],
    }
    costs = [_cost(module, i, i.name in at) for i in kept]
    rows["flops"] = [n * flops for n, (flops, _) in zip(times, costs, strict=True)]
    rows["moved"] = [n * moved for n, (_, moved) in zip(times, costs, strict=True)]
    return rows


def _cost(module: Module, instruction: Instruction, runs_itself: bool) -> tuple[int, int]:
    """Flops and bytes; nothing for what only calls others, and no bytes inside a fusion."""
    if kind(module, instruction) == "free":
        return 0, 0
    moved = cost.traffic(module, instruction) if runs_itself else 0
    return cost.flops(module, instruction), moved


def _time(time: Timeline, number: dict[str, int]) -> dict[str, Any]:
    """The schedule; if very long, every few places, with the largest value of each stretch."""
    step = max(1, -(-len(time.order) // MOST_POINTS))
    starts = range(0, len(time.order), step)
    peaks = [
        max(range(at, min(at + step, len(time.live))), key=time.live.__getitem__) for at in starts
    ]
    largest = sorted(time.buffers, key=lambda b: -b.nbytes)[:MOST_BUFFERS]
    return {
        "step": step,
        "base": time.base,
        "assigned": time.is_assigned,
        "live": [time.live[at] for at in peaks],
        "row": [number.get(time.order[at], -1) for at in peaks],
        "buffers": [[number.get(b.instruction, -1), b.nbytes, b.start, b.stop] for b in largest],
    }
