"""The interpreter: one example's program, evaluated for all examples with the batch where it stands.

Each equation that has to do with the examples goes to the rule of its primitive; where a rule has
nothing to say, the equation alone goes through JAX's own batching, on an extra axis. Both give what
`jax.vmap` gives; only the place of the axis differs, and with it what XLA makes of the program: the
batch is where the plain step has it.

The program is differentiated before it is batched, not after, so custom derivatives are equations
like any other by then, and there is nothing more to differentiate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.program.batching import devices, elementwise, indexing, products, reductions, shapes
from bk_jax.program.batching.scopes import SCOPES
from bk_jax.program.batching.value import EXAMPLES_FIRST, Place, Value, at, settled

Rule = Callable[[Any, Sequence[Value], int], "list[Value] | None"]


class Fallback(NamedTuple):
    """An equation that went through JAX's own batching."""

    primitive: str
    source: str


@dataclasses.dataclass
class Batching:
    """Evaluates jaxprs of one example for `size` examples.

    Attributes:
      size: the number of examples.
      fallbacks: the equations that no rule batched in place.
      calls: programs that are called several times, batched once.
      around: the equations whose programs are being evaluated, outermost first.
    """

    size: int
    fallbacks: list[Fallback] = dataclasses.field(default_factory=list)
    calls: dict[Any, Any] = dataclasses.field(default_factory=dict)
    around: list[Any] = dataclasses.field(default_factory=list)

    def evaluate(self, closed_jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a closed jaxpr."""
        jaxpr, consts = _compat.split_closed(closed_jaxpr)
        env = {v: Value(c) for v, c in zip(jaxpr.constvars, consts, strict=True)}
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Value:
            return Value(_compat.constant(atom)) if _compat.is_literal(atom) else env[atom]

        for eqn in jaxpr.eqns:
            with _compat.equation_context(eqn):
                outs = self.equation(eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, eqn: Any, operands: Sequence[Value]) -> list[Value]:
        """One equation, by the first way that is open to it."""
        if not any(operand.is_batched for operand in operands):
            return [Value(out) for out in _compat.bind(eqn, [v.array for v in operands])]
        outs = self._entered(eqn, operands)
        if outs is None and eqn.primitive in RULES:
            outs = RULES[eqn.primitive](eqn, operands, self.size)
        return self.by_jax(eqn, operands) if outs is None else outs

    def _entered(self, eqn: Any, operands: Sequence[Value]) -> list[Value] | None:
        """The results of an equation with a program inside that can be entered."""
        enter = SCOPES.get(eqn.primitive)
        if enter is None:
            return None
        self.around.append(eqn)
        try:
            return enter(self, eqn, operands)
        finally:
            self.around.pop()

    def by_jax(self, eqn: Any, operands: Sequence[Value]) -> list[Value]:
        """One equation by JAX's own rule, on an extra axis."""
        lines = (_compat.source_line(each) for each in (eqn, *reversed(self.around)))
        self.fallbacks.append(Fallback(str(eqn.primitive), next(filter(None, lines), "")))
        batch = self._one_by_one if _makes_groups(eqn, operands) else self._by_vmap
        outs = batch(lambda *arrays: _compat.bind(eqn, arrays), operands)
        return [settled(out) for out in outs]

    def by_vmap(self, closed_jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a closed jaxpr by `jax.vmap`, whose rules know axes that types are cut by."""
        self.fallbacks.append(Fallback("all", "a mesh with explicit axes"))
        return self._by_vmap(_compat.jaxpr_as_fun(closed_jaxpr), inputs)

    def _by_vmap(self, function: Any, operands: Sequence[Value]) -> list[Value]:
        given = [_with_extra_axis(value, self.size) for value in operands]
        axes = [None if v.place.axis is None else int(v.place.axis) for v in given]
        outs = jax.vmap(function, in_axes=axes)(*(v.array for v in given))
        return [Value(out, EXAMPLES_FIRST) for out in outs]

    def _one_by_one(self, function: Any, operands: Sequence[Value]) -> list[Value]:
        batched = {
            i: at(v, EXAMPLES_FIRST, self.size).array
            for i, v in enumerate(operands)
            if v.is_batched
        }

        def one(example: dict[int, Any]) -> Any:
            return function(*(example.get(i, value.array) for i, value in enumerate(operands)))

        return [Value(out, EXAMPLES_FIRST) for out in jax.lax.map(one, batched)]


def _makes_groups(eqn: Any, operands: Sequence[Value]) -> bool:
    """Whether `vmap` might make examples the groups of a convolution in float64.

    XLA has no such convolution on a CPU. It multiplies by zeros instead, so a NaN of one example
    would reach the others.
    """
    if eqn.primitive is prims.conv_general_dilated_p:
        return all(v.is_batched for v in operands) and operands[0].array.dtype == np.float64
    inner = (e for jaxpr in _compat.inner_jaxprs(eqn) for e in _compat.equations(jaxpr))
    return any(
        e.primitive is prims.conv_general_dilated_p and e.outvars[0].aval.dtype == np.float64
        for e in inner
    )


def _with_extra_axis(value: Value, size: int) -> Value:
    """An axis that has grown is an extra one in front of an axis of size 1."""
    return value if value.grown is None else at(value, Place(value.grown, extra=True), size)


def _table() -> dict[Any, Rule]:
    named: dict[str, Rule] = dict.fromkeys(elementwise.NAMES, elementwise.elementwise)
    for module in (shapes, reductions, products, indexing, devices):
        named.update(module.RULES)
    found = ((_compat.primitive(name), rule) for name, rule in named.items())
    return {primitive: rule for primitive, rule in found if primitive is not None}


RULES = _table()
