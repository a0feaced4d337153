"""Plan: which route handles which parameters.

Sites whose weights overlap (one weight used several times) form a *block*: their gradients add up
before the norm is taken, so they must be handled together. A block of sites that see the weight in
the same way is one layer with all their tokens; dense sites and lookups of one table are a tied
block. Any other block is not handled by sites at all: its leaves are tapped instead, which is exact
for every program. The same goes for a leaf with an opaque use, and for every other leaf of the
blocks it takes part in.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bk_jax.planning.cost import LayerCost, cost_of
from bk_jax.planning.default_rates import AVX512
from bk_jax.planning.devices import Device
from bk_jax.planning.equal import Numbers, alike, equal_norms, equal_sums, where_sharing_pays
from bk_jax.planning.fastest import Choice
from bk_jax.planning.methods import Method
from bk_jax.planning.patches import settled, with_patches
from bk_jax.planning.rates import Rates
from bk_jax.planning.routes import ForcedRoutes
from bk_jax.program.sites import Path, Site, Sites
from bk_jax.program.trace import Leaf
from bk_jax.program.views import View, elements_read

# Copying the gradients next to each other takes longer than a Gram matrix of fewer positions.
SHARED_POSITIONS = 128
# Larger leaves are not compared element by element: their views are assumed to overlap.
COUNTABLE_ELEMENTS = 1 << 28


@dataclasses.dataclass(frozen=True)
class Block:
    """Sites whose gradients add up before the norm: one weight, or parts of one."""

    sites: tuple[Site, ...]
    kind: str  # dense, conv, lookup or tied
    route: str
    why: str
    cost: LayerCost

    @functools.cached_property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the block's gradient belongs to."""
        return _leaves(self.sites)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every trainable leaf is in `blocks`, in `tapped` (with the reason), or in `unused`."""

    blocks: tuple[Block, ...]
    tapped: Mapping[int, str]
    unused: tuple[int, ...]
    norm_calls: Numbers  # numbers of blocks that share activations for their norms
    # On GPUs one custom call makes the norms of several norm calls, or the sums of several blocks.
    equal_norms: Numbers  # numbers of norm calls
    equal_sums: Numbers  # numbers of blocks

    def sites(self) -> dict[Path, Site]:
        """All sites that are tapped, by path."""
        return {site.path: site for block in self.blocks for site in block.sites}


def make_plan(
    found: Sites,
    leaves: Sequence[Leaf],
    groups: Sequence[int],
    method: Method,
    forced: ForcedRoutes,
    rates: Rates = AVX512,
) -> Plan:
    """Decides for every leaf, by shipped rates; raises if one would be left out."""
    used = set(found.opaque) | {leaf for site in found.sites for leaf in site.leaves}
    candidates = _overlapping(found.sites, leaves)
    tapped = _opaque_leaves(found, candidates, leaves, groups)
    if method.tap_everything:
        tapped = {leaf: tapped.get(leaf, "chosen by the method") for leaf in used}
    for leaf in used:
        if forced.route(leaf) == "leaf":
            tapped.setdefault(leaf, forced.why(leaf))
    candidates = _without(candidates, tapped)
    costs = [cost_of(sites) for sites in candidates]
    if rates.device is not None:
        costs = with_patches(candidates, costs)
    layers = zip(candidates, costs, strict=True)
    blocks = tuple(_make_block(*layer, method, forced, rates) for layer in layers)
    unused = tuple(i for i in range(len(leaves)) if i not in used)
    calls = _calls(blocks, groups, method.share_activations, rates.device)
    plan = Plan(blocks, dict(sorted(tapped.items())), unused, *calls)
    _check_complete(plan, leaves)
    forced.check(plan.tapped)
    return plan


def _opaque_leaves(
    found: Sites,
    candidates: Sequence[Sequence[Site]],
    leaves: Sequence[Leaf],
    groups: Sequence[int],
) -> dict[int, str]:
    """The leaves that sites cannot handle, with the reason."""
    tapped = {leaf: f"used by {reasons[0]}" for leaf, reasons in found.opaque.items()}
    for sites in candidates:
        reason = _why_not(sites, leaves, groups)
        if reason:
            tapped.update({leaf: reason for leaf in _leaves(sites) if leaf not in tapped})
    return tapped


def _leaves(sites: Sequence[Site]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(leaf for site in sites for leaf in site.leaves))


def _overlapping(sites: Sequence[Site], leaves: Sequence[Leaf]) -> list[list[Site]]:
    """Groups sites that read a common element of some leaf."""
    views: dict[int, dict[Any, View]] = {}  # of each leaf, by what they do
    for view in (view for site in sites for view in site.views):
        views.setdefault(view.leaf, {})[view.steps] = view
    known: dict[Any, np.ndarray] = {}
    readers = {leaf: _Readers(leaves[leaf].shape, own, known) for leaf, own in views.items()}
    blocks: dict[int, list[Site]] = {}  # by the number of their last site, in that order
    later = list(range(len(sites)))  # from a site to one after it in the same block, or to itself
    for number, site in enumerate(sites):
        before = {other for view in site.views for other in readers[view.leaf].add(view, number)}
        merged: list[Site] = []
        for last in sorted({_last(later, other) for other in before} - {number}):
            block = blocks.pop(last)
            merged = merged + block if merged else block
            later[last] = number
        merged.append(site)
        blocks[number] = merged
    return list(blocks.values())


def _last(later: list[int], number: int) -> int:
    """The last site of a site's block; the way to it gets shorter."""
    while later[number] != number:
        later[number] = later[later[number]]
        number = later[number]
    return number


class _Readers:
    """The site that read each element of a leaf last."""

    def __init__(
        self, shape: tuple[int, ...], views: Mapping[Any, View], known: dict[Any, np.ndarray]
    ) -> None:
        size = math.prod(shape)
        self._by_element = len(views) > 1 and () not in views and size <= COUNTABLE_ELEMENTS
        self._last = np.full(size if self._by_element else 1, -1)
        if self._by_element:
            for steps, view in views.items():  # leaves of one shape are often read alike
                if (shape, steps) not in known:
                    known[shape, steps] = elements_read(view, shape)
            self._elements = {steps: known[shape, steps] for steps in views}

    def add(self, view: View, number: int) -> list[int]:
        """The sites that read an element of this view last, now that site `number` does."""
        read = self._elements[view.steps] if self._by_element else slice(None)
        before = np.unique(self._last[read])
        self._last[read] = number
        return [int(site) for site in before if site >= 0]


def _share(a: View, b: View, leaves: Sequence[Leaf]) -> bool:
    """Whether two views of one leaf read a common element."""
    if a.steps == b.steps or not a.steps or not b.steps:
        return True
    shape = leaves[a.leaf].shape
    if math.prod(shape) > COUNTABLE_ELEMENTS:
        return True
    return bool(np.intersect1d(elements_read(a, shape), elements_read(b, shape)).size)


def _repeats(site: Site, leaves: Sequence[Leaf]) -> bool:
    """Whether an element of a leaf occurs twice in the weight: `concatenate([w, w])`."""
    of_leaf: dict[int, list[View]] = {}
    for view in site.views:
        of_leaf.setdefault(view.leaf, []).append(view)
    return any(
        _share(a, b, leaves) for own in of_leaf.values() for a, b in itertools.combinations(own, 2)
    )


def _why_not(sites: Sequence[Site], leaves: Sequence[Leaf], groups: Sequence[int]) -> str:
    """Why these sites cannot be one block, or an empty string."""
    if any(_repeats(site, leaves) for site in sites):
        return f"joined with itself at {sites[0].source}"
    if len({groups[leaf] for leaf in _leaves(sites)}) > 1:
        return f"joined with parameters of another clip group or scale at {sites[0].source}"
    if len({(site.views, site.use.form) for site in sites}) > 1:
        return f"used in different ways at {sites[0].source} and {sites[-1].source}"
    # The form of a matrix does not say which of its axes is looked up: w[i] and w[:, i] share it.
    if len({site.use.weight_dims for site in sites if site.use.kind == "lookup"}) > 1:
        return f"looked up along different axes at {sites[0].source} and {sites[-1].source}"
    stacked = any(axis.stacked for site in sites for axis in site.axes)
    if _kind(sites) == "tied" and stacked:
        return f"looked up and multiplied by inside a scan at {sites[0].source}"
    return ""


def _kind(sites: Sequence[Site]) -> str:
    kinds = {site.use.kind for site in sites}
    return kinds.pop() if len(kinds) == 1 else "tied"


def _without(candidates: list[list[Site]], tapped: dict[int, str]) -> list[list[Site]]:
    """Drops blocks that touch a tapped leaf; their other leaves become tapped as well."""
    of_leaf: dict[int, list[int]] = {}
    for number, sites in enumerate(candidates):
        for leaf in _leaves(sites):
            of_leaf.setdefault(leaf, []).append(number)
    dropped: set[int] = set()
    to_do = list(tapped)
    for leaf in to_do:  # grows
        for number in of_leaf.pop(leaf, ()):
            dropped.add(number)
            more = [other for other in _leaves(candidates[number]) if other not in tapped]
            tapped.update(dict.fromkeys(more, "joined with a parameter that is tapped"))
            to_do.extend(more)
    return [sites for number, sites in enumerate(candidates) if number not in dropped]


def _make_block(
    sites: Sequence[Site], cost: LayerCost, method: Method, forced: ForcedRoutes, rates: Rates
) -> Block:
    kind = _kind(sites)
    leaves = _leaves(sites)
    asked = forced.for_block(leaves, kind)
    is_lookup = kind == "lookup"
    choice = Choice("sparse", "rows are looked up") if is_lookup else method.choose(cost, rates)
    if kind == "tied" and choice.route == "fused":
        choice = Choice("ghost", "tied with a lookup")
    if asked:
        choice = Choice(asked, "asked for")
    cost, choice = settled(sites, cost, choice, rates)
    return Block(tuple(sites), kind, choice.route, choice.why, cost)


def _calls(
    blocks: Sequence[Block], groups: Sequence[int], share: bool, device: Device | None
) -> tuple[Numbers, Numbers, Numbers]:
    """What is computed together: norms by activations, norms by shape, and sums by shape."""
    calls = _norm_calls(blocks, groups, share)
    if not share or device is None:
        return calls, alike([None] * len(calls)), alike([None] * len(blocks))
    calls = where_sharing_pays(blocks, calls, device)
    return calls, equal_norms(blocks, calls, groups), equal_sums(blocks, groups)


def _norm_calls(blocks: Sequence[Block], groups: Sequence[int], share: bool) -> Numbers:
    """Every block once; those of a clip group that can share a Gram matrix come together."""
    grams = [_gram_key(block) if share else None for block in blocks]
    return alike(
        [
            gram and (groups[block.leaves[0]], gram)
            for gram, block in zip(grams, blocks, strict=True)
        ]
    )


def _gram_key(block: Block) -> tuple[Any, ...] | None:
    """Equal for blocks whose ghost norms start from the same Gram matrix (query, key and value)."""
    site, *others = block.sites
    if others or block.kind != "dense" or block.route != "ghost" or block.cost.t < SHARED_POSITIONS:
        return None
    use = site.use
    groups = tuple(map(len, use.weight_dims[:2]))  # where n ends and d begins
    order = (use.activation_order, groups, use.sizes[:3])
    return (site.reads, site.axes, order, use.dtype)


def _check_complete(plan: Plan, leaves: Sequence[Leaf]) -> None:
    covered = set(plan.tapped) | set(plan.unused)
    covered.update(leaf for block in plan.blocks for leaf in block.leaves)
    missing = [leaf.path for i, leaf in enumerate(leaves) if i not in covered]
    if missing:
        raise AssertionError(
            f"bk_jax left out the parameters {missing}: this is a bug that would have cost privacy."
        )
