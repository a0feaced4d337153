"""Exported programs: custom calls for a process that runs a private step without tracing one.

Custom calls are registered with XLA when the first one is traced. A program that comes from a file
(`jax.export.deserialize`) is not traced, so somebody has to say so:

    bk_jax.register_custom_calls()
    step = jax.export.deserialize(file.read())

XLA gives no guarantee for custom calls, so JAX wants to be told about each when it exports:

    checks = [jax.export.DisabledSafetyCheck.custom_call(c) for c in bk_jax.register_custom_calls()]
    exported = jax.export.export(jax.jit(step), disabled_checks=checks)(params, batch, key)

Both processes must have the same version of bk_jax.
"""

from __future__ import annotations

from bk_jax import _native


def register_custom_calls() -> tuple[str, ...]:
    """Registers the custom calls with XLA and returns their names; a second time changes nothing.

    Only needed for programs that were traced elsewhere. It starts JAX's CPU backend.

    >>> import bk_jax
    >>> names = bk_jax.register_custom_calls()
    """
    libraries = (_native.library(), _native.cuda_library())
    names = tuple(dict.fromkeys(name for found in libraries for name in found.targets))
    if not names:
        raise RuntimeError(
            "no custom call of bk_jax is registered, so a program with one cannot run: "
            f"{libraries[0].problem}"
        )
    return names
