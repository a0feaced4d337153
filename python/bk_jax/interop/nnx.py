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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bk_jax import validate
from bk_jax._extras import require
from bk_jax.api import dp_value_and_grad
from bk_jax.interop.adapted import STATE, Adapted, PureCall, adapt
from bk_jax.interop.nnx_arguments import Held, Place, held_in
from bk_jax.interop.nnx_changes import Values, refuse_changes, values_of

nnx = require("flax.nnx", "flax", install="flax")

__all__ = ["value_and_grad"]


def value_and_grad(
    loss_fn: Callable[..., Any] | None = None,
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
        Without it, a decorator is returned, as by nnx.
      argnums: the argument(s) to differentiate, as in nnx: a number, which means the `nnx.Param`s of
        that argument, an `nnx.DiffState(number, filter)`, or several of them.
      has_aux: whether `loss_fn` returns `(loss, aux)`; aux comes back stacked per example.
      **options: those of `bk_jax.dp_value_and_grad`: `l2_clip_norm`, `noise_multiplier`,
        `batch_argnums` and the rest.

    Returns:
      A function `grad_fn(model, *args, key=None, is_padding_example=None)` as
      `bk_jax.dp_value_and_grad` returns it; gradients are `nnx.State`s for `nnx.Optimizer.update`, in
      the lists and dictionaries that the models were in.
    """
    if loss_fn is None:
        return functools.partial(value_and_grad, argnums=argnums, has_aux=has_aux, **options)
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
        data = {*signature.batch_argnums, signature.prng_argnum}
        call = _by_place(args, kwargs)
        held = held_in({place: x for place, x in call.items() if place not in data})
        objects = [each.objects() for each in held]
        keys = [_keys(stream, size, abstract) for stream in _streams(objects)]
        graphdef, trained, state = nnx.split(objects, self._trains(held), ...)
        for n, each in enumerate(held):
            call[each.place] = each.with_states(self._trained(trained, n, each.place))
        first = signature.batch_argnums[0]
        call[first] = (args[first], keys)  # they are data of the examples, too
        call_args, call_kwargs = _ordered(call)
        loss_fn = self._pure_loss(graphdef, held)
        return PureCall(loss_fn, call_args, {**call_kwargs, STATE: state})

    def _trains(self, held: Sequence[Held]) -> Callable[..., bool]:
        """The filter of what is trained, by paths inside of each object."""
        filters = [self._filter(each.place) for each in held]

        def is_trained(path: Sequence[Any], variable: Any) -> bool:
            chosen = filters[path[0]]
            return chosen is not None and chosen(tuple(path[2:]), variable)

        return is_trained

    def _filter(self, place: Place) -> Callable[..., bool] | None:
        return self.filters.get(place) if isinstance(place, int) else None

    def _trained(self, trained: Any, n: int, place: Place) -> Any:
        """What is trained of the objects of an argument; nothing of one that is not differentiated."""
        if place in self.filters and n not in trained:
            raise ValueError(
                f"argument {place} has no variable that the filter of argnums selects, so there is "
                "nothing to train. A number selects nnx.Param; nnx.DiffState(number, filter) another "
                "kind."
            )
        return trained.get(n, {})

    def _pure_loss(self, graphdef: Any, held: Sequence[Held]) -> Callable[..., Any]:
        """The loss as a function of states."""
        first, keep = self.signature.batch_argnums[0], self.signature.keep_batch_dim

        @functools.wraps(self.loss_fn)
        def pure_loss(*args: Any, **kwargs: Any) -> Any:
            others = kwargs.pop(STATE)
            call = _by_place(args, kwargs)
            call[first], keys = args[first]
            states = {n: each.states(call[each.place]) for n, each in enumerate(held)}

            def run(state: Any) -> tuple[Any, Values, Values]:
                objects = nnx.merge(graphdef, *state, copy=True)  # may change in this trace
                before = values_of(objects)
                _set_keys(objects, keys, keep)
                whole = zip(held, objects, strict=True)
                put = {each.place: each.with_objects(call[each.place], x) for each, x in whole}
                positional, named = _ordered(call | put)
                return self.loss_fn(*positional, **named), before, values_of(objects)

            state = (nnx.State({n: found for n, found in states.items() if found}), others)
            out, before, after = run(state)
            refuse_changes(before, after, lambda state: run(state)[1:], state)
            return out

        return pure_loss


def _by_place(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Place, Any]:
    """All arguments, by position or name."""
    positional: list[tuple[Place, Any]] = [*enumerate(args)]
    return dict([*positional, *kwargs.items()])


def _ordered(call: Mapping[Place, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments, in order, and those with a name."""
    named = {place: x for place, x in call.items() if isinstance(place, str)}
    return [call[i] for i in range(len(call) - len(named))], named


def _streams(objects: Any) -> list[Any]:
    return [node for _, node in nnx.iter_graph(objects) if isinstance(node, nnx.RngStream)]


def _keys(stream: Any, size: int, abstract: bool) -> Any:
    """A key for each example, as `nnx.split_rngs` makes them: the stream counts one further.

    Stacked layers have a stream of several keys; each of these is split.
    """
    if abstract:
        return jax.ShapeDtypeStruct((size, *stream.key.shape), stream.key.dtype)
    if not stream.key.shape:
        return jax.random.split(stream(), size)
    keys, counts = jnp.ravel(stream.key[...]), jnp.ravel(stream.count[...])
    stream.count[...] += 1
    split = jax.vmap(lambda key, count: jax.random.split(jax.random.fold_in(key, count), size))
    return jnp.moveaxis(split(keys, counts), 0, 1).reshape(size, *stream.key.shape)


def _set_keys(objects: Any, keys: Sequence[Any], keep_batch_dim: bool) -> None:
    """Every stream begins anew, at the key of this example."""
    for stream, key in zip(_streams(objects), keys, strict=True):
        stream.key.set_value(key[0] if keep_batch_dim else key)
        stream.count.set_value(jnp.zeros(stream.key.shape, jnp.uint32))
