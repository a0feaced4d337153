"""Scalings: functions of a gradient that multiply each leaf by something known, and nothing else.

    transform(g)_k = s_k * g_k

Clipping after such a function needs no per-example gradient of the other leaves. The gradient of

    loss(p + s * (q - p))    with respect to q, at q = p

is `s` times that of the loss, and the loss is the same: so the parameters are scaled in place of the
gradients. Whether a function is a scaling is read off its program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat

Scales = list[Any]  # for each leaf: None where it is left as it is, or the array that multiplies it


def find_scales(transform: Callable[[Any], Any], grads: Any) -> Scales | None:
    """What a function multiplies the leaves of a tree of arrays by; `None` for any other function."""
    shapes = jax.eval_shape(lambda tree: jax.tree_util.tree_map(jnp.asarray, tree), grads)
    jaxpr, out = jax.make_jaxpr(transform, return_shape=True)(shapes)
    structures: list[Any] = [jax.tree_util.tree_structure(tree) for tree in (out, shapes)]
    if structures[0] != structures[1]:
        return None
    program, _ = _compat.split_closed(jaxpr)
    sources = _sources(program)
    ends = [None if _compat.is_literal(var) else sources.get(var) for var in program.outvars]
    if ends != list(range(len(program.invars))):
        return None
    ones = jax.tree_util.tree_map(lambda x: jnp.ones(x.shape, x.dtype), shapes)
    scales = jax.tree_util.tree_leaves(transform(ones))
    same = [end is start for end, start in zip(program.outvars, program.invars, strict=True)]
    return [None if kept else scale for kept, scale in zip(same, scales, strict=True)]


def _sources(program: Any) -> dict[Any, int | None]:
    """The leaf that a value is a multiple of; `None` for one that depends on leaves otherwise."""
    sources: dict[Any, int | None] = {var: i for i, var in enumerate(program.invars)}
    for eqn in program.eqns:
        inputs = [sources[v] for v in eqn.invars if not _compat.is_literal(v) and v in sources]
        if inputs:
            multiple = inputs[0] if len(inputs) == 1 and _multiplies(eqn, sources) else None
            sources.update(dict.fromkeys(eqn.outvars, multiple))
    return sources


def _multiplies(eqn: Any, sources: dict[Any, int | None]) -> bool:
    """Whether an equation with one operand that depends on leaves multiplies it, in its shape."""
    if eqn.primitive is _compat.prims.div_p:
        divided = eqn.invars[0]
        return not _compat.is_literal(divided) and divided in sources
    return eqn.primitive in (_compat.prims.mul_p, _compat.prims.neg_p)


def scaled(params: Any, scales: Scales) -> Any:
    """The parameters, with gradients multiplied by `scales`."""
    leaves, treedef = jax.tree_util.tree_flatten(params)
    changed = [x if s is None else _scaled_leaf(x, s) for x, s in zip(leaves, scales, strict=True)]
    return jax.tree_util.tree_unflatten(treedef, changed)


def _scaled_leaf(q: jax.Array, scale: jax.Array) -> jax.Array:
    p = jax.lax.stop_gradient(q)
    return p + (scale * (q - p)).astype(q.dtype)
