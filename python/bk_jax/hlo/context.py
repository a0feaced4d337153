"""What lint rules share: the program, the plan it is compared with, and the limits."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bk_jax.hlo.arguments import Arguments
from bk_jax.hlo.calls import batch_size as examples_of
from bk_jax.hlo.model import HloError, Module
from bk_jax.hlo.table import printable


@dataclasses.dataclass(frozen=True)
class Limits:
    """Sizes in bytes below which nothing is reported.

    >>> Limits(layout=1 << 24).layout
    16777216
    """

    gradient: int = 0
    layout: int = 1 << 20
    collective: int = 1 << 16


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a rule found; `level` is error, warning or note.

    >>> Finding("layout-copy", "warning", "copy.3", ("kernel",), 4096, "a copy").level
    'warning'
    """

    rule: str
    level: str
    instruction: str
    layers: tuple[str, ...]
    nbytes: int
    message: str
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Context:
    """The input to every rule."""

    module: Module
    rows: tuple[Mapping[str, Any], ...] | None  # of the explanation
    batch_size: int | None
    limits: Limits
    arguments: Arguments

    @classmethod
    def make(
        cls, module: Module, explanation: Any, batch_size: int | None, limits: Limits
    ) -> Context:
        """Reads the explanation, and the batch size from wherever it is known."""
        table = _as_mapping(explanation)
        examples = batch_size or examples_of(module) or (table or {}).get("batch_size")
        rows = None if table is None else tuple(map(_shown, table["rows"]))
        return cls(module, rows, examples, limits, Arguments.read(module, examples))


def _shown(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Names as in the program."""
    return {name: printable(row[name]) for name in ("path", "kind", "route")}


def _as_mapping(explanation: Any) -> Mapping[str, Any] | None:
    if explanation is None:
        return None
    try:
        table = explanation
        if hasattr(table, "to_json"):
            table = table.to_json()
        if isinstance(table, (str, bytes)):
            table = json.loads(table)
        rows = [(row["path"], row["kind"], row["route"]) for row in table["rows"]]
        assert all(isinstance(text, str) for row in rows for text in row)
        examples = table.get("batch_size")
        assert examples is None or (isinstance(examples, int) and examples >= 0)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError):
        raise HloError(
            "the explanation is not one: expected what `.explain(...)` returns, or its `.to_json()`."
        ) from None
    return table
