"""LoRA: low-rank updates of frozen weights, added to a traced program.

Where the program multiplies by a selected weight, `y = a W`, it is replayed with

    y = a W + scale * (a A) B            A[d, r] random, B[r, p] zero at first

computed from the left, so the product of `A` and `B` is never formed and both are ordinary dense
uses: `dp_value_and_grad` taps two matrices of rank `r`, and nothing else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import _compat
from bk_jax.peft.select import Match, selected
from bk_jax.peft.weights import Weight, listing, trace
from bk_jax.program.replay import Replay
from bk_jax.program.shared_data import sharing
from bk_jax.program.sites import Path
from bk_jax.program.trace import arrays_of, flatten_parameters, merge_arrays

Adapters = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Lora:
    """A loss with adapters; made by `bk_jax.peft.lora`.

    Attributes:
      adapters: their initial values, by path of the weight:
        `{"block/kernel": {"a": ..., "b": ...}}`.
      scale: the factor of the update, `alpha / rank`.
      skipped: paths that matched but cannot be adapted, with the reason.

    >>> import bk_jax, jax.numpy as jnp
    >>> from bk_jax import peft
    >>> params = {"kernel": jnp.ones((4, 3))}
    >>> tuned = peft.lora(lambda p, x: jnp.sum(x @ p["kernel"]), params, jnp.ones((2, 4)),
    ...                   match="*", rank=2, key=bk_jax.random.key(0))
    >>> {path: parts["a"].shape for path, parts in tuned.adapters.items()}
    {'kernel': (4, 2)}
    """

    fun: Callable[..., Any]
    match: Match
    skip: bool
    weights: tuple[Weight, ...]
    adapters: Adapters
    scale: float
    skipped: Mapping[str, str]

    def loss_fn(self, adapters: Adapters, *args: Any, frozen: Any, **kwargs: Any) -> Any:
        """The loss with adapters in place of the parameters, which become the keyword `frozen`.

        All other arguments keep their places, so the options of `dp_value_and_grad` need no change.
        """
        program = trace(self.fun, self.match, frozen, args, kwargs)
        weights, _ = program.weights(self.skip)
        _check_same_weights(adapters, weights)
        extras = {site.path: adapters[w.name] for w in weights for site in w.sites}
        weight_of = {site.path: w for w in weights for site in w.sites}
        site_of = {site.path: site for w in weights for site in w.sites}

        def visit(
            path: Path, eqn: Any, operands: list[Any], adapter: Any
        ) -> tuple[list[Any], None]:
            use, first = site_of[path].use, weight_of[path].sites[0].use
            pair = _oriented(adapter, reverse=use.swap != first.swap)
            return [_adapted(eqn, operands, use, pair, self.scale)], None

        def is_sliced(path: Path, depth: int) -> bool:
            return site_of[path].axes[depth].stacked

        outs, _ = Replay(visit, is_sliced)(program.jaxpr, program.arrays, extras)
        return jax.tree_util.tree_unflatten(program.out_tree, outs)

    sharing(loss_fn, "frozen")

    def merge(self, params: Any, adapters: Adapters) -> Any:
        """Plain parameters with the updates added: the original model, with the same outputs."""
        _check_same_weights(adapters, self.weights)
        parameters = flatten_parameters((params,), (0,))
        chosen = selected(parameters.leaves, self.match)
        merged = list(parameters.arrays)
        for weight in self.weights:
            for leaf, update in weight.update(adapters[weight.name], self.scale).items():
                array = jnp.asarray(merged[chosen[leaf]])
                merged[chosen[leaf]] = (array + update).astype(array.dtype)
        return parameters.treedef.unflatten(merged)[0]

    def num_parameters(self) -> int:
        """How many numbers are trained."""
        return sum(math.prod(x.shape) for x in jax.tree_util.tree_leaves(self.adapters))


def lora(
    loss_fn: Callable[..., Any],
    params: Any,
    *args: Any,
    rank: int,
    match: Match,
    alpha: float | None = None,
    key: Any = None,
    dtype: Any = None,
    skip: bool = False,
) -> Lora:
    """Adds a low-rank update to every product with a selected weight, in any program.

    >>> import bk_jax, jax.numpy as jnp
    >>> from bk_jax import peft
    >>> def loss_fn(params, x):
    ...     return jnp.sum(jnp.tanh(x @ params["up"]) @ params["down"])
    >>> params = {"up": jnp.ones((6, 9)), "down": jnp.ones((9, 4))}
    >>> lora = peft.lora(loss_fn, params, jnp.ones((1, 6)), rank=2, match="*")
    >>> jax.tree.map(jnp.shape, lora.adapters)
    {'down': {'a': (9, 2), 'b': (2, 4)}, 'up': {'a': (6, 2), 'b': (2, 9)}}
    >>> grad_fn = bk_jax.dp_value_and_grad(lora.loss_fn)
    >>> batch, key = jnp.ones((8, 6)), bk_jax.random.key(0)
    >>> value, grads = jax.jit(grad_fn)(lora.adapters, batch, key=key, frozen=params)

    Args:
      loss_fn: a function whose first argument is the parameters, such as the loss that
        `dp_value_and_grad` takes; its return value does not matter here.
      params: the parameters, or their shapes.
      *args: the other arguments of `loss_fn`, or their shapes; only shapes are used.
      rank: the rank `r` of the updates.
      match: the weights to adapt: a pattern of paths as in `fnmatch` (`"*attention*/kernel"`),
        several patterns, or a function `match(path, leaf) -> bool`.
      alpha: the update is multiplied by `alpha / rank`; default: `rank`.
      key: a PRNG key for the initial values of `A`; by default from a fixed seed. It is not a
        secret.
      dtype: dtype of the adapters; default: that of their weight.
      skip: whether to leave out a selected parameter that is used outside a product (looked up,
        convolved with, added) and list it in `skipped`, instead of raising an error.
    """
    if not isinstance(rank, int) or rank < 1:
        raise ValueError(f"rank must be a whole number of at least 1, got {rank!r}.")
    found: list[tuple[tuple[Weight, ...], dict[str, str]]] = []

    def look(arrays: list[Any]) -> None:
        call = merge_arrays((params, *args), arrays)
        found.append(trace(loss_fn, match, call[0], call[1:], {}).weights(skip))

    jax.eval_shape(look, arrays_of((params, *args)))
    weights, skipped = found[0]
    if not weights:
        raise ValueError(f"no selected parameter can be adapted: {listing(skipped)}.")
    adapters = _first_values(weights, rank, key, dtype)
    scale = 1.0 if alpha is None else alpha / rank
    return Lora(loss_fn, match, skip, weights, adapters, scale, skipped)


def _first_values(weights: Sequence[Weight], rank: int, key: Any, dtype: Any) -> Adapters:
    """`A` is normal with variance `1 / d`, so that `a A` is as large as `a`; `B` is zero."""

    shapes = [weight.shapes(rank) for weight in weights]
    ends = np.cumsum([math.prod(shape["a"]) for shape in shapes])

    @jax.jit
    def draw(key: Any) -> Adapters:
        parts = jnp.split(jax.random.normal(key, (int(ends[-1]),), jnp.float32), ends[:-1])
        adapters = {}
        for weight, shape, part in zip(weights, shapes, parts, strict=True):
            kind = dtype or weight.dtype
            a = part.reshape(shape["a"]) / math.sqrt(max(shape["a"][-2], 1))
            adapters[weight.name] = {"a": a.astype(kind), "b": jnp.zeros(shape["b"], kind)}
        return adapters

    return draw(jax.random.key(0) if key is None else key)


def _oriented(adapter: Mapping[str, Any], reverse: bool) -> tuple[Any, Any]:
    """`A` and `B` as a use sees them; it may use the transposed weight."""
    a, b = adapter["a"], adapter["b"]
    return (jnp.swapaxes(b, -1, -2), jnp.swapaxes(a, -1, -2)) if reverse else (a, b)


def _adapted(
    eqn: Any, operands: list[Any], use: Any, pair: tuple[Any, Any], scale: float
) -> jax.Array:
    """The result of the product, with the update of its weight added."""
    (result,) = _compat.bind(eqn, operands)
    activation = use.record(operands).reshape(use.sizes[:3])  # [N, T, d]
    shared, _, _ = use.weight_dims
    activation = activation if shared else activation[0]
    batch = ((0,), (0,)) if shared else ((), ())
    last = activation.ndim - 1

    def product(x: jax.Array, matrix: jax.Array) -> jax.Array:
        x, matrix = x.astype(activation.dtype), matrix.astype(activation.dtype)
        return jax.lax.dot_general(
            x,
            matrix,
            (((last,), (last - 1,)), batch),
            precision=eqn.params["precision"],
            preferred_element_type=use.dtype,
        )

    a, b = pair
    return use.add_tap(result, product(scale * product(activation, a), b))


def _check_same_weights(adapters: Adapters, weights: Sequence[Weight]) -> None:
    """The adapters must be those of this program."""
    rank = {x["a"].shape[-1] for x in adapters.values()}
    wanted = {w.name: w.shapes(max(rank, default=0)) for w in weights}
    given = {k: {m: tuple(x.shape) for m, x in v.items()} for k, v in adapters.items()}
    if wanted != given:
        raise ValueError(
            f"the adapters do not fit the program: it has the weights {wanted}, the adapters are "
            f"{given}. Pass the adapters that lora made for this loss_fn and these parameters."
        )
