"""A custom call as one equation: XLA gets the call where it is registered, its twin everywhere else.

`jax.lax.platform_dependent` says the same, as a conditional whose branches are traced, joined and
lowered for every call; with a call or two for each of thousands of parameters that is most of the time
that a private step takes to trace. Where an equation is not simply lowered, under `vmap` and outside of
`jit`, it is that conditional still.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.interpreters import batching, mlir

from bk_jax._compat import Primitive, struct_like


class Padded(NamedTuple):
    """The call as a GPU takes it: with zeros at the ends of rows, so that all of them are aligned.

    Attributes:
      widths: operands with another last axis there, and its length.
      results: shapes and dtypes there; the call's own results are their first elements.
    """

    widths: tuple[tuple[int, int], ...]
    results: tuple[jax.ShapeDtypeStruct, ...]

    def of(self, operands: Sequence[jax.Array]) -> list[jax.Array]:
        """The operands with zeros: equal expressions for equal operands, which XLA computes once."""
        widths = dict(self.widths)
        return [_widened(x, widths[i]) if i in widths else x for i, x in enumerate(operands)]


def _widened(x: jax.Array, width: int) -> jax.Array:
    ends = [(0, 0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1], 0)]
    return jax.lax.pad(x, np.zeros((), x.dtype), ends)


def _beginning(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return x if x.shape == shape else jax.lax.slice(x, [0] * x.ndim, shape)


class Form(NamedTuple):
    """All of a custom call but its operands.

    Attributes:
      target: its registered name.
      results: shapes and dtypes.
      aliases: pairs of an operand and the result that takes its buffer over.
      shapes: operands that the twin takes in another shape than the call, with that shape.
      platforms: where it is registered, and the bytes of workspace that it needs there.
      twin: the same in plain JAX.
      attributes: numbers and strings that both take by name.
      padded: the same call on GPUs, if it is another one there.
    """

    target: str
    results: tuple[jax.ShapeDtypeStruct, ...]
    aliases: tuple[tuple[int, int], ...]
    shapes: tuple[tuple[int, tuple[int, ...]], ...]
    platforms: tuple[tuple[str, int], ...]
    twin: Callable[..., Any]
    attributes: tuple[tuple[str, Any], ...]
    padded: Padded | None = None

    def on(self, platform: str) -> Padded | None:
        """What is different on a platform."""
        return self.padded if platform == "cuda" else None


def custom_call(form: Form, operands: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """The results; operands have the shapes that the call takes."""
    return tuple(_call_p.bind(*operands, form=form))


_call_p = Primitive("ffi_call")  # what XLA names the instruction after
_call_p.multiple_results = True


def _results(*types: Any, form: Form) -> Sequence[Any]:
    # Attributes do not matter here, and calls for different parameters differ in nothing else.
    plain = form._replace(attributes=(), platforms=(), padded=None)
    return _result_types(plain, types, jax.sharding.get_abstract_mesh())


@functools.lru_cache(maxsize=4096)
def _result_types(form: Form, types: tuple[Any, ...], mesh: Any) -> Sequence[Any]:
    del mesh  # types depend on it
    return tuple(jax.make_jaxpr(functools.partial(_native, form, "", 0))(*types).out_avals)


def _native(
    form: Form, platform: str, workspace: int, *operands: jax.Array
) -> tuple[jax.Array, ...]:
    """The custom call; with `workspace` bytes as a last result that nobody sees."""
    padded = form.on(platform)
    given = padded.of(operands) if padded else operands
    made = padded.results if padded else form.results
    results = [struct_like(result, operands[0]) for result in made]
    if workspace > 0:
        results.append(struct_like(jax.ShapeDtypeStruct((workspace,), np.uint8), operands[0]))
    run = jax.ffi.ffi_call(
        form.target,
        results,
        vmap_method="sequential",
        input_output_aliases=dict(form.aliases),
    )
    found = run(*given, **_attributes(form))[: len(made)]
    return tuple(_beginning(x, one.shape) for x, one in zip(found, form.results, strict=True))


def _attributes(form: Form) -> dict[str, Any]:
    """Shapes become arrays of int64 for XLA; everything else is as it should be."""
    given = form.attributes
    return {n: np.asarray(v, np.int64) if isinstance(v, tuple) else v for n, v in given}


def _portable(form: Form, *operands: jax.Array) -> tuple[jax.Array, ...]:
    shapes = dict(form.shapes)
    given = [x.reshape(shapes.get(i, x.shape)) for i, x in enumerate(operands)]
    return tuple(form.twin(*given, **dict(form.attributes)))


@functools.cache
def _conditional(form: Form) -> Callable[..., tuple[jax.Array, ...]]:
    """The choice as a conditional; the same objects for the same call, so that JAX traces them once."""
    branches = {
        name: functools.partial(_native, form, name, nbytes) for name, nbytes in form.platforms
    }
    branches["default"] = functools.partial(_portable, form)
    return lambda *operands: jax.lax.platform_dependent(*operands, **branches)


def _run(*operands: jax.Array, form: Form) -> Sequence[jax.Array]:
    return _conditional(form)(*operands)


def _batch(operands: Any, axes: Any, *, form: Form) -> tuple[Any, Any]:
    found = jax.vmap(_conditional(form), in_axes=tuple(axes))(*operands)
    return found, [0] * len(found)


def _lower(context: Any, *operands: Any, form: Form, platform: str) -> Any:
    registered = dict(form.platforms)
    if platform not in registered:
        function = functools.partial(_portable, form)
    elif registered[platform] or form.on(platform):
        function = functools.partial(_native, form, platform, registered[platform])
    else:
        rule = jax.ffi.ffi_lowering(form.target, operand_output_aliases=dict(form.aliases))
        return rule(context, *operands, **_attributes(form))
    return mlir.lower_fun(function, multiple_results=True)(context, *operands)


_call_p.def_abstract_eval(_results)
_call_p.def_impl(_run)
batching.primitive_batchers[_call_p] = _batch
mlir.register_lowering(_call_p, functools.partial(_lower, platform=""))
for _name in ("cpu", "cuda"):
    mlir.register_lowering(_call_p, functools.partial(_lower, platform=_name), platform=_name)
