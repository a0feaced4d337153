"""The private update of parameters: noise, division and optimizer, in one pass where possible."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax._extras import require
from bk_jax.grad_fn import ClippedSums, DPValueAndGrad
from bk_jax.noise import own_words
from bk_jax.ops.chacha import KEY_WORDS
from bk_jax.ops.noisy_update import Leaf, noisy_update
from bk_jax.optimizers import Recipe, recipe_of
from bk_jax.sharding.partition import is_cut


def private_update(grad_fn: DPValueAndGrad, optimizer: Any) -> PrivateUpdate:
    """A function `update(sums, opt_state, params, key=key)` that returns new `(params, opt_state)`.

    It computes what these lines compute, to rounding, and draws the same noise from the same key:

        grads = grad_fn.release(sums, key, like=params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)

    Each of them is a pass over memory. On a CPU all of it is one custom call that reads sums, parameters
    and moments once and writes the new ones in place, if you donate them to `jit`. That takes:

    | what | for one pass |
    |---|---|
    | `optimizer` | one of `bk_jax.optimizers`, with the options that its functions name |
    | parameters, sums, moments | float32 |
    | `dtype` of `grad_fn` | not given, or float32 |
    | devices | one: neither `shard_map` nor several devices in the process |
    | platform | a CPU with the native library; elsewhere XLA compiles the same arithmetic |

    Everything else is made in steps, with the lines above: any transformation of optax works.

    `update.clipped_sums` is `grad_fn.clipped_sums`, but where the update takes one pass, large sums are
    made one after the other, so that each is used and its memory free before the next exists.

    Args:
      grad_fn: from `dp_value_and_grad`. Its noise multiplier, clip norms and `normalize_by` count; keys
        are checked as by `release`, and one key must not be used twice.
      optimizer: an `optax.GradientTransformation`.

    >>> import bk_jax, functools
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum(), noise_multiplier=0.5)
    >>> update = private_update(grad_fn, bk_jax.optimizers.sgd(0.1))
    >>> @functools.partial(jax.jit, donate_argnums=(0, 1))
    ... def train_step(params, opt_state, batch, key):
    ...     found = update.clipped_sums(params, batch)
    ...     return update(found.sums, opt_state, params, key=key)
    >>> params = jnp.zeros(3)
    >>> opt_state = bk_jax.optimizers.sgd(0.1).init(params)
    >>> params, opt_state = train_step(params, opt_state, jnp.ones((4, 3)), bk_jax.random.key())
    """
    _check_options(grad_fn, optimizer)
    return PrivateUpdate(grad_fn, optimizer)


@dataclasses.dataclass(frozen=True)
class PrivateUpdate:
    """The function that `private_update` returns."""

    grad_fn: DPValueAndGrad
    optimizer: Any

    def __call__(
        self, sums: Any, opt_state: Any, params: Any, *, key: Any = None
    ) -> tuple[Any, Any]:
        """New parameters and a new state of the optimizer; see `private_update`."""
        _check_trees(sums, params)
        manual = self.grad_fn.check_release(key)
        recipe = recipe_of(self.optimizer)
        if recipe is not None and not manual and not is_cut():
            trees = [sums, params, *recipe.moments(opt_state)]
            if _is_float32(self.grad_fn, recipe, trees) and _have_one_structure(trees):
                return _in_one_pass(self.grad_fn, recipe, trees, opt_state, key)
        return _in_steps(self.grad_fn, self.optimizer, sums, opt_state, params, key)

    def clipped_sums(
        self, *args: Any, is_padding_example: Any = None, **kwargs: Any
    ) -> ClippedSums:
        """The sums of `grad_fn.clipped_sums`, each ready to be used before the next. NOT private."""
        in_order = recipe_of(self.optimizer) is not None
        return self.grad_fn.sums_of(args, kwargs, is_padding_example, in_order=in_order)


def _in_steps(
    grad_fn: DPValueAndGrad, optimizer: Any, sums: Any, opt_state: Any, params: Any, key: Any
) -> tuple[Any, Any]:
    optax = require("optax", "optax")
    grads = grad_fn.release(sums, key, like=params)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state


def _in_one_pass(
    grad_fn: DPValueAndGrad, recipe: Recipe, trees: Sequence[Any], opt_state: Any, key: Any
) -> tuple[Any, Any]:
    """`trees` are the sums, the parameters and the moments."""
    treedef = jax.tree_util.tree_structure(trees[1])
    arrays = [[jnp.asarray(x) for x in jax.tree_util.tree_leaves(tree)] for tree in trees]
    totals = arrays[0]
    leaves = [Leaf(total, x, tuple(m)) for total, x, *m in zip(*arrays, strict=True)]
    words = jnp.zeros(KEY_WORDS, jnp.uint32) if key is None else own_words(key, totals)
    stddev = 0.0 if key is None else grad_fn.noise_stddev()
    numbers = recipe.numbers(opt_state, stddev, grad_fn.normalize_by)
    with jax.named_scope("bk.update"):
        updated = noisy_update(leaves, words, numbers, optimizer=recipe.kind)
    params, *moments = [
        jax.tree_util.tree_unflatten(treedef, [row[k] for row in updated])
        for k in range(len(trees) - 1)
    ]
    return params, recipe.following(opt_state, moments)


def _is_float32(grad_fn: DPValueAndGrad, recipe: Recipe, trees: Sequence[Any]) -> bool:
    """Whether all arrays are float32, and all that optax would compute from them."""
    arrays = [jax.typeof(leaf).dtype for leaf in jax.tree_util.tree_leaves(trees)]
    scalars = [grad_fn.normalize_by, *recipe.scalars()]
    computed = [jnp.result_type(number, jnp.float32) for number in scalars]
    dtypes = [grad_fn.dtype or jnp.float32, *computed, *arrays]
    return all(jnp.dtype(dtype) == jnp.float32 for dtype in dtypes)


def _have_one_structure(trees: Sequence[Any]) -> bool:
    structures: list[Any] = [jax.tree_util.tree_structure(tree) for tree in trees]
    return all(structure == structures[0] for structure in structures)


def _check_options(grad_fn: Any, optimizer: Any) -> None:
    if not isinstance(grad_fn, DPValueAndGrad):
        raise TypeError(
            "private_update expects grad_fn to be what dp_value_and_grad returned, not wrapped in jit "
            f"or in another function; got {type(grad_fn).__name__}."
        )
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(
            "private_update expects optimizer to be one of bk_jax.optimizers, such as "
            f"bk_jax.optimizers.adam(1e-3), or of optax; got {type(optimizer).__name__}."
        )


def _check_trees(sums: Any, params: Any) -> None:
    if isinstance(sums, ClippedSums):
        raise TypeError(
            "update expects the sums alone, a tree like the parameters: pass found.sums of found = "
            "update.clipped_sums(params, batch)."
        )
    if not _have_one_structure([sums, params]):
        raise ValueError(
            "update(sums, opt_state, params, key=key) expects sums and params to be trees of one "
            f"structure; got sums {jax.tree_util.tree_structure(sums)} and params "
            f"{jax.tree_util.tree_structure(params)}."
        )
