"""What lint rules share: the program, the plan it is compared with, and where a value comes from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bk_jax.hlo.calls import batch_size as examples_of
from bk_jax.hlo.model import HloError, Instruction, Module, Shape

# What changes neither the values of an array nor which array it is.
_SAME = frozenset({"bitcast", "reshape", "copy", "transpose", "convert", "opt-barrier"})
_PARTS = frozenset({"dynamic-slice", "slice"})
_CALLS = frozenset({"fusion", "call", "while"})


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bytes up to which a finding is not worth one."""

    gradient: int = 0
    layout: int = 1 << 20
    collective: int = 1 << 16


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a rule found; `level` is error, warning or note."""

    rule: str
    level: str
    instruction: str
    layers: tuple[str, ...]
    nbytes: int
    message: str
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Context:
    """The input of every rule."""

    module: Module
    rows: tuple[Mapping[str, Any], ...] | None  # of the explanation
    batch_size: int | None
    limits: Limits
    weights: tuple[tuple[int, ...], ...]  # sizes of arguments with two axes and more, without 1s

    @classmethod
    def make(
        cls, module: Module, explanation: Any, batch_size: int | None, limits: Limits
    ) -> Context:
        """Reads the explanation, and the batch size from wherever it is known."""
        table = _as_mapping(explanation)
        examples = batch_size or examples_of(module) or (table or {}).get("batch_size")
        rows = None if table is None else tuple(table["rows"])
        return cls(module, rows, examples, limits, _weights(module))

    def is_weight_shaped(self, shape: Shape) -> bool:
        """Whether it has the axes of some argument, in any order and without those of size 1."""
        return any(sorted(long_axes(shape.dims)) == sorted(weight) for weight in self.weights)

    def origin(self, instruction: Instruction) -> Instruction:
        """Where a value comes from, through views, fusions and loops: an argument, if it is one."""
        for _ in range(256):
            before = self._one_back(instruction)
            if before is None:
                return instruction
            instruction = before
        return instruction

    def _one_back(self, instruction: Instruction) -> Instruction | None:
        module, opcode = self.module, instruction.opcode
        if opcode in _SAME or opcode in _PARTS:
            return module.by_name[instruction.operands[0]]
        if opcode == "get-tuple-element":
            return self._element(module.by_name[instruction.operands[0]], instruction.index)
        if opcode == "parameter":
            return self._passed(instruction)
        if opcode in ("fusion", "call") and instruction.called:
            return module.by_name[module.computations[instruction.called[0]].root]
        return None

    def _element(self, whole: Instruction, index: int) -> Instruction | None:
        """Element of a tuple; what goes into a loop is followed as if the loop kept it."""
        if whole.opcode == "tuple" and index < len(whole.operands):
            return self.module.by_name[whole.operands[index]]
        if whole.opcode == "parameter":
            passed = self._passed(whole)
            return None if passed is None else self._element(passed, index)
        return None

    def _passed(self, parameter: Instruction) -> Instruction | None:
        """What the caller of a computation passes."""
        caller = self.module.callers.get(self.module.computation_of[parameter.name])
        if caller is None or caller.opcode not in _CALLS:
            return None
        index = 0 if caller.opcode == "while" else parameter.index
        if index >= len(caller.operands):
            return None
        return self.module.by_name[caller.operands[index]]


def long_axes(dims: Sequence[int]) -> tuple[int, ...]:
    """Sizes that are not 1."""
    return tuple(size for size in dims if size != 1)


def _weights(module: Module) -> tuple[tuple[int, ...], ...]:
    """Sizes of weights; a stack of them, as a scan takes it, also counts as one of its layers."""
    found = []
    for parameter in module.parameters:
        sizes = long_axes(parameter.shape.dims)
        found += [sizes[start:] for start in (0, 1) if len(sizes) - start > 1]
    return tuple(dict.fromkeys(found))


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
    except (ValueError, KeyError, TypeError, AssertionError):
        raise HloError(
            "the explanation is not one: expected what `.explain(...)` returns, or its `.to_json()`."
        ) from None
    return table
