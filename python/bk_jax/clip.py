"""Clip: from squared norms of all parameters to one factor per example and clip group."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax.ops.clip_factor import clip_factor, safe_factor, total_norm
from bk_jax.prefixes import spread
from bk_jax.scaling import NOT_SCALED, Part, Scaling
from bk_jax.sharding.partition import Rule, Shards, sharded

ClippingFunction = Callable[[jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Clipping:
    """How gradients are clipped: one clip norm per group, the group of each leaf, and their scales."""

    clip_norms: tuple[Any, ...]
    groups: tuple[int, ...]
    function: str | ClippingFunction
    scaling: Scaling = NOT_SCALED

    @functools.cached_property
    def _parts(self) -> tuple[tuple[int, ...], tuple[Part, ...]]:
        return self.scaling.parts(self.groups, len(self.clip_norms))

    @property
    def parts_of_leaves(self) -> tuple[int, ...]:
        """For each leaf, the number of its part: norms of one part may be taken together."""
        return self._parts[0]

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts of all groups."""
        return self._parts[1]

    def sensitivity(self) -> Any:
        """The largest norm that one example's clipped gradient can have, over all groups."""
        if any(validate.concrete(norm, "l2_clip_norm") is None for norm in self.clip_norms):
            return jnp.sqrt(sum(jnp.square(norm) for norm in self.clip_norms))
        return math.sqrt(math.fsum(float(norm) ** 2 for norm in self.clip_norms))

    def factors(self, uppers: Sequence[jax.Array], group: int, is_padding: jax.Array) -> jax.Array:
        """Factors `[B]` of a group from upper bounds of the squared norms of its parts."""
        sq_norms = jnp.stack(list(uppers))
        clip_norm = jnp.asarray(self.clip_norms[group], sq_norms.dtype)
        if isinstance(self.function, str):
            return _factors(sq_norms, clip_norm, is_padding, function=self.function)
        norm = total_norm(sq_norms)
        factor = jnp.broadcast_to(self.function(norm), norm.shape).astype(norm.dtype)
        return safe_factor(factor, norm, clip_norm, is_padding)


@sharded(lambda *operands, function: Rule(("k b", "", "b"), ("b",), frozenset({"k"})))
def _factors(
    shards: Shards,
    sq_norms: jax.Array,
    clip_norm: jax.Array,
    is_padding: jax.Array,
    *,
    function: str,
) -> jax.Array:
    """Each device has the factors of its own examples."""
    factor, _ = clip_factor(sq_norms, clip_norm, is_padding, clipping=function)
    return factor


def make_clipping(
    l2_clip_norm: Any,
    function: Any,
    treedef: Any,
    trainable: Sequence[int],
    scaling: Scaling = NOT_SCALED,
) -> Clipping:
    """Spreads a scalar or a prefix tree of clip norms over the trainable leaves."""
    norms = jax.tree_util.tree_leaves(l2_clip_norm)
    groups = spread("l2_clip_norm", l2_clip_norm, treedef)
    return Clipping(tuple(norms), tuple(groups[i] for i in trainable), function, scaling)
