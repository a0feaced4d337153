"""Routes of a plan, without what `explain` tells besides: that would trace the backward pass."""

from __future__ import annotations

from typing import Any

import jax

from bk_jax.planning.plan import Plan
from bk_jax.program.call import read_call
from bk_jax.program.trace import Traced, arrays_of, merge_arrays


def routes_of(grad_fn: Any, *args: Any) -> set[tuple[str, str]]:
    """Paths of parameters and the routes that they take, each pair once."""
    found: list[tuple[Traced, Plan]] = []

    def prepare(arrays: Any) -> None:
        call = read_call(grad_fn.loss_fn, grad_fn.signature, merge_arrays(args, arrays), {})
        found.append(grad_fn._plan(call, grad_fn._clipping(call.parameters)))

    jax.eval_shape(prepare, arrays_of(args))
    ((traced, plan),) = found
    routes = [(leaf, block.route) for block in plan.blocks for leaf in block.leaves]
    routes += [(leaf, "leaf") for leaf in plan.tapped] + [(leaf, "none") for leaf in plan.unused]
    return {(traced.leaves[leaf].path, route) for leaf, route in routes}
