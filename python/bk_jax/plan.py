"""Plan: which parameters are handled by which route.

Sites whose weights overlap (one weight used several times) form a *block*: their gradients add up
before the norm is taken, so they must be handled together. A block of dense sites that see the weight
in the same way is one dense layer with all their tokens. A block that is anything else is not handled
by sites at all: its leaves are tapped instead, which is exact for every program. So is a leaf with an
opaque use, and every other leaf of the blocks that it takes part in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bk_jax.sites import Path, Site, Sites
from bk_jax.trace import Leaf
from bk_jax.views import elements_read


@dataclasses.dataclass(frozen=True)
class Block:
    """Sites whose gradients add up before the norm: one weight, or parts of one."""

    sites: tuple[Site, ...]
    group: int

    @property
    def leaves(self) -> tuple[int, ...]:
        """The leaves that the block's gradient belongs to."""
        return tuple(dict.fromkeys(leaf for site in self.sites for leaf in site.leaves))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every trainable leaf is in `blocks`, in `tapped` (with the reason), or in `unused`."""

    blocks: tuple[Block, ...]
    tapped: dict[int, str]
    unused: tuple[int, ...]
    groups: tuple[int, ...]  # clip group of each leaf

    def sites(self) -> dict[Path, Site]:
        """All sites that are tapped, by path."""
        return {site.path: site for block in self.blocks for site in block.sites}


def make_plan(found: Sites, leaves: Sequence[Leaf], groups: Sequence[int]) -> Plan:
    """Decides for every leaf; raises if one were left out."""
    tapped = {leaf: f"used by {reasons[0]}" for leaf, reasons in found.opaque.items()}
    candidates = _overlapping(found.sites, leaves)
    used = set(tapped) | {leaf for site in found.sites for leaf in site.leaves}
    for sites in candidates:
        reason = _why_not(sites, groups)
        if reason:
            tapped.update({leaf: reason for s in sites for leaf in s.leaves if leaf not in tapped})
    candidates = _without(candidates, tapped)
    blocks = tuple(Block(tuple(sites), groups[sites[0].leaves[0]]) for sites in candidates)
    unused = tuple(i for i in range(len(leaves)) if i not in used)
    plan = Plan(blocks, dict(sorted(tapped.items())), unused, tuple(groups))
    _check_complete(plan, leaves)
    return plan


def _overlapping(sites: Sequence[Site], leaves: Sequence[Leaf]) -> list[list[Site]]:
    """Groups sites that read a common element of some leaf."""
    blocks: list[list[Site]] = []
    for site in sites:
        touching = [b for b in blocks if any(_overlap(site, other, leaves) for other in b)]
        merged = [s for block in touching for s in block] + [site]
        blocks = [b for b in blocks if b not in touching] + [merged]
    return blocks


def _overlap(one: Site, two: Site, leaves: Sequence[Leaf]) -> bool:
    for a in one.views:
        for b in two.views:
            if a.leaf != b.leaf:
                continue
            if a.steps == b.steps or not a.steps or not b.steps:
                return True
            shape = leaves[a.leaf].shape
            if np.intersect1d(elements_read(a, shape), elements_read(b, shape)).size:
                return True
    return False


def _why_not(sites: Sequence[Site], groups: Sequence[int]) -> str:
    """Why these sites can not be one block, or an empty string."""
    if len({groups[leaf] for site in sites for leaf in site.leaves}) > 1:
        return f"joined with parameters of another clip group at {sites[0].source}"
    if len({_form(site) for site in sites}) > 1:
        return f"used in different ways at {sites[0].source} and {sites[-1].source}"
    return ""


def _form(site: Site) -> tuple[Any, ...]:
    """Equal for sites that see the same weight in the same way, up to transposition."""
    shared, contracted, free = site.use.weight_groups
    return (site.views, shared, frozenset((contracted, free)))


def _without(candidates: list[list[Site]], tapped: dict[int, str]) -> list[list[Site]]:
    """Drops blocks that touch a tapped leaf; their other leaves become tapped as well."""
    while True:
        kept = []
        for sites in candidates:
            leaves = {leaf for site in sites for leaf in site.leaves}
            if leaves & tapped.keys():
                reason = "joined with a parameter that is tapped"
                tapped.update({leaf: reason for leaf in leaves if leaf not in tapped})
            else:
                kept.append(sites)
        if len(kept) == len(candidates):
            return kept
        candidates = kept


def _check_complete(plan: Plan, leaves: Sequence[Leaf]) -> None:
    covered = set(plan.tapped) | set(plan.unused)
    covered.update(leaf for block in plan.blocks for leaf in block.leaves)
    missing = [leaf.path for i, leaf in enumerate(leaves) if i not in covered]
    if missing:
        raise AssertionError(
            f"bk_jax left out the parameters {missing}: this is a bug that would have cost privacy."
        )
