"""Owners: the parameter that each instruction of a compiled step works for.

Norms and sums of the private step carry the name of their parameters (`bk.norm[...]`, `bk.sum[...]`;
gradients of single examples `bk.keep[...]`, as do mere views of what back-propagation makes anyway).
Everything else belongs to a parameter if its result goes nowhere but into the gradient of that one:
the weight gradients of the plain step, the noise, the copies. What serves several, the forward pass and
back-propagation above all, is shared. Both programs are read by the same rule.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence

from bk_jax.hlo.model import Instruction, Module
from bk_jax.overhead.flow import HOLDING, count_results, reached

SHARED, CLIPPING = "forward and backward", "clip factors, noise key"
PRODUCTS = frozenset({"dot", "convolution"})
_NAMED = re.compile(r"bk\.(keep|norm|sum)\[(.*?)\](?=/|$)")
_BETWEEN = re.compile(r"bk\.(clip|noise)(?=/|$)")


def find_owners(module: Module, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Paths of parameters, or `SHARED` or `CLIPPING`, for every instruction.

    Args:
      module: a compiled step whose last results are the gradients of the parameters.
      paths: of the parameters, in that order.
    """
    first = count_results(module) - len(paths)
    bit = {path: 1 << (first + number) for number, path in enumerate(paths)}

    named = {instruction.name: _named(module, instruction, bit) for instruction in module}
    bits = reached(module, lambda instruction: sum(bit[path] for path in named[instruction.name]))
    owners = {}
    for name, instruction in module.by_name.items():
        owners[name] = named[name] or _unnamed(instruction, bits[name], bit)
    return owners


def _unnamed(instruction: Instruction, bits: int, known: Mapping[str, int]) -> tuple[str, ...]:
    """The parameter that it works for alone, or what it is a part of."""
    between = _BETWEEN.findall(instruction.op_name)
    alone = () if between[-1:] == ["clip"] else [path for path, own in known.items() if own == bits]
    return tuple(alone) or (CLIPPING if between else SHARED,)


def _named(module: Module, instruction: Instruction, known: Container[str]) -> tuple[str, ...]:
    """Parameters in the last scope of ours, if there is one and they are parameters."""
    telling = _telling(module, instruction)
    found = _NAMED.findall(telling.op_name)
    if not found:
        return ()
    step, inside = found[-1]
    if step == "keep" and not (telling.is_bk_call or telling.opcode in PRODUCTS):
        return ()
    paths = (inside,) if inside in known else tuple(inside.split(","))
    return tuple(dict.fromkeys(paths)) if all(path in known for path in paths) else ()


def _telling(module: Module, instruction: Instruction) -> Instruction:
    """Of a fusion the product in it, if there is one: it takes the time."""
    if instruction.opcode != "fusion":
        return instruction
    inside = (i for name in instruction.called for i in module.computations[name].instructions)
    return next((i for i in inside if i.opcode in PRODUCTS), instruction)


def executed(module: Module) -> Iterator[Instruction]:
    """Instructions that run by themselves: not those inside a fusion or a reduction."""
    waiting, seen = [module.entry], set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for instruction in module.computations[name].instructions:
            yield instruction
            if instruction.opcode in HOLDING:
                waiting += instruction.called
