"""What a program does over and over is traced once and copied from then on.

The thousand layers of a network are a thousand times the same few steps. A function that JAX has seen
with operands of the same types is not traced, batched and differentiated again: its equations are
copied into the program, under the names and the source line of the caller. The program is the same.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np

from bk_jax import _compat

Function = TypeVar("Function", bound=Callable[..., Any])
WORTH_IT = 4  # equations of a kind: to trace a function takes as long as a few of them


def repeated(*static: str, state: Callable[[], Hashable] = tuple) -> Callable[[Function], Function]:
    """A function of arrays that is copied where a program is written down, and called elsewhere.

    Outside of `jit` its steps run one by one as ever: compiled together they would round differently.

    Args:
      *static: names of arguments that are no arrays.
      state: what the function depends on besides its arguments.
    """

    def decorate(function: Function) -> Function:
        @functools.partial(jax.jit, static_argnums=0, static_argnames=static, inline=True)
        def copied(state: Hashable, *arrays: Any, **named: Any) -> Any:
            del state
            return function(*arrays, **named)

        @functools.wraps(function)
        def run(*arrays: Any, **named: Any) -> Any:
            if _compat.transformations() is None:
                return function(*arrays, **named)
            return copied(state(), *arrays, **named)

        return cast("Function", run)

    return decorate


class RepeatedEquations:
    """The equations of a jaxpr that occur several times, each kind as a function that is copied.

    Only where equations are transformed, such as differentiated: to write one down takes no longer
    than to copy it.
    """

    def __init__(self, equations: Sequence[Any]) -> None:
        self._kinds = [kind_of(eqn) for eqn in equations] if _compat.transformations() else []
        self._counts = Counter(kind for kind in self._kinds if kind is not None)
        self._functions: dict[Hashable, Callable[..., Any]] = {}

    def function(self, number: int, compute: Callable[..., Any], own: Hashable = ()) -> Any:
        """`compute`, or that of an earlier equation of the same kind and with an equal `own`.

        What a function computes must follow from the kind of its equation and from `own`; if that can
        not be said, `own` is `None`.
        """
        kind = self._kinds[number] if self._kinds else None
        if kind is None or own is None or self._counts[kind] < WORTH_IT:
            return compute
        if (kind, own) not in self._functions:
            self._functions[kind, own] = jax.jit(compute, inline=True)
        return self._functions[kind, own]


def kind_of(eqn: Any) -> Hashable:
    """Equal for equations that compute the same from operands of the same types; `None`: unknown."""
    types = [
        (v.aval, np.asarray(v.val).tobytes()) if _compat.is_literal(v) else v.aval
        for v in eqn.invars
    ]
    kind = (eqn.primitive, *sorted(eqn.params.items()), *types)
    try:
        hash(kind)
    except TypeError:
        return None
    return kind
