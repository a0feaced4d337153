"""Arguments of a program: which are weights, and which sizes a gradient of one can have.

A weight can begin with as many rows as there are examples: a 3x3 kernel in a batch of 3, a square
matrix in a batch of its width; a batch that is read in microbatches begins with a multiple. So an
argument is a weight if its rows are not a multiple of the examples, or if its name says so: it sits
under one Python argument with arrays of other sizes (`params['stem']` next to `params['head']`).
If it has exactly as many rows as there are examples, the program must also return as many arrays
of its sizes. In doubt, an argument counts as examples: one finding too many beats one too few.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator, Sequence

from bk_jax.hlo.model import Instruction, Module, Shape
from bk_jax.hlo.origins import origin
from bk_jax.hlo.stacks import layers_of


@dataclasses.dataclass(frozen=True)
class Arguments:
    """What is known about a program's arguments."""

    weights: frozenset[str]  # names of those that hold no examples
    whole: tuple[Instruction, ...]  # those that a product reads whole, not slice by slice
    sizes: tuple[tuple[int, ...], ...]  # of a weight with two or more axes, without 1s

    @classmethod
    def read(cls, module: Module, examples: int | None) -> Arguments:
        """Looks at names, sizes and products."""
        whole = tuple(_whole(module))
        sizes = tuple(dict.fromkeys(_sizes(module, whole)))
        return cls(frozenset(_weights(module, examples)), whole, sizes)

    def is_weight_shaped(self, shape: Shape) -> bool:
        """Whether it has the axes of some argument, in any order, ignoring axes of size 1."""
        return any(_axes(shape) == sorted(weight) for weight in self.sizes)

    def is_weight(self, module: Module, value: Instruction) -> bool:
        """Whether a value is a weight or part of one."""
        source = origin(module, value)
        return source in module.parameters and source.name in self.weights

    def is_own_gradient(self, module: Module, instruction: Instruction) -> bool:
        """Whether its sizes are those of the very parameter that its name stack names.

        If so, it is a sum of gradients: one for each example would be larger. A stack of layers is
        excluded, since one layer's gradient for each example can be as large as the stack.
        """
        axes = _axes(instruction.result)
        own = [w for w in self.whole if w.name in self.weights and _axes(w.shape) == axes]
        layers = layers_of(module, instruction)
        return any(_is_named(weight, layer) for weight in own for layer in layers)


def long_axes(dims: Sequence[int]) -> tuple[int, ...]:
    """Sizes that are not 1."""
    return tuple(size for size in dims if size != 1)


def _axes(shape: Shape) -> list[int]:
    return sorted(long_axes(shape.dims))


def _weights(module: Module, examples: int | None) -> Iterator[str]:
    arguments = module.parameters
    owners = _owners_of_weights(arguments, examples)
    returned = module.by_name[module.computations[module.entry].root].shape.arrays
    there = collections.Counter(shape.dims for shape in returned)
    asked = collections.Counter((_owner(a), a.shape.dims) for a in arguments)
    for argument in arguments:
        owner, dims = _owner(argument), argument.shape.dims
        comes_back = dims[:1] != (examples,) or asked[owner, dims] <= there[dims]
        if not _may_be_examples(argument, examples) or (owner in owners and comes_back):
            yield argument.name


def _owners_of_weights(arguments: Sequence[Instruction], examples: int | None) -> set[str]:
    """Python arguments that certainly contain a weight; none if all belong to the same one."""
    if len(set(map(_owner, arguments))) < 2:
        return set()
    numbers = [a for a in arguments if a.shape.dims and a.shape.dtype.startswith(("f", "bf"))]
    return {_owner(a) for a in numbers if not _may_be_examples(a, examples)} - {""}


def _may_be_examples(argument: Instruction, examples: int | None) -> bool:
    rows = argument.shape.dims[:1]
    return examples is not None and any(size % examples == 0 for size in rows)


def _owner(argument: Instruction) -> str:
    """The Python argument it is a leaf of: `params` for `params['up']`."""
    name = re.match(r"\w+", argument.op_name)
    return name.group() if name else ""


def _is_named(argument: Instruction, layer: str) -> bool:
    """Whether `params['stem']['kernel']` is `stem/kernel`; `.value` is Flax's box around it."""
    path = re.findall(r"\w+", layer)
    ends = [re.findall(r"\w+", name) for name in (argument.op_name, _unboxed(argument.op_name))]
    return bool(path) and any(words[-len(path) :] == path for words in ends)


def _unboxed(name: str) -> str:
    return name.removesuffix(".value")


def _whole(module: Module) -> Iterator[Instruction]:
    products = [i for i in module if i.product]
    read = [module.by_name[name] for product in products for name in product.operands]
    sources = {origin(module, value, parts=False).name for value in read}
    yield from (a for a in module.parameters if a.name in sources)


def _sizes(module: Module, whole: Sequence[Instruction]) -> Iterator[tuple[int, ...]]:
    """Sizes of arguments; a stack, as a scan takes it, also counts as one of its layers."""
    for argument in module.parameters:
        sizes = long_axes(argument.shape.dims)
        for start in (0,) if argument in whole else (0, 1):
            if len(sizes) - start > 1:
                yield sizes[start:]
