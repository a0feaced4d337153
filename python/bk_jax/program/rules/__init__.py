"""Rules: for each primitive that is linear in a parameter, how to tap it and what to book.

A rule looks at one equation, the number of its parameter operand and the views that lead there. It
returns a `Use` and the views up to where the use begins (a rule may take trailing transposes into
itself), or `None` when the equation is of a form it does not know. It knows nothing of scans, of
examples or of other equations. Its arrays are those of one example: `record` gives what to keep of the
operands, `add_tap` adds a perturbation of shape `tap_shape` to the result, and the cotangent of that
perturbation is the output gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bk_jax._compat import prims
from bk_jax.program.rules import conv, dense, lookup
from bk_jax.program.rules.conv import ConvUse
from bk_jax.program.rules.dense import DenseUse
from bk_jax.program.rules.lookup import LookupUse
from bk_jax.program.views import View

Use = DenseUse | LookupUse | ConvUse
Views = tuple[View, ...]
UseRule = Callable[[Any, int, Views], "tuple[Use, Views] | None"]

USE_RULES: dict[Any, UseRule] = {
    prims.dot_general_p: dense.rule,
    prims.conv_general_dilated_p: conv.rule,
    prims.gather_p: lookup.gather_rule,
    prims.dynamic_slice_p: lookup.dynamic_slice_rule,
}

__all__ = ["USE_RULES", "ConvUse", "DenseUse", "LookupUse", "Use", "UseRule"]
