"""Equal layers: those whose norms, and whose sums, come in one call on a GPU.

One layer has too few tiles to fill a GPU, and a network repeats its layers. Layers of equal shape and
dtype, of one clip group and scale, come together: `ops.ghost_norms`, `ops.clipped_gemms`.

Query, key and value could also share the Gram matrix of their activations, for which their gradients
are copied next to each other. On a GPU that pays only where the matrix takes longer than the copy,
from about a thousand positions on; otherwise they stay apart, and come together with their like. What
shares activations counts as one wide layer, and comes together with its like too.

On a CPU every layer has a call of its own: its cores are busy with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from bk_jax.ops.ghost_norms import MOST
from bk_jax.planning.device_seconds import sharing_pays
from bk_jax.planning.devices import Device

if TYPE_CHECKING:
    from bk_jax.planning.plan import Block, Plan

Numbers = tuple[tuple[int, ...], ...]


def alike(keys: Sequence[Hashable]) -> Numbers:
    """Numbers of equal keys come together; one without a key (`None`) stays alone.

    >>> alike(["a", None, "a", None])
    ((0, 2), (1,), (3,))
    """
    found: dict[Hashable, list[int]] = {}
    for number, key in enumerate(keys):
        found.setdefault((number,) if key is None else (None, key), []).append(number)
    return tuple(map(tuple, found.values()))


def where_sharing_pays(blocks: Sequence[Block], calls: Numbers, device: Device) -> Numbers:
    """The calls of blocks that share activations, or one for each block where that costs more."""
    out: list[tuple[int, ...]] = []
    for call in calls:
        pays = len(call) == 1 or sharing_pays([blocks[n].cost for n in call], device)
        out += [call] if pays else [(number,) for number in call]
    return tuple(sorted(out))


def equal_norms(blocks: Sequence[Block], calls: Numbers, groups: Sequence[int]) -> Numbers:
    """Which of the norm calls are one call, by their numbers."""
    return alike([_key([blocks[n] for n in call], groups, ("ghost",)) for call in calls])


def equal_sums(blocks: Sequence[Block], groups: Sequence[int]) -> Numbers:
    """Which blocks have their sums in one call.

    Of 16-bit elements: sums of others are products of a library, one by one.
    """
    keys = [
        _key([block], groups, ("ghost", "fused")) if block.cost.kept_itemsize == 2 else None
        for block in blocks
    ]
    return alike(keys)


def calls_saved(plan: Plan) -> Counter[int]:
    """For each block, calls that it does not need because others make its norm or its sum."""
    norms = (plan.norm_calls[call][0] for one in plan.equal_norms for call in one[1:])
    sums = (number for one in plan.equal_sums for number in one[1:])
    return Counter([*norms, *sums])


def calls_text(plan: Plan) -> str:
    """How many norms and sums are made by how many calls, or nothing."""
    said = []
    for kind, together in (("norms", plan.equal_norms), ("sums", plan.equal_sums)):
        several = [len(one) for one in together if len(one) > 1]
        calls = sum(-(-count // MOST) for count in several)
        said += [f"{sum(several)} {kind} in {calls}"] if several else []
    return f"calls for layers of one shape: {', '.join(said)}" if said else ""


def _key(layers: Sequence[Block], groups: Sequence[int], routes: Sequence[str]) -> Hashable:
    """Equal for what has equal operands and adds up to one norm; None for what has a call of its own."""
    if any(layer.kind != "dense" or layer.route not in routes for layer in layers):
        return None
    first = layers[0]
    width = sum(layer.cost.p for layer in layers)
    sizes = (first.cost.n, first.cost.t, first.cost.d, width)
    return (groups[first.leaves[0]], sizes, first.sites[0].use.dtype)
