"""Flax nnx: `bk_jax.nnx.value_and_grad` stands where `nnx.value_and_grad` stood.

    @nnx.jit
    def step(model, optimizer, batch, key):
        value, grads = grad_fn(model, batch, key=key)
        optimizer.update(model, grads)

A model is split into what is trained and the rest, and the loss of one example puts it together again:

| in the arguments | becomes |
|---|---|
| variables that are trained | parameters, as a `State`; the gradient is one, too |
| streams of random numbers | one key is drawn from each stream and split: each example has its own |
| all other variables | seen by all examples; a loss that changes one is refused |
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax._extras import require
from bk_jax.api import dp_value_and_grad
from bk_jax.interop.adapted import STATE, Adapted, PureCall, adapt

nnx = require("flax.nnx", "flax", install="flax")

__all__ = ["value_and_grad"]


def value_and_grad(
    loss_fn: Callable[..., Any],
    *,
    argnums: Any = 0,
    has_aux: bool = False,
    **options: Any,
) -> Any:
    """Like `nnx.value_and_grad`, with every example's gradient clipped and noise added to the sum.

    >>> import bk_jax, jax, jax.numpy as jnp
    >>> from flax import nnx
    >>> model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    >>> def loss_fn(model, batch):
    ...     return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)
    >>> grad_fn = bk_jax.nnx.value_and_grad(loss_fn, l2_clip_norm=1.0, noise_multiplier=1.1)
    >>> batch = {"x": jnp.ones((8, 2)), "y": jnp.ones((8, 1))}
    >>> value, grads = grad_fn(model, batch, key=bk_jax.random.key())
    >>> jax.tree.map(jnp.shape, nnx.to_pure_dict(grads))
    {'bias': (1,), 'kernel': (2, 1)}

    Args:
      loss_fn: the loss of ONE example, as for `bk_jax.dp_value_and_grad`: `loss_fn(model, batch)` with
        a batch of one row. It must not change the model, except for its streams of random numbers.
      argnums: the argument(s) to differentiate, as in nnx: a number, which means the `nnx.Param`s of
        that argument, an `nnx.DiffState(number, filter)`, or several of them.
      has_aux: whether `loss_fn` returns `(loss, aux)`; aux comes back stacked per example.
      **options: those of `bk_jax.dp_value_and_grad`: `l2_clip_norm`, `noise_multiplier`,
        `batch_argnums` and the rest.

    Returns:
      A function `grad_fn(model, *args, key=None, is_padding_example=None)` as
      `bk_jax.dp_value_and_grad` returns it; gradients are `nnx.State`s for `nnx.Optimizer.update`.
    """
    single = not isinstance(argnums, Sequence)
    states = [_diff_state(a) for a in ([argnums] if single else argnums)]
    numbers = [state.argnum for state in states]
    grad_fn = dp_value_and_grad(loss_fn, numbers[0] if single else numbers, has_aux, **options)
    filters = {state.argnum: nnx.filterlib.to_predicate(state.filter) for state in states}
    return adapt(NnxValueAndGrad, grad_fn, filters=filters)


def _diff_state(argnum: Any) -> Any:
    return argnum if isinstance(argnum, nnx.DiffState) else nnx.DiffState(argnum, nnx.Param)


@dataclasses.dataclass(eq=False)
class NnxValueAndGrad(Adapted):
    """The function that `value_and_grad` returns; `filters` say what is trained of an argument."""

    filters: Mapping[int, Callable[..., bool]] = dataclasses.field(default_factory=dict)

    def pure_call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, abstract: bool = False
    ) -> PureCall:
        """Splits all arguments that hold variables, together: they may share some."""
        signature = self.signature
        validate.argument_count(len(args), signature.roles)
        size = validate.batch_size([args[i] for i in signature.batch_argnums])
        objects = self._objects(args)
        keys = [_keys(stream, size, abstract) for stream in _streams(objects)]
        graphdef, trained, state = nnx.split(objects, self._is_trained, ...)
        call_args = [self._trained(trained, i) if i in objects else x for i, x in enumerate(args)]
        first = signature.batch_argnums[0]
        call_args[first] = (args[first], keys)  # they are data of the examples, too
        loss_fn = self._pure_loss(graphdef, tuple(objects))
        return PureCall(loss_fn, call_args, {**kwargs, STATE: state})

    def _objects(self, args: Sequence[Any]) -> dict[int, Any]:
        """The arguments that hold variables, by position."""
        data = {*self.signature.batch_argnums, self.signature.prng_argnum}
        return {i: x for i, x in enumerate(args) if i not in data and any(_variables(x))}

    def _is_trained(self, path: Sequence[Any], variable: Any) -> bool:
        position, *inside = path
        return position in self.filters and self.filters[position](tuple(inside), variable)

    def _trained(self, trained: Any, position: int) -> Any:
        """What is trained of an argument; nothing of one that is not differentiated."""
        if position in self.filters and position not in trained:
            raise ValueError(
                f"argument {position} has no variable that the filter of argnums selects, so there is "
                "nothing to train. A number selects nnx.Param; nnx.DiffState(number, filter) another "
                "kind."
            )
        return trained.get(position, nnx.State({}))

    def _pure_loss(self, graphdef: Any, positions: Sequence[int]) -> Callable[..., Any]:
        """The loss as a function of states; `positions` are those of arguments with variables."""
        first = self.signature.batch_argnums[0]

        @functools.wraps(self.loss_fn)
        def pure_loss(*args: Any, **kwargs: Any) -> Any:
            state, call_args = kwargs.pop(STATE), list(args)
            trained = nnx.State({i: args[i] for i in positions if i in self.filters})
            objects = nnx.merge(graphdef, trained, state, copy=True)  # may change in this trace
            call_args[first], keys = args[first]
            _set_keys(objects, keys, self.signature.keep_batch_dim)
            for i in positions:
                call_args[i] = objects[i]
            before = _values(objects)
            out = self.loss_fn(*call_args, **kwargs)
            _refuse_changes(before, _values(objects))
            return out

        return pure_loss


def _variables(tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The path of every variable in a tree of objects, each once."""
    found = nnx.iter_graph(tree)
    return ((path, node) for path, node in found if isinstance(node, nnx.Variable))


def _streams(objects: Any) -> list[Any]:
    return [node for _, node in nnx.iter_graph(objects) if isinstance(node, nnx.RngStream)]


def _keys(stream: Any, size: int, abstract: bool) -> Any:
    """A key for each example, as `nnx.split_rngs` makes them: the stream counts one further."""
    if abstract:
        return jax.ShapeDtypeStruct((size,), stream.key.dtype)
    return jax.random.split(stream(), size)


def _set_keys(objects: Any, keys: Sequence[Any], keep_batch_dim: bool) -> None:
    """Every stream begins anew, at the key of this example."""
    for stream, key in zip(_streams(objects), keys, strict=True):
        stream.key.set_value(key[0] if keep_batch_dim else key)
        stream.count.set_value(jnp.zeros((), jnp.uint32))


def _values(objects: Any) -> dict[tuple[Any, ...], tuple[str, Any]]:
    """Kind and value of every variable that a loss must leave as it is."""
    return {
        path: (type(variable).__name__, variable.get_raw_value())
        for path, variable in _variables(objects)
        if not isinstance(variable, nnx.RngState)
    }


def _refuse_changes(
    before: Mapping[tuple[Any, ...], tuple[str, Any]],
    after: Mapping[tuple[Any, ...], tuple[str, Any]],
) -> None:
    """A change would be made from single examples, and nothing makes it private."""
    changed = {
        path: kind
        for path, (kind, value) in after.items()
        if path not in before or before[path][1] is not value
    }
    if not changed:
        return
    names = ", ".join(f"{'/'.join(map(str, p[1:]))!r} ({kind})" for p, kind in changed.items())
    statistics = nnx.BatchStat.__name__ in changed.values()
    advice = (
        "BatchNorm in training mode sees one example at a time here. Replace it by GroupNorm or "
        "LayerNorm, or keep its statistics as they are: model.eval(), or use_running_average=True."
        if statistics
        else "Return what you want to see with has_aux=True; it comes back per example."
    )
    raise ValueError(
        f"loss_fn changes {names}. A private gradient runs it on each example by itself, and a state "
        f"that examples have changed is not private. {advice}"
    )
