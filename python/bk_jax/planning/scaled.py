"""Scaled: which parameters can have an array of scales multiplied to operands, before norms are taken.

    scale [d, 1] of a matrix [d, p]: multiplies activations      [p] or [1, p]: output gradients

It takes a `dot_general` of the parameter itself, or of slices of a `scan` over a stack of it, and a
scale that varies along rows or along columns but not both. Everything else is tapped, with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from bk_jax.planning.plan import Plan
from bk_jax.program.sites import Site
from bk_jax.program.views import Step
from bk_jax.scaling import BY_ELEMENT

KINDS = {"conv": "a kernel of a convolution", "lookup": "a table of rows"}
Shape = tuple[int, ...]


def why_tapped(sites: Sequence[Site], shapes: Mapping[int, Shape]) -> dict[int, str]:
    """Why leaves whose scales have these shapes are tapped; those that operands can take are missing."""
    found: dict[int, str] = {}
    for site in sites:
        for leaf in site.leaves:
            reason = _why_not(site, shapes[leaf]) if leaf in shapes else ""
            if reason:
                found.setdefault(leaf, reason)
    return found


def _why_not(site: Site, shape: Shape) -> str:
    """Why a scale of this shape cannot be multiplied to the operands of a site, or an empty string."""
    if site.use.kind != "dense":
        return f"scaled along an axis before clipping, and {KINDS[site.use.kind]} at {site.source}"
    if len(site.views) > 1:
        return f"scaled along an axis before clipping, and joined with others at {site.source}"
    steps = [step.name for step in site.views[0].steps if isinstance(step, Step)]
    if steps:
        return f"scaled along an axis before clipping, and read by {steps[0]} at {site.source}"
    return BY_ELEMENT if all(_varies(site, shape)) else ""


def _varies(site: Site, shape: Shape) -> tuple[bool, bool]:
    """Whether a scale varies along contracted axes, and along free ones."""
    stacked = sum(axis.stacked for axis in site.axes)
    own = stacked + len(site.use.weight_shape)
    sizes = (*[1] * (own - len(shape)), *shape)[stacked:]
    _, contracted, free = site.use.weight_dims
    return any(sizes[i] > 1 for i in contracted), any(sizes[i] > 1 for i in free)


def apart(groups: Sequence[int], leaves: Collection[int]) -> list[int]:
    """The groups, with one of its own for each of the leaves: their operands are theirs alone."""
    count = max(groups, default=0) + 1
    return [count + leaf if leaf in leaves else group for leaf, group in enumerate(groups)]


def noted(plan: Plan, leaves: Collection[int]) -> Plan:
    """The plan that says of these leaves how they are scaled."""
    blocks = [
        dataclasses.replace(block, why=f"{block.why}; operands scaled before clipping")
        if set(block.leaves) & set(leaves)
        else block
        for block in plan.blocks
    ]
    return dataclasses.replace(plan, blocks=tuple(blocks))
