"""Units: when you owe privacy to people with several examples, the unit is the person.

    units = sampling.group_by_user(data, user_ids, max_examples=8)
    loss_fn = sampling.unit_loss(losses_fn)     # losses_fn(params, examples) -> [rows]
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, keep_batch_dim=False, **plan.options())

One unit takes the place of one example: it is sampled as a whole, its gradient is clipped as a
whole, and the plan's `num_examples` is the number of users. Everything else stays the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax.privacy import checks


class Units(NamedTuple):
    """Examples `[users, max_examples, ...]`, and which are padding, `[users, max_examples]`.

    >>> import numpy as np
    >>> units = Units(np.zeros((2, 3)), np.asarray([[False, False, True], [False, True, True]]))
    >>> (~units.is_padding).sum(axis=1).tolist()
    [2, 1]
    """

    examples: Any
    is_padding: Any


def group_by_user(data: Any, user_ids: Any, max_examples: int) -> Units:
    """Groups examples by user: one unit per user, in the order of sorted ids.

    A user with more than `max_examples` keeps the first ones; shuffle the data first to keep a
    random choice. A user with fewer is filled up with copies of their own first example, marked as
    padding.

    >>> units = group_by_user(np.asarray([10, 20, 30, 40]), ["b", "a", "b", "b"], max_examples=2)
    >>> units.examples
    array([[20, 20], [10, 30]])
    >>> units.is_padding
    array([[False,  True], [False, False]])
    """
    rows = checks.whole_number("max_examples", max_examples, 1)
    _, owners = np.unique(np.asarray(user_ids), return_inverse=True)
    _check_lengths(data, owners)
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners)
    starts = np.cumsum(counts) - counts
    places = np.arange(rows)[None, :]
    is_padding = places >= counts[:, None]
    index = order[starts[:, None] + np.where(is_padding, 0, places)]
    return Units(jax.tree_util.tree_map(lambda x: np.asarray(x)[index], data), is_padding)


def unit_loss(
    losses_fn: Callable[..., jax.Array], reduction: str = "mean"
) -> Callable[..., jax.Array]:
    """The loss of one unit, from the losses of a batch of examples.

    Args:
      losses_fn: `(params, examples, ...) -> [rows]`, ordinary batched code without the final mean.
      reduction: `"mean"` over the user's own examples, or their `"sum"`. Either is private, because
        the gradient of the whole unit is clipped.

    Returns:
      `loss_fn(params, unit, ...)` for `dp_value_and_grad(..., keep_batch_dim=False)`, where a unit
      is a `Units` of one user.

    >>> loss_fn = unit_loss(lambda w, x: w * x)
    >>> unit = Units(jnp.asarray([2.0, 4.0, 9.0]), jnp.asarray([False, False, True]))
    >>> float(loss_fn(1.0, unit))
    3.0
    """
    checks.choice("reduction", reduction, ("mean", "sum"))

    def loss_fn(params: Any, unit: Units, *others: Any) -> jax.Array:
        losses = losses_fn(params, unit.examples, *others)
        if losses.shape != unit.is_padding.shape:
            raise ValueError(
                f"losses_fn must return one loss for each of the {unit.is_padding.shape[0]} rows of a "
                f"unit, got shape {losses.shape}. Leave out the mean over the batch."
            )
        total = jnp.sum(jnp.where(unit.is_padding, 0, losses))
        return total / jnp.maximum(jnp.sum(~unit.is_padding), 1) if reduction == "mean" else total

    return loss_fn


def _check_lengths(data: Any, owners: np.ndarray[Any, Any]) -> None:
    if owners.ndim != 1 or owners.size == 0:
        raise ValueError(f"user_ids must hold one id per example, got shape {owners.shape}.")
    for leaf in jax.tree_util.tree_leaves(data):
        if np.shape(leaf)[:1] != owners.shape:
            raise ValueError(
                f"there are {owners.size} user_ids, but an array of the data has shape {np.shape(leaf)}."
            )
