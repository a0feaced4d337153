"""Selection of parameters by their readable path, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bk_jax.paths import matching
from bk_jax.program.trace import Leaf

Match = str | Sequence[str] | Callable[[str, Any], bool]

# What libraries call an added term: Flax, Equinox, Haiku and its norms, plain code.
BIAS_NAMES = frozenset({"bias", "b", "beta", "offset", "shift"})


def biases(path: str, leaf: Any) -> bool:
    """Selects biases, including those of norms, by the last word of their path.

    >>> [biases(path, None) for path in ("dense/bias", "dense/kernel", "linear/b", "norm/offset")]
    [True, False, True, True]
    """
    return path.rsplit("/", maxsplit=1)[-1] in BIAS_NAMES


def selected(leaves: Sequence[Leaf], match: Match) -> tuple[int, ...]:
    """The positions of the matching leaves; raises if a pattern, or the function, finds none."""
    if callable(match):
        found = [i for i, leaf in enumerate(leaves) if match(leaf.path, leaf)]
        return tuple(_at_least_one(found, "the function given as match selects", leaves))
    patterns = [match] if isinstance(match, str) else list(match)
    paths = [leaf.path for leaf in leaves]
    hits = [
        _at_least_one(matching(pattern, paths), f"pattern {pattern!r} matches", leaves)
        for pattern in patterns
    ]
    return tuple(sorted({i for found in hits for i in found}))


def _at_least_one(found: list[int], what: str, leaves: Sequence[Leaf]) -> list[int]:
    if not found:
        paths = ", ".join(leaf.path for leaf in leaves) or "none"
        raise ValueError(f"{what} no parameter; paths are {paths}.")
    return found
