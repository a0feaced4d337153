"""Paths: how a person finds an array in its tree, such as `"encoder/kernel"`. No two are the same.

    {"a": {"b": x}, "a/b": y}       a/b, 'a/b'

A key is quoted where it would be taken for several, and only there: libraries use slashes in keys. What
Flax puts around an array (`.value`) has no part in its path, so `"*/kernel"` means the same everywhere.
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Sequence
from typing import Any

import jax

from bk_jax.boxes import boxes


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf of a tree, in order.

    >>> leaf_names({"dense": {"bias": 0, "kernel": 1}, "layers": [2]})
    ['dense/bias', 'dense/kernel', 'layers/0']
    """
    words = _words(tree)
    names = ["/".join(each) for each in words]
    count = collections.Counter(names)
    return distinct(
        [
            name if count[name] == 1 else "/".join(map(_quoted, each))
            for name, each in zip(names, words, strict=True)
        ]
    )


def _words(tree: Any) -> list[list[str]]:
    """The keys on the way to every leaf, without the entries of boxes around arrays."""
    with_paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    boxed = boxes(tree)
    return [
        [
            jax.tree_util.keystr((k,), simple=True)
            for i, k in enumerate(path)
            if path[:i] not in boxed
        ]
        for path, _ in with_paths
    ]


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
