"""Summary: what a program consists of and what it costs."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from bk_jax.hlo import cost
from bk_jax.hlo.calls import batch_size
from bk_jax.hlo.model import Buffer, Module
from bk_jax.hlo.table import counted, cut, si, table

LARGEST = 8


@dataclasses.dataclass(frozen=True)
class Summary:
    """Counts are of the program's text; costs are of one run.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> summary = summarize(module)
    >>> summary.flops, summary.custom_calls
    (60, {})
    """

    name: str
    source: str
    stage: str
    batch_size: int | None
    instructions: int
    op_counts: dict[str, int]
    custom_calls: dict[str, int]
    costs: dict[str, cost.Cost]
    memory: dict[str, int | None]
    largest_buffers: tuple[tuple[str, str, int, str], ...]  # instruction, shape, bytes, kind
    largest_are_assigned: bool  # by XLA; otherwise results by size

    @property
    def flops(self) -> int:
        """Of one run."""
        return sum(part.flops for part in self.costs.values())

    @property
    def nbytes(self) -> int:
        """Read and written in one run."""
        return sum(part.nbytes for part in self.costs.values())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "flops": self.flops, "bytes": self.nbytes}

    @property
    def headline(self) -> str:
        """All of it in one line."""
        batch = f", {counted(self.batch_size, 'example')}" if self.batch_size else ""
        stage = f" ({self.stage} optimizations)" if self.stage else ""
        size = counted(self.instructions, "instruction")
        cost = f"{si(self.flops, 'flop')}, {si(self.nbytes, 'B')} moved"
        return f"{self.name}{stage}: {size}, {cost}{batch}"

    def __str__(self) -> str:
        parts = [
            self.headline,
            table(["kind", "runs", "flop", "bytes"], _cost_rows(self.costs), "  "),
            table(["custom call", "count"], [[k, str(v)] for k, v in self.custom_calls.items()], "  "),
            _counts_line(self.op_counts),
            _memory_line(self.memory),
            table(["largest buffers", "shape", "bytes", "kind"], _buffer_rows(self), "  "),
        ]  # fmt: skip
        return "\n".join(part for part in parts if part)


def summarize(module: Module) -> Summary:
    """The summary of one program.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> summarize(module).flops
    60
    """
    opcodes = collections.Counter([instruction.opcode for instruction in module])
    targets = collections.Counter(i.target for i in module if i.opcode == "custom-call")
    costs = sorted(cost.by_kind(module).items(), key=lambda item: -item[1].flops)
    return Summary(
        name=module.name,
        source=module.source,
        stage=module.stage,
        batch_size=batch_size(module),
        instructions=opcodes.total(),
        op_counts=dict(opcodes.most_common()),
        custom_calls=dict(targets.most_common()),
        costs=dict(costs),
        memory=_memory(module),
        largest_buffers=_largest(module),
        largest_are_assigned=module.memory is not None,
    )


def summaries_text(summaries: Sequence[Summary], in_full: int) -> str:
    """The first ones in full, one line for each of the rest."""
    texts, others = [str(summary) for summary in summaries[:in_full]], summaries[in_full:]
    if others:
        them = "it" if len(others) == 1 else "them"
        head = f"{counted(len(others), 'other module')} (--all shows {them} in full):"
        texts.append("\n".join([head, *(f"  {summary.headline}" for summary in others)]))
    return "\n\n".join(texts)


def _memory(module: Module) -> dict[str, int | None]:
    found = module.memory
    if found is None:
        return {}
    names = ("arguments", "outputs", "temporaries", "constants", "peak")
    return {name: getattr(found, name) for name in names}


def _largest(module: Module) -> tuple[tuple[str, str, int, str], ...]:
    """Assigned buffers where they are known; otherwise the largest results of the program."""
    if module.memory is None:
        made = [i for i in module if i.opcode not in cost.FREE and i.opcode != "while"]
        made.sort(key=lambda i: -i.shape.nbytes)
        found = [Buffer(i.name, (), i.shape.nbytes, "result") for i in made[:LARGEST]]
    else:
        found = list(module.memory.buffers[:LARGEST])
    return tuple((b.instruction, _shape(module, b), b.nbytes, b.kind) for b in found)


def _shape(module: Module, buffer: Buffer) -> str:
    if buffer.instruction not in module.by_name:
        return "?"
    shape = module.by_name[buffer.instruction].shape
    for index in buffer.index:
        if index >= len(shape.parts):
            return "?"
        shape = shape.parts[index]
    return str(shape)


def _cost_rows(costs: dict[str, cost.Cost]) -> list[list[str]]:
    return [[k, str(c.count), si(c.flops), si(c.nbytes, "B")] for k, c in costs.items()]


def _buffer_rows(summary: Summary) -> list[list[str]]:
    rows = summary.largest_buffers
    return [[cut(name), cut(shape), si(n, "B"), kind] for name, shape, n, kind in rows]


def _counts_line(counts: dict[str, int]) -> str:
    shown = list(counts.items())[:10]
    return "  operations: " + ", ".join(f"{count} {opcode}" for opcode, count in shown)


def _memory_line(memory: dict[str, int | None]) -> str:
    known = [f"{name} {si(size, 'B')}" for name, size in memory.items() if size is not None]
    return "  memory: " + ", ".join(known) if known else "  memory: not known from this file"
