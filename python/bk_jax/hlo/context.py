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
        """Where a value comes from, through views, calls and loops: an argument, if it is one."""
        inside: list[Instruction] = []  # the calls whose results were followed into the function
        for _ in range(256):
            before = self._one_back(instruction, inside)
            if before is None:
                return instruction
            instruction = before
        return instruction

    def _one_back(self, instruction: Instruction, inside: list[Instruction]) -> Instruction | None:
        module, opcode = self.module, instruction.opcode
        if opcode in _SAME or opcode in _PARTS:
            return module.by_name[instruction.operands[0]]
        if opcode == "get-tuple-element":
            whole = module.by_name[instruction.operands[0]]
            return self._element(whole, instruction.index, inside)
        if opcode == "parameter":
            return self._passed(instruction, inside)
        return self._result(instruction, inside)

    def _result(self, call: Instruction, inside: list[Instruction]) -> Instruction | None:
        """What a function returns."""
        if call.opcode not in ("fusion", "call") or not call.called:
            return None
        inside.append(call)
        return self.module.by_name[self.module.computations[call.called[0]].root]

    def _element(
        self, whole: Instruction, index: int, inside: list[Instruction]
    ) -> Instruction | None:
        """Element of a tuple; what goes into a loop is followed as if the loop kept it."""
        for _ in range(256):
            if whole.opcode == "tuple":
                made = whole.operands[index : index + 1]
                return self.module.by_name[made[0]] if made else None
            step = self._passed if whole.opcode == "parameter" else self._result
            before = step(whole, inside)
            if before is None:
                return None
            whole = before
        return None

    def _passed(self, parameter: Instruction, inside: list[Instruction]) -> Instruction | None:
        """What the caller of a computation passes: the call that led here, or else the last one."""
        computation = self.module.computation_of[parameter.name]
        sites = self.module.call_sites.get(computation)
        if not sites or sites[-1].opcode not in _CALLS:
            return None
        came = inside and computation in inside[-1].called
        caller = inside.pop() if came else sites[-1]
        index = 0 if caller.opcode == "while" else parameter.index
        return self.module.by_name[caller.operands[index]] if index < len(caller.operands) else None


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
