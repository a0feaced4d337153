"""Views: how a parameter reaches the operation that uses it.

Between a parameter leaf `W` and its use stand reshapes, transposes, slices, casts, the slicing of a
`scan` over stacked layers, or a concatenation with other parameters. All of these only select and
move elements: every element of the value `W'` at the use comes from exactly one element of one leaf.
Two facts follow, and the rest of the package rests on them:

* the gradient of the leaf is the transpose of the view applied to the gradient of `W'`;
* the gradient of `W'` has the same Euclidean norm as the gradients of the leaves that feed it, jointly.

Casts between float types count as views: the gradient is formed in the accumulation dtype, so the
cast back is not an arithmetic step.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bk_jax import _compat
from bk_jax._compat import prims
from bk_jax.repeated import repeated

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Step:
    """One linear selection: `name` and `arguments` identify it, `apply` computes it."""

    name: str
    arguments: tuple[Any, ...]
    in_shape: Shape
    apply: Callable[[Any], Any] = dataclasses.field(compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Unstack:
    """Entering a `scan` that slices its leading axis: the body sees one slice at a time."""

    length: int


@dataclasses.dataclass(frozen=True)
class View:
    """The chain of steps from parameter leaf number `leaf` to the value at hand."""

    leaf: int
    shape: Shape
    steps: tuple[Step | Unstack, ...] = ()

    @property
    def maps(self) -> bool:
        """Whether anything is done to the leaf, or to the steps of a stack of them."""
        return not all(isinstance(step, Unstack) for step in self.steps)

    def then(self, step: Step | Unstack, shape: Shape) -> View:
        """The view followed by one more step whose result has `shape`."""
        return View(self.leaf, shape, (*self.steps, step))


def transpose_view(view: View, gradient: jax.Array) -> jax.Array:
    """Carries the gradient of the viewed value back to the leaf it came from.

    `gradient` has one leading axis for each `Unstack` of the view, outermost first, and then the
    shape of the viewed value.
    """
    stacked = sum(isinstance(step, Unstack) for step in view.steps)
    for step in reversed(view.steps):
        if isinstance(step, Unstack):
            stacked -= 1
            continue
        pull = functools.partial(_transpose_step, step=step)
        for _ in range(stacked):
            pull = jax.vmap(pull)
        gradient = pull(gradient)
    return gradient


@repeated("step")
def _transpose_step(gradient: jax.Array, *, step: Step) -> jax.Array:
    operand = jax.ShapeDtypeStruct(step.in_shape, gradient.dtype)
    (out,) = jax.linear_transpose(step.apply, operand)(gradient)
    return out


def strip_transposes(views: tuple[View, ...]) -> tuple[tuple[View, ...], tuple[int, ...]]:
    """Drops transposes at the end of the views.

    Returns the shorter views and, for each dimension of the viewed value, the dimension of the value
    before the transposes. Uses of one weight and of its transpose thereby compare equal.
    """
    dims = tuple(range(len(views[0].shape)))
    while all(v.steps and getattr(v.steps[-1], "name", "") == "transpose" for v in views):
        last = views[0].steps[-1]
        assert isinstance(last, Step)
        (permutation,) = last.arguments
        dims = tuple(permutation[i] for i in dims)
        views = tuple(View(v.leaf, last.in_shape, v.steps[:-1]) for v in views)
    return views, dims


def elements_read(view: View, leaf_shape: Shape) -> np.ndarray:
    """The sorted flat indices of the leaf's elements that the view reads, over all scan steps."""
    value = np.arange(math.prod(leaf_shape), dtype=np.int32).reshape(leaf_shape)
    stacked = 0
    with jax.ensure_compile_time_eval():
        current = jnp.asarray(value)
        for step in view.steps:
            if isinstance(step, Unstack):
                stacked += 1
                continue
            apply = step.apply
            for _ in range(stacked):
                apply = jax.vmap(apply)
            current = apply(current + 1) - 1  # padding reads as -1
        flat = np.asarray(current).ravel()
    return np.unique(flat[flat >= 0])


# --- one rule per primitive: (equation, views of its single parameter operand) -> views per output ---

ViewRule = Callable[[Any, tuple[View, ...]], "list[tuple[View, ...]] | None"]


def _follow(eqn: Any, views: tuple[View, ...], arguments: tuple[Any, ...], name: str) -> Any:
    """One output whose value is the primitive itself applied to the operand."""
    apply = functools.partial(_apply_primitive, eqn)
    in_shape = tuple(eqn.invars[0].aval.shape)
    step = Step(name, arguments, in_shape, apply)
    shape = tuple(eqn.outvars[0].aval.shape)
    return [tuple(view.then(step, shape) for view in views)]


def _apply_primitive(eqn: Any, operand: Any) -> Any:
    (out,) = _compat.bind(eqn, [operand])
    return out


def _transpose(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]]:
    return _follow(eqn, views, (tuple(eqn.params["permutation"]),), "transpose")


def _reshape(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]]:
    order = eqn.params.get("dimensions")  # reshape may transpose first: jnp.reshape(order="F")
    if eqn.primitive is prims.reshape_p and order is not None:
        return _follow(eqn, views, (tuple(order), tuple(eqn.params["new_sizes"])), "reshape")
    out = tuple(eqn.outvars[0].aval.shape)
    step = Step("reshape", (out,), tuple(eqn.invars[0].aval.shape), lambda x: jnp.reshape(x, out))
    return [tuple(view.then(step, out) for view in views)]


def _slice(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]]:
    p = eqn.params
    arguments = (tuple(p["start_indices"]), tuple(p["limit_indices"]), p["strides"])
    return _follow(eqn, views, arguments, "slice")


def _rev(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]]:
    return _follow(eqn, views, (tuple(eqn.params["dimensions"]),), "rev")


def _convert(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]] | None:
    both = (eqn.invars[0].aval.dtype, eqn.outvars[0].aval.dtype)
    return [views] if all(jnp.issubdtype(d, jnp.floating) for d in both) else None


def _broadcast(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]] | None:
    """Only the insertion of axes of size 1: a real broadcast repeats elements."""
    if math.prod(eqn.outvars[0].aval.shape) != math.prod(eqn.invars[0].aval.shape):
        return None
    return _reshape(eqn, views)


def _split(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]]:
    axis, sizes = int(eqn.params["axis"]), [int(s) for s in eqn.params["sizes"]]
    in_shape = tuple(eqn.invars[0].aval.shape)
    outs, start = [], 0
    for size, var in zip(sizes, eqn.outvars, strict=True):
        apply = functools.partial(
            jax.lax.slice_in_dim, start_index=start, limit_index=start + size, axis=axis
        )
        step = Step("split", (axis, start, size), in_shape, apply)
        outs.append(tuple(view.then(step, tuple(var.aval.shape)) for view in views))
        start += size
    return outs


def _unstack(eqn: Any, views: tuple[View, ...]) -> list[tuple[View, ...]]:
    axis, in_shape = int(eqn.params["axis"]), tuple(eqn.invars[0].aval.shape)
    outs = []
    for index, var in enumerate(eqn.outvars):
        pick = functools.partial(jax.lax.index_in_dim, index=index, axis=axis, keepdims=False)
        step = Step("unstack", (axis, index), in_shape, pick)
        outs.append(tuple(view.then(step, tuple(var.aval.shape)) for view in views))
    return outs


VIEW_RULES: dict[Any, ViewRule] = {
    prims.transpose_p: _transpose,
    prims.reshape_p: _reshape,
    prims.squeeze_p: _reshape,
    prims.slice_p: _slice,
    prims.rev_p: _rev,
    prims.convert_element_type_p: _convert,
    prims.broadcast_in_dim_p: _broadcast,
    _compat.split_p: _split,
}
if _compat.unstack_p is not None:  # older JAX writes slices instead
    VIEW_RULES[_compat.unstack_p] = _unstack

# Each output is the operand of the same number: these say where, when or under which name a value is.
PASS_THROUGH = {
    prims.copy_p,
    prims.device_put_p,
    prims.name_p,
    prims.sharding_constraint_p,
    _compat.optimization_barrier_p,
}


def join(eqn: Any, operands: Sequence[tuple[View, ...] | None]) -> tuple[View, ...] | None:
    """The views of a concatenation or stack whose every operand is a parameter, else `None`.

    Each operand is seen as padded with zeros to the whole, so that a leaf's part of a gradient of the
    whole is the transpose of that padding.
    """
    if any(views is None for views in operands):
        return None
    stacks = eqn.primitive is _compat.stack_p
    axis = int(eqn.params["axis" if stacks else "dimension"])
    shape = tuple(eqn.outvars[0].aval.shape)
    out: list[View] = []
    start = 0
    for var, views in zip(eqn.invars, operands, strict=True):
        in_shape = tuple(var.aval.shape)
        place = _Place(axis, start, shape[axis], new_axis=stacks)
        step = Step("join", dataclasses.astuple(place), in_shape, place.apply)
        out.extend(view.then(step, shape) for view in views or ())
        start += 1 if stacks else in_shape[axis]
    return tuple(out)


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where an operand lies in the whole: from `start` along an axis of size `whole`."""

    axis: int
    start: int
    whole: int
    new_axis: bool

    def apply(self, x: Any) -> Any:
        x = jnp.expand_dims(x, self.axis) if self.new_axis else x
        config = [(0, 0, 0)] * x.ndim
        config[self.axis] = (self.start, self.whole - self.start - x.shape[self.axis], 0)
        return jax.lax.pad(x, jnp.zeros((), x.dtype), config)


JOINS = {prims.concatenate_p, _compat.stack_p}  # older JAX has no stack and concatenates
