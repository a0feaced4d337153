"""Attribution: the parameter that each instruction of a compiled step serves, and what that costs.

Norms and sums of the private step carry the names of their parameters (`bk.norm[...]`,
`bk.sum[...]`). Per-example gradients carry `bk.keep[...]`, as do mere views of what
back-propagation computes anyway. Everything else belongs to a parameter if its result flows only
into the gradient of that one: the weight gradients of the plain step, the noise, the copies. Work
that serves several, above all the forward pass and back-propagation, is shared. The same rule reads
both programs.

Values are followed from the results back to what they are made from, element by element through
tuples, loops, calls and branches; a fusion is one instruction. Sets of results are the bits of an
integer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bk_jax.hlo.loading import load
from bk_jax.hlo.model import Instruction, Module
from bk_jax.hlo.stacks import last_scope
from bk_jax.overhead.report import OUTSIDE, Row
from bk_jax.overhead.seconds import (
    HOLDING,
    Profile,
    Rates,
    Work,
    executed,
    fit_rates,
    rates_by_flops,
    work_of,
)
from bk_jax.planning.explain import Explanation

SHARED, CLIPPING = "forward and backward", "clip factors, noise key"
NOISE_OF_MANY = "bk_gaussians"  # operands: key, deviation, then one for each result
_BETWEEN = re.compile(r"bk\.(clip|noise)(?=/|$)")


def find_owners(module: Module, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Paths of parameters, or `SHARED` or `CLIPPING`, for every instruction.

    Args:
      module: a compiled step whose last results are the gradients of the parameters.
      paths: the paths of the parameters, in that order.
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
    """The one parameter it serves, or what it is a part of."""
    if instruction.target == NOISE_OF_MANY:
        return tuple(path for path, own in known.items() if own & bits)
    between = _BETWEEN.findall(instruction.op_name)
    alone = () if between[-1:] == ["clip"] else [path for path, own in known.items() if own == bits]
    return tuple(alone) or (CLIPPING if between else SHARED,)


def _named(module: Module, instruction: Instruction, known: Container[str]) -> tuple[str, ...]:
    """Parameters in the last of our scopes, if there is one and they are parameters."""
    telling = _telling(module, instruction)
    scope = last_scope(telling.op_name)
    if scope is None:
        return ()
    if scope.step == "keep" and not (telling.is_bk_call or telling.product):
        return ()
    paths = (scope.inside,) if scope.inside in known else tuple(scope.inside.split(","))
    return tuple(dict.fromkeys(paths)) if all(path in known for path in paths) else ()


def _telling(module: Module, instruction: Instruction) -> Instruction:
    """For a fusion, the product in it if there is one: it takes the time."""
    if instruction.opcode != "fusion":
        return instruction
    inside = (i for name in instruction.called for i in module.computations[name].instructions)
    return next((i for i in inside if i.product), instruction)


EVERYTHING = -1


class Value(NamedTuple):
    """What an instruction makes; one element of it, if it makes a tuple (`EVERYTHING`: all)."""

    instruction: str
    element: int = EVERYTHING


def reached(module: Module, seed: Callable[[Instruction], int]) -> dict[str, int]:
    """The results that each instruction serves: bit `i` is result number `i`.

    Args:
      module: a compiled program.
      seed: gives the bits of an instruction that is known to serve certain results, otherwise 0;
        such an instruction is not followed further.
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
    """For every value, the values it is made from."""
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
    elif instruction.target == NOISE_OF_MANY:
        key, deviation, *noisy = map(Value, instruction.operands)
        for made, source in zip(_parts(instruction), noisy, strict=True):
            yield from ((made, of) for of in (key, deviation, source))
    else:
        for operand in instruction.operands:
            yield Value(name), Value(operand)
            yield from _whole(module, operand)
        yield from ((part, Value(name)) for part in _parts(instruction))


def _parts(instruction: Instruction) -> list[Value]:
    """The elements of a tuple; for an array, the array itself."""
    if instruction.shape.dtype != "tuple":
        return [Value(instruction.name)]
    return [Value(instruction.name, i) for i in range(len(instruction.shape.parts))]


def _whole(module: Module, name: str) -> Iterator[tuple[Value, Value]]:
    """Whatever reads a tuple as a whole reads its elements."""
    instruction = module.by_name[name]
    if instruction.shape.dtype == "tuple":
        yield from ((Value(name), part) for part in _parts(instruction))


def _joined(made: Instruction, source: Instruction) -> Iterator[tuple[Value, Value]]:
    """Two instructions that make the same value."""
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


Charged = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled step: its instructions, what they do, and which of `paths` they serve."""

    paths: tuple[str, ...]
    instructions: frozenset[str]
    holding: frozenset[str]
    work: Mapping[str, Work]
    owners: Mapping[str, tuple[str, ...]]

    def charge(self, amounts: Mapping[str, float]) -> Charged:
        """Adds up amounts of instructions by owner; joint owners share equally."""
        out: Charged = {}
        for instruction, amount in amounts.items():
            owners = self.owners[instruction] if instruction else (OUTSIDE,)
            for owner in owners:
                out[owner] = out.get(owner, 0.0) + amount / len(owners)
        return out

    def predict(self, rates: Rates) -> Charged:
        """Predicted seconds by owner."""
        return self.charge({name: rates.seconds(work) for name, work in self.work.items()})


def read_program(compiled: Any, paths: Sequence[str]) -> Program:
    """Reads a compiled step whose last results are the gradients of the parameters `paths`."""
    (module, *_) = load(compiled)
    instructions = list(executed(module))
    return Program(
        paths=tuple(paths),
        instructions=frozenset(i.name for i in instructions),
        holding=frozenset(i.name for i in instructions if i.opcode in HOLDING),
        work=work_of(module),
        owners=find_owners(module, paths),
    )


def make_rows(
    programs: Mapping[str, Program],
    explanation: Explanation,
    profiles: Mapping[str, Profile] | None,
) -> tuple[Row, ...]:
    """A row for each parameter, then rows for shared work and for time outside operations."""
    plain, private = programs["plain"], programs["private"]
    if profiles:
        rates = fit_rates(plain.work, profiles["plain"].operations)
    else:
        rates = rates_by_flops(plain.work)
    predicted = [program.predict(rates) for program in (plain, private)]
    total = sum(predicted[0].values())
    measured = _measure(programs, profiles)
    routes, flops = explanation.routes(), _extra_flops(explanation)
    names = [*((path, "parameter") for path in plain.paths), (SHARED, "shared")]
    names += [(CLIPPING, "shared"), (OUTSIDE, "outside")]
    rows = []
    for name, kind in names:
        before, after = (charged.get(name, 0.0) for charged in predicted)
        seconds = [charged.get(name, 0.0) for charged in measured]
        whole = profiles["plain"].seconds if profiles else 1.0
        rows.append(
            Row(
                name=name,
                kind=kind,
                route=routes.get(name, "") if kind == "parameter" else "",
                extra_flops=flops.get(name, 0) if kind == "parameter" else 0,
                predicted=(after - before) / total if total else 0.0,
                plain=seconds[0] if profiles else None,
                private=seconds[1] if profiles else None,
                measured=(seconds[1] - seconds[0]) / whole if profiles else None,
            )
        )
    return tuple(rows)


def _measure(
    programs: Mapping[str, Program], profiles: Mapping[str, Profile] | None
) -> list[Charged]:
    if not profiles:
        return [{}, {}]
    return [programs[name].charge(profiles[name].operations) for name in ("plain", "private")]


def _extra_flops(explanation: Explanation) -> dict[str, int]:
    """The route of each parameter; a parameter may have several uses."""
    out: dict[str, int] = {}
    for row in explanation.rows:
        out[row.path] = out.get(row.path, 0) + row.extra_flops.get(row.route, 0)
    return out
