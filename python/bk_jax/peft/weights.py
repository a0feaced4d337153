"""The weights of a traced program that a low-rank update can be added to.

A *weight* is what the program multiplies by, found by `bk_jax.program.sites` and joined as in
`bk_jax.planning.plan`: a leaf, a part of one (a fused projection that is split first is three
weights), or several leaves that are concatenated first. All uses of a weight share one adapter,
including uses of its transpose. Each weight in a stack that a `scan` runs over, and each expert of
a batched product, has its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat
from bk_jax.paths import distinct
from bk_jax.peft.select import Match, selected
from bk_jax.planning.methods import get_method
from bk_jax.planning.plan import Block, Plan, make_plan
from bk_jax.planning.routes import force_routes
from bk_jax.program.sites import Site, find_sites
from bk_jax.program.trace import Leaf, flatten_parameters
from bk_jax.summing.blocks.dense import to_weight
from bk_jax.summing.blocks.stored import stack_lengths, to_leaves


@dataclasses.dataclass(frozen=True)
class Weight:
    """A weight to adapt: the uses that share it, and the name of its adapter."""

    name: str
    block: Block
    dtype: Any

    @property
    def sites(self) -> tuple[Site, ...]:
        """All uses; the first says which side of the weight is the input."""
        return self.block.sites

    def shapes(self, rank: int) -> dict[str, tuple[int, ...]]:
        """Shapes of `A` and `B`: axes of scans and experts, then the matrix."""
        n, _, d, p = self.sites[0].use.sizes
        shared, _, _ = self.sites[0].use.weight_dims
        lead = (*stack_lengths(self.sites[0].axes), *([n] if shared else []))
        return {"a": (*lead, d, rank), "b": (*lead, rank, p)}

    def update(self, adapter: Mapping[str, jax.Array], scale: float) -> dict[int, jax.Array]:
        """What the adapter adds to each leaf that makes up the weight."""
        product = scale * jnp.matmul(adapter["a"], adapter["b"], precision="highest")
        matrices = product.reshape(-1, *product.shape[-2:])
        oriented = jnp.swapaxes(matrices, 1, 2) if self.sites[0].use.swap else matrices
        return to_leaves(self.block, to_weight(self.sites[0], oriented))


@dataclasses.dataclass(frozen=True)
class Program:
    """A traced function of the selected leaves, closed over everything else."""

    jaxpr: Any
    out_tree: Any
    leaves: tuple[Leaf, ...]
    arrays: tuple[Any, ...]

    def weights(self, skip: bool) -> tuple[tuple[Weight, ...], dict[str, str]]:
        """The weights, and why each other leaf is not one; without `skip`, such leaves raise."""
        found = find_sites(self.jaxpr, len(self.leaves), every_use=True)
        groups = (0,) * len(self.leaves)
        plan = make_plan(
            found, self.leaves, groups, get_method("auto"), force_routes({}, self.leaves)
        )
        other = _other_uses(plan, self.leaves)
        if other and not skip:
            raise ValueError(
                f"match selects parameters that are not used in matrix products alone: "
                f"{listing(other)}. Select fewer, or pass skip=True to leave these out."
            )
        dense = [block for block in plan.blocks if block.kind == "dense"]
        usable = [b for b in dense if not any(self.leaves[i].path in other for i in b.leaves)]
        adapted = {leaf for block in usable for leaf in block.leaves}
        for i, leaf in enumerate(self.leaves):
            if i not in adapted:
                other.setdefault(leaf.path, "joined with a parameter that is left out")
        return tuple(_named(usable, self.leaves)), other


def trace(
    fun: Callable[..., Any], match: Match, params: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Program:
    """Traces `fun` as a function of the matching leaves of `params`."""
    parameters = flatten_parameters((params,), (0,))
    chosen = selected(parameters.leaves, match)
    leaves = tuple(parameters.leaves[i] for i in chosen)
    _check_floating(leaves)

    every = [jnp.asarray(array) for array in parameters.arrays]

    def of_chosen(arrays: Sequence[Any]) -> Any:
        merged = list(every)
        for position, array in zip(chosen, arrays, strict=True):
            merged[position] = array
        return fun(parameters.treedef.unflatten(merged)[0], *args, **kwargs)

    arrays = tuple(every[i] for i in chosen)
    jaxpr, shapes = _compat.trace(of_chosen, arrays)
    return Program(jaxpr, jax.tree_util.tree_structure(shapes), leaves, arrays)


def _other_uses(plan: Plan, leaves: Sequence[Leaf]) -> dict[str, str]:
    """The leaves that are not used in products, or not only in products, with the reason."""
    other = {leaves[i].path: reason for i, reason in plan.tapped.items()}
    other |= {leaves[i].path: "not used" for i in plan.unused}
    for block in plan.blocks:
        if block.kind != "dense":
            reason = f"used by {block.sites[0].primitive} at {block.sites[0].source}"
            other |= {leaves[i].path: reason for i in block.leaves}
    return other


def _named(blocks: Sequence[Block], leaves: Sequence[Leaf]) -> list[Weight]:
    """Weights in program order; parts of one leaf are numbered."""
    names = ["+".join(leaves[i].path for i in block.leaves) for block in blocks]
    numbered = [
        f"{name}[{names[:index].count(name)}]" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]
    return [
        Weight(name, block, leaves[block.leaves[0]].dtype)
        for name, block in zip(distinct(numbered), blocks, strict=True)
    ]


def _check_floating(leaves: Sequence[Leaf]) -> None:
    wrong = {leaf.path: str(leaf.dtype) for leaf in leaves if not leaf.trainable}
    if wrong:
        raise TypeError(f"match selects parameters that are not floating-point: {listing(wrong)}.")


def listing(reasons: Mapping[str, str]) -> str:
    """The parameters, and what there is to say about each, in one line."""
    return "; ".join(f"{path!r}: {reason}" for path, reason in reasons.items())
