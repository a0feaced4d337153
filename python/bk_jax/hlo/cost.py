"""Cost: flops and bytes by kind of operation, including our custom calls, which XLA cannot count.

A multiply-add counts as two. Bytes are what an operation reads and writes; intermediate values in a
fusion stay in registers. The body of a loop counts as often as XLA knows it to run, or once if XLA
does not know.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence

from bk_jax.hlo.calls_cost import call_flops
from bk_jax.hlo.model import Computation, Instruction, Module, Shape, remember

MOVEMENT = frozenset({
    "copy", "transpose", "convert", "broadcast", "reshape", "pad", "concatenate", "slice",
    "dynamic-slice", "dynamic-update-slice", "gather", "scatter", "reverse", "copy-start",
    "copy-done",
})  # fmt: skip
LAYOUT = frozenset({"copy", "transpose", "convert", "broadcast"})
COLLECTIVES = frozenset(
    name + ending
    for name in (
        "all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute",
        "collective-broadcast", "ragged-all-to-all",
    )
    for ending in ("", "-start")
)  # fmt: skip
FREE = frozenset({
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota",
    "partition-id", "replica-id", "opt-barrier", "add-dependency", "domain", "all-reduce-done",
    "all-gather-done", "collective-permute-done", "async-start", "async-update", "async-done",
})  # fmt: skip
_FREE_FOREVER = FREE - {"async-start"}  # which calls a computation
REDUCTIONS = frozenset({"reduce", "reduce-window", "select-and-scatter", "sort", "map"})
_WITHOUT_FLOPS = FREE | MOVEMENT | COLLECTIVES
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d{1,18})"\}')


@dataclasses.dataclass
class Cost:
    """Executions, flops and bytes."""

    count: int = 0
    flops: int = 0
    nbytes: int = 0

    def add(self, other: Cost, times: int = 1) -> None:
        """Adds another cost, several times over."""
        self.count += times * other.count
        self.flops += times * other.flops
        self.nbytes += times * other.nbytes


Costs = dict[str, Cost]


def total(module: Module) -> Cost:
    """All kinds combined."""
    out = Cost()
    for part in by_kind(module).values():
        out.add(part)
    return out


def by_kind(module: Module) -> Costs:
    """Costs of one run: dot, convolution, bk call, custom call, collective, movement, ..."""
    return _computation_costs(module, module.computations[module.entry], {})


def _computation_costs(module: Module, computation: Computation, known: dict[str, Costs]) -> Costs:
    if computation.name not in known:
        costs: Costs = {}
        for instruction in computation.instructions:
            if instruction.opcode in _FREE_FOREVER:
                continue
            for kind, cost in _instruction_costs(module, instruction, known).items():
                costs.setdefault(kind, Cost()).add(cost)
        known[computation.name] = costs
    return known[computation.name]


def _instruction_costs(module: Module, instruction: Instruction, known: dict[str, Costs]) -> Costs:
    called = [module.computations[name] for name in instruction.called]
    if instruction.opcode == "conditional":
        branches = [_computation_costs(module, branch, known) for branch in called]
        return max(branches, key=lambda c: sum(x.flops for x in c.values()), default={})
    if instruction.opcode in ("while", "call", "async-start"):
        return _repeated(
            [_computation_costs(module, inner, known) for inner in called], trips(instruction)
        )
    if instruction.opcode in FREE:
        return {}
    cost = Cost(1, flops(module, instruction), traffic(module, instruction))
    return {kind_of(module, instruction): cost}


def _repeated(parts: list[Costs], times: int) -> Costs:
    out: Costs = {}
    for part in parts:
        for kind, cost in part.items():
            out.setdefault(kind, Cost()).add(cost, times)
    return out


def trips(instruction: Instruction) -> int:
    """How often a loop runs; 1 if unknown."""
    match = _TRIPS.search(instruction.config.replace(" ", ""))
    return int(match.group(1)) if match and instruction.opcode == "while" else 1


def traffic(module: Module, instruction: Instruction) -> int:
    """Bytes read and written."""
    read = sum(shape.nbytes for shape in module.operand_shapes(instruction))
    return read + instruction.shape.nbytes


def flops(module: Module, instruction: Instruction) -> int:
    """Flops of one execution; for a fusion, of its contents."""
    opcode = instruction.opcode
    if opcode in _WITHOUT_FLOPS:
        return 0
    if opcode == "fusion":
        return sum([_flops_inside(module, name) for name in instruction.called])
    if instruction.product:
        return _product_flops(module, instruction)
    if opcode == "custom-call":
        shapes = module.operand_shapes(instruction)
        return call_flops(instruction, shapes) if instruction.is_bk_call else 0
    if opcode in REDUCTIONS:
        return sum(shape.size for shape in module.operand_shapes(instruction))
    return instruction.shape.size


@remember
def _flops_inside(module: Module, computation: str) -> int:
    inside = module.computations[computation].instructions
    return sum([flops(module, i) for i in inside if i.opcode not in _WITHOUT_FLOPS])


def _product_flops(module: Module, instruction: Instruction) -> int:
    shapes = module.operand_shapes(instruction)
    if instruction.product == "dot":
        depth = math.prod(shapes[0].dims[axis] for axis in instruction.contracted)
        return 2 * instruction.result.size * depth
    made, kernel = _convolved(instruction, shapes)
    return 2 * made.size * kernel.size // max(kernel.dims[instruction.features], 1)


def _convolved(instruction: Instruction, shapes: Sequence[Shape]) -> tuple[Shape, Shape]:
    """What the forward convolution makes, and its kernel: cuDNN's gradients are named after it."""
    if instruction.target.startswith("__cudnn$convBackwardInput"):
        return shapes[0], shapes[1]
    if instruction.target.startswith("__cudnn$convBackwardFilter"):
        return shapes[1], instruction.result
    return instruction.result, shapes[1]


def kind_of(module: Module, instruction: Instruction) -> str:
    """What an operation mainly does; a fusion is a dot if it contains one, and so on."""
    opcode = instruction.opcode
    if opcode == "fusion":
        return _kind_of_fusion(module, instruction)
    if opcode == "custom-call":
        return "bk call" if instruction.is_bk_call else instruction.product or "custom call"
    return _kind_of_opcode(opcode)


@functools.lru_cache(maxsize=1024)
def _kind_of_opcode(opcode: str) -> str:
    if opcode in ("dot", "convolution"):
        return opcode
    for kind, opcodes in (
        ("collective", COLLECTIVES), ("movement", MOVEMENT), ("reduction", REDUCTIONS),
    ):  # fmt: skip
        if opcode in opcodes:
            return kind
    return "elementwise"


_VARIED = frozenset({"fusion", "custom-call"})


def _kind_of_fusion(module: Module, instruction: Instruction) -> str:
    kinds = {kind for name in instruction.called for kind in _kinds_inside(module, name)}
    for kind in ("dot", "convolution", "custom call", "reduction"):
        if kind in kinds:
            return kind
    return "movement" if kinds <= {"movement"} else "elementwise"


@remember
def _kinds_inside(module: Module, computation: str) -> frozenset[str]:
    inside = module.computations[computation].instructions
    # Fusions and custom calls may say more than their opcode; for the rest, one of each is enough.
    distinct = {i.opcode if i.opcode not in _VARIED else i.name: i for i in inside}
    return frozenset(kind_of(module, i) for i in distinct.values() if i.opcode not in FREE)
