"""Paths: how a person finds an array in its tree, such as `"encoder/kernel"`. No two are the same.

    {"a": {"b": x}, "a/b": y}       a/b, 'a/b'

A key is quoted where it would be taken for several, and only there: libraries use slashes in keys.
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Sequence
from typing import Any

import jax


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf of a tree, in order.

    >>> leaf_names({"dense": {"bias": 0, "kernel": 1}, "layers": [2]})
    ['dense/bias', 'dense/kernel', 'layers/0']
    """
    with_paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    words = [[jax.tree_util.keystr((key,), simple=True) for key in path] for path, _ in with_paths]
    names = ["/".join(each) for each in words]
    count = collections.Counter(names)
    return distinct(
        [
            name if count[name] == 1 else "/".join(map(_quoted, each))
            for name, each in zip(names, words, strict=True)
        ]
    )


def _quoted(key: str) -> str:
    return repr(key) if "/" in key or not key else key


def distinct(names: Sequence[str]) -> list[str]:
    """The names, those that came before with a number.

    >>> distinct(["w", "b", "w"])
    ['w', 'b', 'w (2)']
    """
    taken = set(names)
    seen: set[str] = set()
    out = []
    for name in names:
        new, number = name, 1
        while new in seen or (number > 1 and new in taken):
            number += 1
            new = f"{name} ({number})"
        seen.add(new)
        out.append(new)
    return out


def matching(pattern: str, paths: Sequence[str]) -> list[int]:
    """The positions of the paths that match a pattern as in `fnmatch`, or are the pattern itself."""
    return [
        i for i, path in enumerate(paths) if path == pattern or fnmatch.fnmatchcase(path, pattern)
    ]
