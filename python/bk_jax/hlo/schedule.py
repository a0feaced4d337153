"""Memory over the schedule: which values live when, and how much memory they take together.

The instructions of a program are in a line, in the order XLA runs them; those of a loop or a branch
appear once, before the instruction that calls them. A value lives from where it is made to where it
is last read. Where XLA assigned buffers, values in one place count once (a fusion may overwrite
what it reads). Where it did not, as in a program that is only lowered, every value has its own
memory.

>>> import jax, jax.numpy as jnp, bk_jax.hlo
>>> step = jax.jit(lambda x: jnp.sum(jnp.sin(x) @ x)).lower(jnp.ones((8, 8)))
>>> found = timeline(bk_jax.hlo.load(step)[0])
>>> found.base, max(found.live)  # the argument and a zero; sin(x) and the product
(260, 512)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from bk_jax.hlo.model import Instruction, Module, Place, Shape

_RUN_INSIDE = frozenset({"while", "call", "conditional", "async-start"})
_SAME_VALUE = frozenset({"bitcast", "opt-barrier", "while", "add-dependency", "domain"})
_VIEWS = frozenset({"bitcast", "tuple", "get-tuple-element"})
_WITHOUT_MEMORY = frozenset({"parameter", "constant"}) | _SAME_VALUE | _VIEWS

Leaf = tuple[str, int]  # an instruction, and which of the arrays it makes


class Live(NamedTuple):
    """A buffer, and the first and last place in the schedule where it is needed."""

    instruction: str
    nbytes: int
    start: int
    stop: int


class Timeline(NamedTuple):
    """The schedule, its buffers, and the bytes live at each place.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> found = timeline(module)
    >>> len(found.live) == len(found.order)
    True
    """

    order: tuple[str, ...]
    buffers: tuple[Live, ...]
    base: int  # arguments and constants, which exist all the time
    live: tuple[int, ...]  # in addition to those
    is_assigned: bool  # by XLA


def timeline(module: Module) -> Timeline:
    """The walk over a program.

    >>> import jax, jax.numpy as jnp, bk_jax.hlo
    >>> module, = bk_jax.hlo.load(jax.jit(jnp.dot).lower(jnp.ones((2, 3)), jnp.ones((3, 5))))
    >>> max(timeline(module).live) >= 40  # bytes: the result, 2 x 5 float32
    True
    """
    order = tuple(_flat(module, module.entry, set()))
    at = {name: place for place, name in enumerate(order)}
    last = _last_reads(module, order, at)
    values = [
        (leaf, Live(leaf[0], shape.nbytes, at[leaf[0]], max(end, at[leaf[0]])))
        for leaf, end in last.items()
        if (shape := module.by_name[leaf[0]].shape.arrays[leaf[1]]).nbytes
    ]
    places = module.memory.places if module.memory else {}
    buffers = _merged(module, values) if places else [live for _, live in values]
    live = _sum(len(order), buffers)
    return Timeline(order, tuple(buffers), _base(module), live, bool(places))


def _flat(module: Module, computation: str, seen: set[str]) -> Iterator[str]:
    """Instructions as they run; what is called comes before its caller."""
    seen.add(computation)
    for instruction in module.computations[computation].instructions:
        if instruction.opcode in _RUN_INSIDE:
            for inner in instruction.called:
                if inner not in seen:
                    yield from _flat(module, inner, seen)
        yield instruction.name


def _last_reads(module: Module, order: tuple[str, ...], at: dict[str, int]) -> dict[Leaf, int]:
    """The last place each array is needed; the caller needs what leaves a computation."""
    leaves: dict[str, tuple[Leaf, ...]] = {}
    last: dict[Leaf, int] = {}
    ends = dict(_ends(module, at))
    for name in order:
        instruction = module.by_name[name]
        leaves[name] = _leaves(module, instruction, leaves)
        if instruction.opcode not in _VIEWS:
            for operand in instruction.operands:
                last.update({leaf: at[name] for leaf in leaves.get(operand, ()) if leaf in last})
        if instruction.opcode not in _WITHOUT_MEMORY:
            last.update(dict.fromkeys(leaves[name], at[name]))
        if name in ends:
            last.update({leaf: ends[name] for leaf in leaves[name] if leaf in last})
    return last


def _ends(module: Module, at: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Roots, and how long what they return is needed."""
    for computation in module.computations.values():
        if computation.name == module.entry:
            yield computation.root, len(at) - 1
        elif sites := module.call_sites.get(computation.name):
            yield computation.root, max(at.get(site.name, -1) for site in sites)


def _leaves(
    module: Module, instruction: Instruction, known: dict[str, tuple[Leaf, ...]]
) -> tuple[Leaf, ...]:
    """The arrays that make up an instruction's result, by who made them."""
    read = [known.get(operand, ()) for operand in instruction.operands]
    if instruction.opcode in _SAME_VALUE and read:
        return read[0]
    if instruction.opcode == "tuple":
        return tuple(leaf for part in read for leaf in part)
    if instruction.opcode == "get-tuple-element" and read:
        parts = module.by_name[instruction.operands[0]].shape.parts
        before = sum(len(part.arrays) for part in parts[: instruction.index])
        return read[0][before : before + len(instruction.shape.arrays)]
    return tuple((instruction.name, n) for n in range(len(instruction.shape.arrays)))


def _merged(module: Module, values: list[tuple[Leaf, Live]]) -> list[Live]:
    """Buffers that XLA assigned besides arguments: successive values in one place are one."""
    assert module.memory is not None
    by_place: dict[Place, list[Live]] = {}
    for (name, number), live in values:
        path = _paths(module.by_name[name].shape)[number]
        place = module.memory.places.get((name, path))
        if place is not None and place.kind in ("temporary", "output"):
            by_place.setdefault(place, []).append(live)
    found: list[Live] = []
    for lives in by_place.values():
        joined: list[Live] = []
        for live in sorted(lives, key=lambda one: one.start):
            if joined and live.start <= joined[-1].stop:
                joined[-1] = _union(joined[-1], live)
            else:
                joined.append(live)
        found += joined
    return found


def _union(a: Live, b: Live) -> Live:
    name = a.instruction if a.nbytes >= b.nbytes else b.instruction
    return Live(name, max(a.nbytes, b.nbytes), a.start, max(a.stop, b.stop))


def _paths(shape: Shape) -> list[tuple[int, ...]]:
    """Where the arrays of a shape are in it, as buffer assignment numbers them."""
    if shape.dtype != "tuple":
        return [()]
    return [(i, *path) for i, part in enumerate(shape.parts) for path in _paths(part)]


def _sum(length: int, buffers: list[Live]) -> tuple[int, ...]:
    change = [0] * (length + 1)
    for buffer in buffers:
        change[buffer.start] += buffer.nbytes
        change[buffer.stop + 1] -= buffer.nbytes
    return tuple(itertools.accumulate(change[:length]))


def _base(module: Module) -> int:
    if module.memory is not None:
        return module.memory.arguments + module.memory.constants
    constants = sum(i.shape.nbytes for i in module if i.opcode == "constant")
    return sum(parameter.shape.nbytes for parameter in module.parameters) + constants
