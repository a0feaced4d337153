"""The one place that touches JAX's unstable surface (`jax.extend` and private modules).

Everything else in the package imports from here, so that a new JAX release is a change of one file.
Primitives are compared as objects, never by name: names have changed between releases, objects that
disappear fail loudly at import.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex_core
from jax.extend import random as jex_random
from jax.extend import source_info_util
from jax.extend.core import primitives

from bk_jax.sources import Frame, describe

_JAX_FOLDER = os.path.join(os.path.dirname(jax.__file__), "")
prims: Any = primitives
Jaxpr = jex_core.Jaxpr
ClosedJaxpr = jex_core.ClosedJaxpr
JaxprEqn = jex_core.JaxprEqn
Literal = jex_core.Literal
Primitive = jex_core.Primitive
jaxpr_as_fun = jex_core.jaxpr_as_fun
define_prng_impl = jex_random.define_prng_impl


def mesh_device() -> Any:
    """The `platform` and `device_kind` of the devices of `jax.set_mesh`; None if JAX does not say."""
    device = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    return device if hasattr(device, "platform") else None


def default_device() -> Any:
    """What `jax.default_device` was told: a device, the name of a platform, or None."""
    return jax.config.jax_default_device  # type: ignore[attr-defined]


def _primitive(name: str) -> Any:
    """A primitive that the stable list lacks, from where it is defined; `None` if JAX has none."""
    from jax._src import ad_checkpoint, callback, custom_batching, ffi, shard_map
    from jax._src import core as core_internal
    from jax._src.lax import lax as lax_internal
    from jax._src.lax import parallel, special, windowed_reductions
    from jax._src.lax import slicing as slicing_internal

    others = (
        callback,
        custom_batching,
        ffi,
        parallel,
        shard_map,
        special,
        windowed_reductions,
        ad_checkpoint,
    )
    homes = (prims, lax_internal, slicing_internal, core_internal, *others)
    return next((getattr(home, name) for home in homes if hasattr(home, name)), None)


def primitive(name: str) -> Any:
    """The primitive that jaxprs print under this name; `None` if this version of JAX has none."""
    return _primitive({"add_any": "add_jaxvals"}.get(name, name) + "_p")


split_p = _primitive("split_p")
stack_p = _primitive("stack_p")
unstack_p = _primitive("unstack_p")
optimization_barrier_p = _primitive("optimization_barrier_p")
custom_vmap_p = _primitive("custom_vmap_p")
pure_callback_p = _primitive("pure_callback_p")
io_callback_p = _primitive("io_callback_p")
ffi_call_p = _primitive("ffi_call_p")
shard_map_p = _primitive("shard_map_p")
pvary_p = _primitive("pvary_p")  # says that a value may differ between devices of a shard_map


def split_closed(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Returns `(open jaxpr, consts)` for a closed or an open jaxpr."""
    if hasattr(jaxpr, "consts") and hasattr(jaxpr, "jaxpr"):
        return jaxpr.jaxpr, jaxpr.consts
    return jaxpr, ()


def trace(fun: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """Traces `fun` once and returns its closed jaxpr and the pytree of output shapes."""
    return jax.make_jaxpr(fun, return_shape=True)(*args)


def is_tracing() -> bool:
    """Whether a function is being traced: by `jit`, `vmap`, `grad`, `scan` or the like."""
    from jax._src import core as core_internal

    return not core_internal.trace_state_clean()


def transformations() -> int | None:
    """How many of `vmap`, `grad` and the like an equation goes through before it is written down.

    `None` outside of `jit`, where equations are run and not written down.
    """
    from jax._src import core as core_internal
    from jax._src.interpreters import partial_eval

    trace: Any = core_internal.trace_ctx.trace
    count = 0
    while not isinstance(trace, partial_eval.DynamicJaxprTrace):
        trace = getattr(trace, "parent_trace", None)
        if trace is None:
            return None
        count += 1
    return count


def is_literal(atom: Any) -> bool:
    """Whether an equation operand is an inline constant rather than a variable."""
    return isinstance(atom, Literal)


def constant(literal: Any) -> Any:
    """The value of an inline constant, as an array; some are numbers of Python that know their type."""
    value = literal.val
    return value if hasattr(value, "shape") else np.asarray(value, literal.aval.dtype)


@contextlib.contextmanager
def equation_context(eqn: Any) -> Iterator[None]:
    """Re-enters the name stack, source line and config context in which `eqn` was traced."""
    stack = source_info_util.current_name_stack() + eqn.source_info.name_stack
    user = source_info_util.user_context(eqn.source_info.traceback, name_stack=stack)
    with user, eqn.ctx.manager:
        yield


def bind(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    """Evaluates one equation as it stands, custom differentiation rules included."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    if isinstance(bound, tuple):  # JAX before 0.9.2 returned (subfuns, params)
        subfuns, params = bound
        out = eqn.primitive.bind(*subfuns, *operands, **params)
    else:
        out = eqn.primitive.bind(*operands, **bound)
    return list(out) if eqn.primitive.multiple_results else [out]


def is_placed(eqn: Any) -> bool:
    """Whether a `jit` says on which devices its operands or results are."""
    given = (*eqn.params["in_shardings"], *eqn.params["out_shardings"])
    return any(type(sharding).__name__ != "UnspecifiedValue" for sharding in given)


def split_scan(eqn: Any, operands: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The operands of a `scan`: constants, what is carried, and what is scanned over."""
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    rest = operands[consts:]
    return list(operands[:consts]), list(rest[:carry]), list(rest[carry:])


def source_line(eqn: Any) -> str:
    """The user's source line of an equation, and the library's: see `bk_jax.sources`."""
    return describe(_frames(eqn.source_info.traceback))


def _frames(traceback: Any) -> Iterator[Frame]:
    """Where an equation was traced, innermost first, without JAX and what asks JAX to be left out."""
    from jax._src import source_info_util as internal

    codes, instructions = traceback.raw_frames() if traceback else ((), ())
    for code, instruction in zip(codes, instructions, strict=True):
        if internal.is_user_filename(code.co_filename):
            found = internal.raw_frame_to_frame(code, instruction)
            yield Frame(found.file_name, found.start_line, found.function_name)


def is_of_jax(eqn: Any) -> bool:
    """Whether the function of a `custom_jvp` or `custom_vjp` is JAX's own, such as `jax.nn.relu`."""
    body, _ = split_closed(eqn.params["call_jaxpr"])
    source = getattr(getattr(body, "debug_info", None), "func_src_info", None) or ""
    return f" at {_JAX_FOLDER}" in source


def inner_jaxprs(eqn: Any) -> Iterator[Any]:
    """The jaxprs among the parameters of an equation: bodies, branches."""
    for value in eqn.params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if hasattr(item, "eqns") or hasattr(getattr(item, "jaxpr", None), "eqns"):
                yield item


def contains(jaxpr: Any, primitive: Any) -> bool:
    """Whether a primitive occurs in a jaxpr, at any depth."""
    opened, _ = split_closed(jaxpr)
    return any(
        eqn.primitive is primitive or any(contains(inner, primitive) for inner in inner_jaxprs(eqn))
        for eqn in opened.eqns
    )


def equations(jaxpr: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """All equations of a jaxpr, at any depth; those of a body that is called often, once."""
    opened, _ = split_closed(jaxpr)
    seen = set() if seen is None else seen
    if id(opened) in seen:
        return
    seen.add(id(opened))
    for eqn in opened.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner, seen)


def collective_axes(eqn: Any) -> set[str]:
    """The axes of the mesh along which an equation communicates."""
    if eqn.primitive is pvary_p or eqn.primitive is prims.axis_index_p:
        return set()
    named = (eqn.params.get("axes"), eqn.params.get("axis_name"))
    flat = [name for entry in named for name in (entry if isinstance(entry, tuple) else (entry,))]
    return {name for name in flat if isinstance(name, str)}


def bound_axes(eqn: Any) -> frozenset[str]:
    """The axes that an equation names for its own body: those of a `shard_map` inside the loss."""
    is_map = eqn.primitive is shard_map_p
    return frozenset(eqn.params["mesh"].axis_names) if is_map else frozenset()


def varying(x: Any) -> frozenset[str]:
    """The axes of a `shard_map` along which a value, or a type, differs from device to device."""
    aval = x if hasattr(x, "weak_type") and not hasattr(x, "aval") else jax.typeof(x)
    if hasattr(aval, "manual_axis_type"):
        return frozenset(aval.manual_axis_type.varying)
    return frozenset(getattr(aval, "vma", ()))  # JAX before 0.10


def struct_like(struct: jax.ShapeDtypeStruct, x: Any) -> jax.ShapeDtypeStruct:
    """A result of a custom call that differs along the axes along which `x` does."""
    if not varying(x):
        return struct
    aval = x if hasattr(x, "weak_type") and not hasattr(x, "aval") else jax.typeof(x)
    name = "manual_axis_type" if hasattr(aval, "manual_axis_type") else "vma"
    kind: dict[str, Any] = {name: getattr(aval, name)}
    uncut = jax.sharding.NamedSharding(aval.sharding.mesh, jax.sharding.PartitionSpec())
    return jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=uncut, **kind)


def struct_of(aval: Any) -> jax.ShapeDtypeStruct:
    """An argument for tracing with the type of a variable."""
    return struct_like(jax.ShapeDtypeStruct(aval.shape, aval.dtype), aval)
