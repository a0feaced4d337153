"""Exported programs: a private step in a file, and custom calls for the process that loads it.

    exported = bk_jax.export_step(jax.jit(step))(params, batch, key_data)
    file.write(exported.serialize())                 # JAX needs the package flatbuffers for this

Custom calls are registered with XLA when the first one is traced. A program that comes from a file is
not traced, so somebody has to say so:

    bk_jax.register_custom_calls()
    step = jax.export.deserialize(file.read())
    value, grads = step.call(params, batch, key_data)

Both processes must have the same version of bk_jax: XLA gives no guarantee for custom calls.

| what | can be exported |
|---|---|
| a step of one device | yes |
| several devices, with `shard_map` or on a mesh with explicit axes | yes |
| several devices that `jit` divides the work among | no: Python is asked how to, when XLA compiles |
| keys of `bk_jax.random` as arguments | as `jax.random.key_data(key)` only |
| symbolic sizes | no: routes are chosen by sizes |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import export as jax_export

from bk_jax import _native
from bk_jax.paths import leaf_names
from bk_jax.random import is_chacha
from bk_jax.sharding.partition import many_devices

CALLBACK = (
    "this step calls Python functions while it runs (jax.debug.print, jax.debug.callback, "
    "jax.experimental.io_callback), and these cannot be in a file. Export it without them."
)
DIVIDED = (
    "jit divides this step among several devices, and XLA asks Python how to when it compiles: that "
    "cannot be in a file. Export a step of one device, a step inside jax.shard_map, or one on a mesh "
    "with explicit axes (jax.set_mesh). Nor can a file hold Python functions that a step calls."
)


def export_step(
    step: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[Any] = (),
) -> Callable[..., jax_export.Exported]:
    """`jax.export.export` for a jitted step with a private gradient in it.

    JAX exports only the custom calls that it is told about (`DisabledSafetyCheck.custom_call`); this
    names those of bk_jax, and says what to do about steps that cannot be exported.

    >>> import bk_jax, jax, jax.numpy as jnp
    >>> grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(x @ w))
    >>> def step(w, x, key_data):
    ...     return grad_fn(w, x, key=jax.random.wrap_key_data(key_data, impl=bk_jax.random.CHACHA20))
    >>> data = jax.random.key_data(bk_jax.random.key())
    >>> exported = bk_jax.export_step(jax.jit(step))(jnp.ones(3), jnp.ones((8, 3)), data)
    >>> value, grads = exported.call(jnp.ones(3), jnp.ones((8, 3)), data)

    Args:
      step: a jitted function. The key of the noise must be an argument of it: a key that is made
        inside would be a constant of the file, and the noise the same at every step.
      platforms: as in `jax.export.export`.
      disabled_checks: further checks to leave out, as in `jax.export.export`.

    Returns:
      A function of the step's arguments, or of their shapes, that returns a `jax.export.Exported`.
    """
    checks = [jax_export.DisabledSafetyCheck.custom_call(name) for name in _targets()]
    export = jax_export.export(
        step, platforms=platforms, disabled_checks=[*disabled_checks, *checks]
    )

    def exported(*args: Any, **kwargs: Any) -> jax_export.Exported:
        _refuse_keys((args, kwargs))
        try:
            return export(*args, **kwargs)
        except NotImplementedError as error:
            if "host_callbacks" not in str(error):
                raise
            raise NotImplementedError(DIVIDED if many_devices() else CALLBACK) from error

    return exported


def _refuse_keys(arguments: Any) -> None:
    """JAX cannot write the type of our keys into a file."""
    args, kwargs = arguments
    tree = {**{str(i): arg for i, arg in enumerate(args)}, **kwargs}
    leaves = jax.tree_util.tree_leaves(tree)
    for name, leaf in zip(leaf_names(tree), leaves, strict=True):
        if hasattr(leaf, "dtype") and is_chacha(leaf):
            raise TypeError(
                f"argument {name!r} is a key of bk_jax.random, whose type jax.export cannot write into "
                "a file. Pass jax.random.key_data(key), and in the step make it a key again: "
                "jax.random.wrap_key_data(data, impl=bk_jax.random.CHACHA20)."
            )


def _targets() -> tuple[str, ...]:
    """The names of all custom calls, registered with XLA."""
    libraries = (_native.library(), _native.cuda_library())
    return tuple(dict.fromkeys(name for found in libraries for name in found.targets))


def register_custom_calls() -> tuple[str, ...]:
    """Registers the custom calls with XLA and returns their names; a second time changes nothing.

    Only needed for programs that were traced elsewhere. It starts JAX's CPU backend.

    >>> import bk_jax
    >>> names = bk_jax.register_custom_calls()
    """
    names = _targets()
    if not names:
        raise RuntimeError(
            "no custom call of bk_jax is registered, so a program with one cannot run: "
            f"{_native.library().problem}"
        )
    return names
