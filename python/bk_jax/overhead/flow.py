"""Flow: for what results of a program each of its instructions works.

Values are followed from the results back to what they are made from, element by element through
tuples, loops, calls and branches; a fusion is one instruction. Sets of results are the bits of an
integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from bk_jax.hlo.model import Instruction, Module

HOLDING = frozenset({"while", "call", "conditional"})  # their work is that of what they call
EVERYTHING = -1


class Value(NamedTuple):
    """What an instruction makes; one element of it, if it makes a tuple (`EVERYTHING`: all)."""

    instruction: str
    element: int = EVERYTHING


def reached(module: Module, seed: Callable[[Instruction], int]) -> dict[str, int]:
    """The results that each instruction works for: bit `i` is result number `i`.

    Args:
      module: a compiled program.
      seed: gives the bits of an instruction that is known to work for certain results, else 0; such
        an instruction is not followed further.
    """
    fixed = {i.name: known for i in module if (known := seed(i))}
    bits: dict[Value, int] = {}
    sources = _sources(module)
    waiting = list(_results(module)) + [(Value(name), found) for name, found in fixed.items()]
    while waiting:
        value, found = waiting.pop()
        before = bits.get(value, 0)
        after = fixed.get(value.instruction, before | found)
        if after != before:
            bits[value] = after
            waiting += [(source, after) for source in sources.get(value, ())]
    out = dict.fromkeys(module.by_name, 0)
    for value, found in bits.items():
        out[value.instruction] |= found
    return out


def _results(module: Module) -> Iterator[tuple[Value, int]]:
    root = module.by_name[module.computations[module.entry].root]
    for number, part in enumerate(_parts(root)):
        yield part, 1 << number


def count_results(module: Module) -> int:
    """Number of arrays that the program returns."""
    return len(_parts(module.by_name[module.computations[module.entry].root]))


def _sources(module: Module) -> dict[Value, list[Value]]:
    """For every value those that it is made from."""
    out: dict[Value, list[Value]] = {}
    for instruction in module:
        for made, source in _edges(module, instruction):
            out.setdefault(made, []).append(source)
    return out


def _edges(module: Module, instruction: Instruction) -> Iterator[tuple[Value, Value]]:
    name, opcode = instruction.name, instruction.opcode
    if opcode == "get-tuple-element":
        taken = Value(instruction.operands[0], instruction.index)
        yield from ((part, taken) for part in _parts(instruction))
    elif opcode == "tuple":
        for element, operand in enumerate(instruction.operands):
            yield Value(name, element), Value(operand)
            yield from _whole(module, operand)
    elif opcode == "while":
        yield from _loop(module, instruction)
    elif opcode in ("call", "conditional"):
        yield from _calls(module, instruction)
    else:
        for operand in instruction.operands:
            yield Value(name), Value(operand)
            yield from _whole(module, operand)
        yield from ((part, Value(name)) for part in _parts(instruction))


def _parts(instruction: Instruction) -> list[Value]:
    """The elements of a tuple; of an array, itself."""
    if instruction.shape.dtype != "tuple":
        return [Value(instruction.name)]
    return [Value(instruction.name, i) for i in range(len(instruction.shape.parts))]


def _whole(module: Module, name: str) -> Iterator[tuple[Value, Value]]:
    """Who reads a tuple as a whole reads its elements."""
    instruction = module.by_name[name]
    if instruction.shape.dtype == "tuple":
        yield from ((Value(name), part) for part in _parts(instruction))


def _joined(made: Instruction, source: Instruction) -> Iterator[tuple[Value, Value]]:
    """Two instructions that make the same."""
    yield from zip(_parts(made), _parts(source), strict=False)


def _loop(module: Module, loop: Instruction) -> Iterator[tuple[Value, Value]]:
    start = module.by_name[loop.operands[0]]
    yield from _joined(loop, start)
    for called in loop.called:
        computation = module.computations[called]
        for parameter in (i for i in computation.instructions if i.opcode == "parameter"):
            yield from _joined(parameter, start)
            root = module.by_name[computation.root]
            if root.shape.dtype == "tuple":  # the body; a condition makes one boolean
                yield from _joined(loop, root)
                yield from _joined(parameter, root)


def _calls(module: Module, call: Instruction) -> Iterator[tuple[Value, Value]]:
    """A branch takes one operand, after the number of the branch."""
    for number, called in enumerate(call.called):
        computation = module.computations[called]
        yield from _joined(call, module.by_name[computation.root])
        for parameter in (i for i in computation.instructions if i.opcode == "parameter"):
            index = number + 1 if call.opcode == "conditional" else parameter.index
            if index < len(call.operands):
                yield from _joined(parameter, module.by_name[call.operands[index]])
