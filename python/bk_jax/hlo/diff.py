"""Diff: two programs side by side, such as the private and the ordinary step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bk_jax.hlo.model import Module
from bk_jax.hlo.summary import Summary, summarize
from bk_jax.hlo.table import si, table


@dataclasses.dataclass(frozen=True)
class Change:
    """One number in both programs."""

    group: str
    name: str
    before: int
    after: int


@dataclasses.dataclass(frozen=True)
class Diff:
    """All numbers; `changes` omits those that are equal.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> compare(module, module).changes
    []
    """

    before: str
    after: str
    numbers: tuple[Change, ...]

    @property
    def changes(self) -> list[Change]:
        """What differs."""
        return [number for number in self.numbers if number.before != number.after]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        changes = [dataclasses.asdict(change) for change in self.changes]
        return {"before": self.before, "after": self.after, "changes": changes}

    def __str__(self) -> str:
        title = f"{self.before} -> {self.after}"
        rows = [_row(change) for change in self.changes]
        if not rows:
            return f"{title}: no difference"
        return "\n".join([title, table(["what", "name", "before", "after", "ratio"], rows)])


def compare(before: Module, after: Module) -> Diff:
    """Totals, memory, custom calls, costs by kind and operation counts of two programs.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> larger, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((4, 3)), jnp.ones((3, 5))))
    >>> changes = compare(module, larger).changes
    >>> [(c.before, c.after) for c in changes if c.name == "flop"][0]
    (60, 120)
    """
    a, b = summarize(before), summarize(after)
    numbers = [
        Change("total", "flop", a.flops, b.flops),
        Change("total", "bytes", a.nbytes, b.nbytes),
        Change("total", "instructions", a.instructions, b.instructions),
        *_pairs("memory", _known(a, b), _known(b, a)),
        *_pairs("custom call", a.custom_calls, b.custom_calls),
        *_pairs("flop", *({k: c.flops for k, c in s.costs.items()} for s in (a, b))),
        *_pairs("bytes", *({k: c.nbytes for k, c in s.costs.items()} for s in (a, b))),
        *_pairs("operation", a.op_counts, b.op_counts),
    ]
    return Diff(_title(a), _title(b), tuple(numbers))


def _pairs(group: str, a: Mapping[str, int], b: Mapping[str, int]) -> list[Change]:
    return [Change(group, name, a.get(name, 0), b.get(name, 0)) for name in dict.fromkeys([*a, *b])]


def _known(summary: Summary, other: Summary) -> dict[str, int]:
    """Memory that is known for both."""
    known = {name for name, size in other.memory.items() if size is not None}
    return {n: size for n, size in summary.memory.items() if size is not None and n in known}


def _title(summary: Summary) -> str:
    return f"{summary.name} ({summary.source})" if summary.source else summary.name


def _row(change: Change) -> list[str]:
    unit = "B" if change.group in ("memory", "bytes") or change.name == "bytes" else ""
    return [
        change.group, change.name, si(change.before, unit), si(change.after, unit), _ratio(change),
    ]  # fmt: skip


def _ratio(change: Change) -> str:
    if not change.before:
        return "new"
    if change.after > change.before * 10**6:
        return "more than 10^6x"
    return f"{change.after / change.before:.2f}x"
