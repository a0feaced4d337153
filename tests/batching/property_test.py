"""Random programs, batched in place and by `jax.vmap`: losses and gradients of each example, in float64.

The generator is that of `tests/programs`. Its programs run in two languages: in their own, and in one
whose functions map small integers to small integers, where both ways must give the same numbers in
whatever order they add. Each program also runs with an example that is not finite, which no other
example may notice.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from programs import language
from programs.generator import Program, programs
from support.tolerance import assert_bits_equal, assert_within, eps

from batching.same import ABSENT, EXTRA, batched, in_front

SIZES = st.sampled_from([0, 1, 2, 5])
# A sum of n terms errs by n roundings at most: values have up to 160 elements and weights up to 64,
# and the functions between sums have slopes of about 1.
ROUNDINGS = 64 * 160


def cut(x: Any, *_: Any) -> jax.Array:
    """Integers of at most 3, with slope 0 or 1; ids stay."""
    x = jnp.asarray(x)
    return lax.clamp(-3.0, x, 3.0) if jnp.issubdtype(x.dtype, jnp.floating) else x


class Instead:
    """A module with some of its functions replaced."""

    def __init__(self, module: types.ModuleType, **names: Any) -> None:
        self.module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)


EXACT = {
    **language.NAMES,
    "jax": Instead(jax, nn=Instead(jax.nn, silu=cut, softmax=cut)),
    "jnp": Instead(jnp, tanh=cut, sin=cut, exp=cut, mean=jnp.sum),
    "fit": lambda x, shape: cut(language.fit(x, shape)),
}


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float64)


def reals(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape)


def arguments(program: Program, size: int, draw: Callable[..., np.ndarray]) -> list[np.ndarray]:
    """The leaves of the parameters, then what each example has: numbers, and ids."""
    rng = np.random.default_rng(program.seed)
    leaves = [draw(rng, *leaf.shape) for leaf in jax.tree.leaves(program.params())]
    low = 0 if program.id_type.startswith("u") else -6
    ids = rng.integers(low, 6, (size, 1, 3)).astype(program.id_type)
    return [*leaves, draw(rng, size, 1, 5), ids]


def loss_and_gradients(program: Program, names: dict[str, Any]) -> Callable[..., Any]:
    """Of one example, as a function of arrays."""
    names = dict(names)
    exec(compile(program.source, "<program>", "exec"), names)
    treedef = jax.tree.structure(program.params())

    def loss(leaves: tuple[Any, ...], example: tuple[Any, ...]) -> Any:
        return names["loss"](treedef.unflatten(leaves), example)

    return lambda *arrays: jax.value_and_grad(loss)(arrays[:-2], arrays[-2:])


def both_ways(
    program: Program, size: int, names: dict[str, Any]
) -> Callable[[list[np.ndarray]], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """A function that yields each result by both ways, examples in front; compiled once."""
    function = loss_and_gradients(program, names)
    places = [*[ABSENT] * len(jax.tree.leaves(program.params())), EXTRA, EXTRA]
    run, _, found = batched(function, places, size)
    mapped = jax.vmap(function, [None if place == ABSENT else 0 for place in places])
    compiled = jax.jit(lambda *arrays: (run(*arrays), jax.tree.leaves(mapped(*arrays))))

    def results(arrays: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        ours, theirs = compiled(*arrays)
        for out, place, expected in zip(ours, found, theirs, strict=True):
            yield in_front(out, place, size), np.asarray(expected)

    return results


def check(program: Program, size: int, exact: bool) -> None:
    """Both ways agree, and examples do not see each other."""
    draw, names = (integers, EXACT) if exact else (reals, language.NAMES)
    results = both_ways(program, size, names)
    arrays = arguments(program, size, draw)
    clean = list(results(arrays))
    for got, expected in clean:
        scale = eps(np.float64) * np.max(np.abs(expected), initial=1)
        if exact:  # as long as numbers are below 2^52 this is equality: integers differ by 1
            assert_within(got, expected, scale, "exact")
        else:
            assert_within(got, expected, ROUNDINGS * scale, "real")
    if size < 2:
        return
    others = np.arange(size) != 1
    for poison in (np.nan, np.inf):
        *leaves, x, ids = arrays
        x = np.where(others[:, None, None], x, poison)
        for (got, _), (before, _) in zip(results([*leaves, x, ids]), clean, strict=True):
            assert_bits_equal(got[others], before[others], f"beside an example of {poison}")


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "real"])
@settings(max_examples=25, derandomize=True)
@given(program=programs(statements=4), size=SIZES)
def test_random_programs(x64, exact, program, size):
    try:
        check(program, size, exact)
    except Exception as error:
        error.add_note(f"{size} examples\n{program.source}\n{program}")
        raise
