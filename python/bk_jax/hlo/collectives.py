"""Collectives of a private step: what devices send each other, and why.

| part | who moves it |
|---|---|
| `weights` | ordinary training: gradients, and parameters that are kept in parts |
| `norms` | bk_jax: two numbers for each example, before clipping |
| `numbers` | losses and counts: one number |
| `noise` | nobody: each device generates the noise of its own part |
| `activations` | the model, if its layers span devices (tensor parallelism); otherwise nobody |
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from bk_jax.hlo import cost
from bk_jax.hlo.context import Context, Finding
from bk_jax.hlo.model import Module, Shape
from bk_jax.hlo.rules import is_weights_part
from bk_jax.hlo.stacks import layers_in, name_stacks
from bk_jax.hlo.table import si

_OURS = re.compile(r"bk\.(keep|norm|sum|clip|noise)|custom_partitioning")
ADDING = (
    "all-reduce",
    "reduce-scatter",
)  # what a private step needs: sums of gradients and of norms


@dataclasses.dataclass(frozen=True)
class Collective:
    """One array that a collective moves; `nbytes` is the size of one device's result."""

    instruction: str
    kind: str
    shape: Shape
    op_name: str

    @property
    def dims(self) -> tuple[int, ...]:
        """Sizes other than 1."""
        return tuple(size for size in self.shape.dims if size != 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.shape.nbytes

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to the norms, sums or noise of bk_jax rather than to the model."""
        return bool(_OURS.search(self.op_name))


def find_collectives(module: Module) -> list[Collective]:
    """Every array that a collective of the program moves; a combined one gives several."""
    return list(_find(module))


def _find(module: Module) -> Iterator[Collective]:
    for instruction in module:
        if instruction.opcode in cost.COLLECTIVES:
            kind = instruction.opcode.removesuffix("-start")
            stack = name_stacks(module, instruction)[0]
            for shape in _results(kind, instruction.opcode, instruction.shape):
                yield Collective(instruction.name, kind, shape, stack)


def _results(kind: str, opcode: str, shape: Shape) -> tuple[Shape, ...]:
    """The results only: a starting collective repeats its operands, except for an all-reduce."""
    if kind in (opcode, "all-reduce") or not shape.parts:
        return shape.arrays
    return shape.parts[1].arrays if len(shape.parts) > 1 else shape.arrays


def private_collectives(context: Context) -> Iterator[Finding]:
    """Norms, clipped sums or noise make devices pass examples around, or draw noise more than once.

    They may send sums of gradients and of norms (all-reduce, reduce-scatter), and arrays with one
    number per example or the sizes of a parameter.
    """
    for found in find_collectives(context.module):
        if not found.is_ours or found.nbytes <= context.limits.collective:
            continue
        is_noise = "bk.noise" in found.op_name
        harmless = found.kind in ADDING or is_weights_part(context, found.shape)
        if (harmless or len(found.dims) < 2) and not is_noise:
            continue
        what = "noise is not local" if is_noise else "examples leave their device"
        yield Finding(
            "private-collective", "error", found.instruction, layers_in(found.op_name), found.nbytes,
            f"{found.kind} {found.instruction} moves {found.shape}, {si(found.nbytes, 'B')}, for "
            f"{found.op_name or 'a call of ours'}: {what}.",
        )  # fmt: skip
