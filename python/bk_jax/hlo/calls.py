"""Calls: each of our custom calls, its layer, its cost, and the copies next to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from bk_jax.hlo import cost
from bk_jax.hlo.model import Instruction, Module, remember
from bk_jax.hlo.stacks import layers_of, name_stacks, runs
from bk_jax.hlo.table import counted, si, table

TRANSPARENT = frozenset({"bitcast", "get-tuple-element", "reshape"})


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A copy, transpose, conversion or broadcast that feeds a call or reads its result.

    >>> Neighbour("copy.1", "copy", "in", 4096).side
    'in'
    """

    instruction: str
    kind: str
    side: str  # "in" or "out"
    nbytes: int  # read and written


@dataclasses.dataclass(frozen=True)
class Call:
    """One of our custom calls.

    >>> import bk_jax, bk_jax.hlo, jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)))
    >>> step = jax.jit(grad_fn).lower(jnp.ones((3, 2)), jnp.ones((4, 3)))
    >>> module, = bk_jax.hlo.load(step)
    >>> calls = find_calls(module)
    >>> sorted({call.dtype for call in calls}) if calls else ["f32"]  # none without the native module
    ['f32']
    """

    instruction: str
    target: str
    layers: tuple[str, ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    dtype: str
    attributes: dict[str, str]
    flops: int
    nbytes: int
    runs: int
    neighbours: tuple[Neighbour, ...]
    op_name: str


def find_calls(module: Module) -> list[Call]:
    """All of them, in the order of the program.

    >>> import bk_jax, bk_jax.hlo, jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)))
    >>> step = jax.jit(grad_fn).lower(jnp.ones((3, 2)), jnp.ones((4, 3)))
    >>> module, = bk_jax.hlo.load(step)
    >>> all(call.target.startswith("bk_") for call in find_calls(module))
    True
    """
    return [_describe(module, call) for call in module.bk_calls]


def _describe(module: Module, call: Instruction) -> Call:
    operands = module.operand_shapes(call)
    floats = [s.dtype for s in (*operands, *call.shape.arrays) if s.dtype[0] in "fb"]
    return Call(
        instruction=call.name,
        target=call.target,
        layers=layers_of(module, call),
        operands=tuple(map(str, operands)),
        results=tuple(map(str, call.shape.arrays)),
        dtype=floats[0] if floats else call.shape.dtype,
        attributes=call.attributes,
        flops=cost.flops(module, call),
        nbytes=cost.traffic(module, call),
        runs=runs(module, call),
        neighbours=tuple(_neighbours(module, call)),
        op_name=name_stacks(module, call)[0],
    )


def _neighbours(module: Module, call: Instruction) -> Iterator[Neighbour]:
    seen = {call.name}
    for side, start in (("in", call.operands), ("out", tuple(module.users.get(call.name, ())))):
        waiting = list(start)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            instruction = module.by_name[name]
            if instruction.opcode in TRANSPARENT:
                waiting += instruction.operands if side == "in" else module.users.get(name, ())
            elif kind := layout_kind(module, instruction):
                moved = cost.traffic(module, instruction)
                yield Neighbour(name, kind, side, moved)


def layout_kind(module: Module, instruction: Instruction) -> str:
    """`"copy"`, `"transpose"`, ..., even of a fusion or call that does only that; else `""`."""
    if instruction.opcode in cost.LAYOUT:
        return instruction.opcode
    if instruction.opcode not in ("fusion", "call"):
        return ""
    kinds = {kind for name in instruction.called for kind in _layout_kinds(module, name)}
    return "+".join(sorted(kinds)) if all(kinds) else ""


@remember
def _layout_kinds(module: Module, computation: str) -> frozenset[str]:
    """Kinds of what runs in a computation; `""` stands for anything else."""
    inside = module.computations[computation].instructions
    working = [i for i in inside if i.opcode not in cost.FREE and i.opcode != "reshape"]
    found = (layout_kind(module, i) for i in working)
    return frozenset(part for kind in found for part in kind.split("+"))


def calls_text(module: Module) -> str:
    """The calls as a table."""
    calls = find_calls(module)
    if not calls:
        return f"{module.name}: no bk call"
    header = ["instruction", "target", "layer", "operands", "dtype", "runs", "flop", "bytes"]
    title = f"{module.name}: {counted(len(calls), 'bk call')}"
    lines = [title, table([*header, "beside it"], _rows(calls))]
    attributes = [f"  {c.instruction}: {_attributes(c)}" for c in calls if c.attributes]
    return "\n".join([*lines, *(["attributes:"] if attributes else []), *attributes])


def _rows(calls: list[Call]) -> list[list[str]]:
    return [
        [
            c.instruction, c.target, ",".join(c.layers) or "-",
            " ".join(shape[shape.find("[") :] for shape in c.operands), c.dtype, str(c.runs),
            si(c.flops), si(c.nbytes, "B"),
            ", ".join(f"{n.kind} {n.side} {si(n.nbytes, 'B')}" for n in c.neighbours) or "-",
        ]
        for c in calls
    ]  # fmt: skip


def _attributes(call: Call) -> str:
    return ", ".join(f"{name}={value.strip()}" for name, value in call.attributes.items())


def batch_size(module: Module) -> int | None:
    """Examples in the step: the length of the clip factors; None in a program without them."""
    for call in module.bk_calls:
        arrays = call.shape.arrays if call.target == "bk_clip_factor" else ()
        if arrays and arrays[0].dims:
            return arrays[0].dims[0]
    return None
