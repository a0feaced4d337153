"""Training some parameters of a model: a tree in two parts, and a loss of one of them.

Both parts have the structure of the whole, with `None` where the other part has the array.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax.peft.select import Match, selected
from bk_jax.program.shared_data import sharing
from bk_jax.program.trace import flatten_parameters


def partition(params: Any, match: Match) -> tuple[Any, Any]:
    """Splits parameters into `(trainable, frozen)`.

    Args:
      params: a tree of arrays.
      match: what is trainable: a pattern of paths as in `fnmatch` (`"*head*"`), several patterns,
        or a function `match(path, leaf) -> bool` such as `bk_jax.peft.biases`; `leaf` has `path`,
        `shape` and `dtype`.

    >>> params = {"up": {"kernel": 1.0, "bias": 2.0}, "head": {"kernel": 3.0, "bias": 4.0}}
    >>> trainable, frozen = partition(params, "head/*")
    >>> trainable
    {'head': {'bias': 4.0, 'kernel': 3.0}, 'up': {'bias': None, 'kernel': None}}
    >>> combine(trainable, frozen) == params
    True
    """
    parameters = flatten_parameters((params,), (0,))
    chosen = set(selected(parameters.leaves, match))
    trainable = [x if i in chosen else None for i, x in enumerate(parameters.arrays)]
    frozen = [None if i in chosen else x for i, x in enumerate(parameters.arrays)]
    unflatten = parameters.treedef.unflatten
    return unflatten(trainable)[0], unflatten(frozen)[0]


def combine(trainable: Any, frozen: Any) -> Any:
    """Puts back together what `partition` split.

    >>> import jax.numpy as jnp
    >>> params = {"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))}
    >>> trainable, frozen = partition(params, "bias")
    >>> sorted(combine(trainable, frozen))
    ['bias', 'kernel']
    """

    def pick(path: Any, one: Any, other: Any) -> Any:
        if one is not None and other is not None:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(
                f"parameter {name!r} is in both parts; combine takes the two results of partition."
            )
        return other if one is None else one

    return jax.tree_util.tree_map_with_path(
        pick, trainable, frozen, is_leaf=lambda value: value is None
    )


def with_frozen(loss_fn: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of the trainable part, with the frozen part as the keyword `frozen`.

    All other arguments keep their places, so the options of `dp_value_and_grad` need no change.
    Pass `frozen` as an argument of your jitted step, so that it is not a constant of the compiled
    program: other values of the same shapes then need no recompilation.

    >>> import bk_jax, jax.numpy as jnp
    >>> def loss_fn(params, x):
    ...     return jnp.sum((x @ params["kernel"] + params["bias"]) ** 2)
    >>> params = {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}
    >>> trainable, frozen = partition(params, "bias")
    >>> grad_fn = bk_jax.clipped_value_and_grad(with_frozen(loss_fn), l2_clip_norm=100.0)
    >>> _, grads = jax.jit(grad_fn)(trainable, jnp.ones((4, 2)), frozen=frozen)
    >>> print(grads)
    {'bias': Array([16., 16., 16.], dtype=float32), 'kernel': None}
    """

    @functools.wraps(loss_fn)
    def loss_of_part(trainable: Any, *args: Any, frozen: Any, **kwargs: Any) -> Any:
        params = jax.tree_util.tree_map(jnp.asarray, combine(trainable, frozen))
        return loss_fn(params, *args, **kwargs)

    return sharing(loss_of_part, "frozen")
