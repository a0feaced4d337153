"""The book: one evaluation of the loss that keeps activations and opens taps.

`evaluate` runs the jaxpr of one example. At each site it records what the rule wants of the operands
and adds the site's tap to the result. Inside a `scan`, taps are sliced like scanned-over arrays and
records are stacked, so both carry one leading axis per enclosing scan, outermost first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bk_jax import _compat
from bk_jax.program.replay import Book, Replay
from bk_jax.program.sites import Path, Site


def tap_type(site: Site) -> jax.ShapeDtypeStruct:
    """Shape and dtype of a site's tap: one leading axis per enclosing scan."""
    lengths = tuple(axis.length for axis in site.axes)
    return jax.ShapeDtypeStruct((*lengths, *site.use.tap_shape), site.use.dtype)


def evaluate(
    jaxpr: Any, inputs: Sequence[Any], taps: Mapping[Path, jax.Array], sites: Mapping[Path, Site]
) -> tuple[list[Any], Book]:
    """Returns the outputs of the closed jaxpr and the record of every site."""

    def visit(path: Path, eqn: Any, operands: list[Any], tap: jax.Array) -> tuple[list[Any], Any]:
        use = sites[path].use
        (result,) = _compat.bind(eqn, operands)
        return [use.add_tap(result, tap)], use.record(operands)

    replay = Replay(visit, lambda path, depth: True, kind=lambda path: sites[path].use)
    return replay(jaxpr, inputs, taps)
