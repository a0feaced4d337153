"""Flops of a traced program: every matrix product and convolution, scans multiplied out."""

from __future__ import annotations

import math
from typing import Any

from bk_jax import _compat
from bk_jax._compat import prims


def count_flops(jaxpr: Any) -> int:
    """Flops of the products in a jaxpr; a multiply-add counts as two, elementwise work as nothing.

    The most expensive branch of a `cond` counts; the body of a `while` counts once.

    >>> import jax, jax.numpy as jnp
    >>> count_flops(jax.make_jaxpr(jnp.dot)(jnp.ones((2, 3)), jnp.ones((3, 5))))
    60
    """
    inner, _ = _compat.split_closed(jaxpr)
    return sum(_equation_flops(eqn) for eqn in inner.eqns)


def product_flops(eqn: Any) -> int:
    """Flops of a matrix product or a convolution; 0 for any other equation."""
    if eqn.primitive is prims.dot_general_p:
        (contracted, _), _ = eqn.params["dimension_numbers"]
        depth = math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
        return 2 * math.prod(eqn.outvars[0].aval.shape) * depth
    if eqn.primitive is prims.conv_general_dilated_p:
        kernel = eqn.invars[1].aval.shape
        features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * math.prod(eqn.outvars[0].aval.shape) * math.prod(kernel) // max(features, 1)
    return 0


def _equation_flops(eqn: Any) -> int:
    inner = [count_flops(sub) for sub in _compat.inner_jaxprs(eqn)]
    if not inner:
        return product_flops(eqn)
    total = max(inner) if eqn.primitive is prims.cond_p else sum(inner)
    return total * eqn.params.get("length", 1) if eqn.primitive is prims.scan_p else total
