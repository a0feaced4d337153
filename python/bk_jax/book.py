"""The book: one evaluation of the loss that keeps activations and opens taps.

`evaluate` runs the jaxpr of one example. At each site it records what the rule wants of the operands
and adds the site's tap to the result; scopes that hold no site are evaluated as they stand, so their
`jit`, `custom_vjp` and control flow survive. Inside a `scan`, taps are sliced like scanned-over arrays
and records are stacked, so both carry one leading axis per enclosing scan, outermost first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.sites import Path, Site

Book = dict[Path, Any]


def zero_tap(site: Site) -> jax.Array:
    """A tap that changes nothing: one leading axis per enclosing scan."""
    lengths = tuple(axis.length for axis in site.axes)
    return jnp.zeros((*lengths, *site.use.tap_shape), site.use.dtype)


def evaluate(
    jaxpr: Any, inputs: Sequence[Any], taps: Mapping[Path, jax.Array], sites: Mapping[Path, Site]
) -> tuple[list[Any], Book]:
    """Returns the outputs of the closed jaxpr and the record of every site."""
    inner, consts = _compat.split_closed(jaxpr)
    return _scope(inner, consts, inputs, taps, sites, ())


def _scope(
    jaxpr: Any,
    consts: Sequence[Any],
    inputs: Sequence[Any],
    taps: Mapping[Path, jax.Array],
    sites: Mapping[Path, Site],
    path: Path,
) -> tuple[list[Any], Book]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))
    entered = {site[: len(path) + 1] for site in sites if site[: len(path)] == path}
    book: Book = {}
    for index, eqn in enumerate(jaxpr.eqns):
        operands = [v.val if _compat.is_literal(v) else env[v] for v in eqn.invars]
        here = (*path, index)
        with _compat.equation_context(eqn):
            if here in sites:
                outs = _site(eqn, operands, taps[here], sites[here], book)
            elif here in entered:
                outs, inner_book = _ENTER[eqn.primitive](eqn, operands, taps, sites, here)
                book.update(inner_book)
            else:
                outs = _compat.bind(eqn, operands)
        env.update(zip(eqn.outvars, outs, strict=True))
    outputs = [v.val if _compat.is_literal(v) else env[v] for v in jaxpr.outvars]
    return outputs, book


def _site(eqn: Any, operands: list[Any], tap: jax.Array, site: Site, book: Book) -> list[Any]:
    book[site.path] = site.use.record(operands)
    (result,) = _compat.bind(eqn, operands)
    return [site.use.add_tap(result, tap)]


def _below(mapping: Mapping[Path, Any], path: Path) -> dict[Path, Any]:
    return {key: value for key, value in mapping.items() if key[: len(path)] == path}


def _enter_jit(
    eqn: Any, operands: list[Any], taps: Mapping[Path, Any], sites: Mapping[Path, Site], path: Path
) -> tuple[list[Any], Book]:
    inner, consts = _compat.split_closed(eqn.params["jaxpr"])
    return _scope(inner, consts, operands, taps, sites, path)


def _enter_remat(
    eqn: Any, operands: list[Any], taps: Mapping[Path, Any], sites: Mapping[Path, Site], path: Path
) -> tuple[list[Any], Book]:
    inner, consts = _compat.split_closed(eqn.params["jaxpr"])

    def body(operands: list[Any], taps: dict[Path, Any]) -> tuple[list[Any], Book]:
        return _scope(inner, consts, operands, taps, sites, path)

    again = jax.checkpoint(body, prevent_cse=eqn.params["prevent_cse"], policy=eqn.params["policy"])
    return again(operands, _below(taps, path))


def _enter_scan(
    eqn: Any, operands: list[Any], taps: Mapping[Path, Any], sites: Mapping[Path, Site], path: Path
) -> tuple[list[Any], Book]:
    params = eqn.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    scan_consts = operands[:num_consts]
    carry, xs = operands[num_consts:][:num_carry], operands[num_consts + num_carry :]
    inner, consts = _compat.split_closed(params["jaxpr"])

    def body(carry: list[Any], slices: Any) -> tuple[list[Any], Any]:
        xs, taps = slices
        inputs = [*scan_consts, *carry, *xs]
        outs, book = _scope(inner, consts, inputs, taps, sites, path)
        return outs[:num_carry], (outs[num_carry:], book)

    carry, (ys, book) = jax.lax.scan(
        body,
        carry,
        (xs, _below(taps, path)),
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *ys], book


_ENTER = {
    prims.jit_p: _enter_jit,
    prims.remat_p: _enter_remat,
    prims.scan_p: _enter_scan,
}
