"""Gates on programs that XLA compiled for a GPU. Each returns what is wrong: an empty list is a pass."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bk_jax import hlo
from bk_jax.hlo import cost
from bk_jax.hlo.calls import layout_kind
from bk_jax.hlo.collectives import Collective, find_collectives

COPIES = frozenset({"copy", "transpose"})  # a bfloat16 result of a float32 sum must be converted
NUMBERS = 64  # bytes: losses and counts


def missing_calls(module: hlo.Module, explanation: Any) -> list[str]:
    """Calls that the plan promises and the program lacks."""

    found = hlo.check(module, only=["missing-call"], explanation=explanation)
    return [finding.message for finding in found]


def missing_norms(module: hlo.Module, explanation: Any) -> list[str]:
    """Fewer calls for Gram norms than the plan has.

    In programs for a mesh, XLA leaves the names of layers to the sums only, so norms are counted.
    """
    planned = sum(row.route == "ghost" for row in explanation.rows)
    targets = ("bk_ghost_norm", "bk_ghost_norms")
    found = sum(len(call.operands) // 2 for call in module.bk_calls if call.target in targets)
    return [f"{found} of {planned} ghost norms are there"] if found < planned else []


def more_copies(private: hlo.Module, plain: hlo.Module, limit: int) -> list[str]:
    """Bytes that copies and transposes move for our calls, beyond those that the model has itself."""
    ours, theirs = (sum(_copied(module)) for module in (private, plain))
    return [f"{ours} bytes are copied, {theirs} in the plain step"] if ours > theirs + limit else []


def _copied(module: hlo.Module) -> Iterator[int]:
    """Of every copy and transpose that runs by itself."""
    fused = {name for i in module if i.opcode == "fusion" for name in i.called}
    for computation in module.computations.values():
        if computation.name not in fused:
            kinds = ((i, layout_kind(module, i)) for i in computation.instructions)
            yield from (cost.traffic(module, i) for i, kind in kinds if {*kind.split("+")} & COPIES)


def per_sample_gradients(
    module: hlo.Module, weights: Iterable[Sequence[int]], examples: int
) -> list[str]:
    """Arrays with the axes of a weight and of the examples, whoever computes them."""
    axes = {tuple(sorted([examples, *shape])) for shape in weights}
    return [
        f"{instruction.name} makes {array}"
        for instruction in module
        for array in instruction.shape.arrays
        if tuple(sorted(size for size in array.dims if size != 1)) in axes
    ]


def squares_of_tokens(module: hlo.Module, tokens: int) -> list[str]:
    """Arrays with two axes of tokens; no layer may be as wide."""
    return [
        f"{instruction.name} makes {array}"
        for instruction in module
        for array in instruction.shape.arrays
        if array.dims.count(tokens) > 1
    ]


def more_collectives(
    private: hlo.Module, plain: hlo.Module, examples: int, *, wider: float = 1
) -> list[str]:
    """What the private step sends and the plain one does not, beyond two numbers for each example.

    Our sums are float32 until they are returned: `wider` times the elements of a 16-bit gradient.
    """
    ours, theirs = (_sent(find_collectives(module)) for module in (private, plain))
    allowed = NUMBERS + 2 * 4 * examples
    return [
        f"{kind}: {nbytes} bytes, and {theirs[kind]} in the plain step"
        for kind, nbytes in ours.items()
        if nbytes > wider * theirs[kind] + allowed
    ]


def _sent(collectives: Iterable[Collective]) -> collections.Counter[str]:
    sent: collections.Counter[str] = collections.Counter()
    for one in collectives:
        sent[one.kind] += one.nbytes
    return sent


def more_memory(private: int, plain: int, ratio: float) -> list[str]:
    """Temporary memory beyond that of the plain step."""
    return (
        [f"{private} bytes are {private / plain:.2f}x of {plain}"]
        if private > ratio * plain
        else []
    )


def outside_command_buffers(thunks: str, calls: int) -> list[str]:
    """Our calls that XLA starts one by one, from its dump `*.thunk_sequence_after_thunk_passes.txt`.

    What is inside a command buffer is indented; one that the dump does not show at all is outside too.
    """
    found = re.findall(r"^( *)\d+: kCustomCall", thunks, re.MULTILINE)
    inside = sum(bool(indent) for indent in found)
    return [f"{calls - inside} of {calls} calls are outside"] if inside < calls else []
