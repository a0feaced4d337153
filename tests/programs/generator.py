"""A strategy for random differentiable losses, written out as Python source.

A program is a list of statements over three sorts of names:

* *weights*: parameters and what views make of them, such as `w3 = w1.T`;
* *hidden values*, which depend on the example (`x`, and all that is computed from it);
* `ids`, the integers of the example.

Each statement either makes a new view of a weight, or uses one, together with a hidden value that
`fit` brings into the shape that is needed, and yields a new hidden value. Weights are drawn anew for
each statement, so sharing of every sort comes about by itself. Statements nest: a block of them may be
the body of `jit`, `scan`, `remat`, `cond`, `vmap`, `lax.map` or of a custom derivative.

The loss ends with a term in two parameters, the anchors, whose gradients are never small: they give
norms a natural scale, so that exact cancellation elsewhere is no relative error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from programs.choices import Drawn, Seeded
from programs.language import NAMES
from programs.writer import Writer

BATCH = 3
METHODS = [
    "bk",
    "ghost_clip",
    "fast_grad_clip",
    "bk_mix_ghost_clip",
    "bk_mix_opt",
    "mix_ghost_clip",
]
METHODS += ["opacus", "tf_privacy"]
SHAPES = [(4, 3), (3, 3), (2, 3, 4), (4, 4), (3, 2), (3,), (2, 2, 3), (6, 1), (), (2, 3, 2, 2)]
ID_TYPES = ["int32", "int64", "uint32", "uint8", "int8"]


@dataclasses.dataclass(frozen=True)
class Program:
    """Source of a function `loss(params, batch)` and what to call it with."""

    source: str
    shapes: dict[str, tuple[int, ...]]
    id_type: str
    seed: int
    options: dict[str, Any]

    def loss(self) -> Callable[..., Any]:
        names: dict[str, Any] = dict(NAMES)
        exec(compile(self.source, "<program>", "exec"), names)
        return names["loss"]

    def params(self) -> dict[str, Any]:
        """Parameters in two clip groups, each with its anchor."""
        rng = np.random.default_rng(self.seed)
        groups: dict[str, Any] = {"a": {"anchor": np.ones(2)}, "b": {"anchor": np.ones(2)}}
        for i, (name, shape) in enumerate(self.shapes.items()):
            groups["ab"[i % 2]][name] = rng.normal(size=shape)
        return groups

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Hidden values, and ids of which some repeat and some are out of range."""
        rng = np.random.default_rng(self.seed + 1)
        low = 0 if self.id_type.startswith("u") else -6
        return rng.normal(size=(BATCH, 5)), rng.integers(low, 6, (BATCH, 3)).astype(self.id_type)


@st.composite
def programs(draw: Any, statements: int = 5) -> Program:
    """Random programs as a strategy of Hypothesis."""
    return write_program(Drawn(draw), statements)


def program_of_seed(seed: int, statements: int = 5) -> Program:
    """The random program of that number."""
    return write_program(Seeded(seed), statements)


def write_program(choices: Drawn | Seeded, statements: int) -> Program:
    """A program of at most that many statements at the top level, at least half as many."""
    shapes = {f"p{i}": choices.one_of(*SHAPES) for i in range(choices.integer(1, 4))}
    id_type = choices.one_of(*ID_TYPES)
    writer = Writer(choices, shapes, id_type)
    for _ in range(choices.integer(statements // 2, statements)):
        writer.statement()
    lines = [f'    {name} = params["{"ab"[i % 2]}"]["{name}"]' for i, name in enumerate(shapes)]
    total = " + ".join(f"jnp.sum(jnp.sin({name}))" for name, _ in writer.hidden[-6:])
    source = "\n".join([
        "def loss(params, batch):", "    x, ids = batch", *lines, *writer.lines,
        '    anchors = jnp.sum(params["a"]["anchor"]) + jnp.sum(params["b"]["anchor"])',
        f"    return {total} + (2 + jnp.sin(x[0, 0])) * anchors",
    ])  # fmt: skip
    options = {"l2_clip_norm": choices.one_of(1.0, {"a": 0.7, "b": 30.0})}
    options["method"] = choices.one_of(*METHODS)
    return Program(source, shapes, id_type, choices.integer(0, 2**16), options)
