"""The names of a random program: what is in scope, of which shape, and how lines are added."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from programs.choices import Drawn, Seeded
from programs.language import NAMES

MAX_HIDDEN = 160  # elements
Value = tuple[str, tuple[int, ...]]


class Scope:
    """Knows the shape of every name, draws from them, and writes lines that make new ones."""

    def __init__(
        self, choices: Drawn | Seeded, shapes: dict[str, tuple[int, ...]], id_type: str
    ) -> None:
        self.one_of, self.integer, self.permuted = choices.one_of, choices.integer, choices.permuted
        self.lines: list[str] = []
        self.indent = "    "
        self.depth = 0
        self.count = 0
        self.id_type = id_type
        self.has_ids = True
        self.weights: list[Value] = list(shapes.items())
        self.unused = list(self.weights)
        self.hidden: list[Value] = [("x", (1, 5))]

    # --- drawing ---

    def a_weight(self, at_least: int = 0) -> Value:
        """A weight with that many dimensions or more.

        Likeliest are the newest views, and parameters that have no use yet: many uses of one
        parameter in different ways all end at the leaf tap.
        """
        unused = [weight for weight in self.unused if weight in self.weights]  # in scope
        name, shape = self.one_of(*self.weights, *2 * self.weights[-2:], *3 * unused)
        self.unused = [other for other in self.unused if other[0] != name]
        if len(shape) < at_least:
            shape = (*[1] * (at_least - len(shape)), *shape)
            name = f"{name}.reshape({shape})"
        return name, shape

    def a_hidden(self, shape: tuple[int, ...]) -> str:
        name, _ = self.one_of(*self.hidden[-4:])
        return f"fit({name}, {shape})"

    # --- writing ---

    def shape_of(self, expression: str) -> tuple[int, ...]:
        known = {name: np.zeros(shape) for name, shape in (*self.weights, *self.hidden)}
        ids = {"ids": np.zeros((1, 3), self.id_type)}

        def evaluate(values: dict[str, Any]) -> Any:
            return eval(expression, dict(NAMES), values)

        return tuple(jax.eval_shape(evaluate, {**known, **ids}).shape)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def known(self, name: str, shape: tuple[int, ...], expression: str) -> None:
        """A hidden value whose shape is known without evaluation."""
        self.write(f"{name} = {expression}")
        self.hidden.append((name, shape))

    def result(self, expression: str) -> None:
        """A new hidden value, kept small in number and in size."""
        shape = self.shape_of(expression)
        if math.prod(shape) == 0:
            return
        if math.prod(shape) > MAX_HIDDEN:
            expression, shape = f"fit({expression}, (3, 5))", (3, 5)
        name = self.fresh("h")
        function = self.one_of("jnp.tanh", "jnp.sin", "jax.nn.silu", "")
        self.write(f"{name} = {function}({expression})")
        self.hidden.append((name, shape))

    def use(self, write: Callable[[str], str], shape: tuple[int, ...]) -> None:
        """A use with a hidden value of that shape; often another one of the same form."""
        for _ in range(self.one_of(1, 1, 2)):
            self.result(write(self.a_hidden(shape)))
