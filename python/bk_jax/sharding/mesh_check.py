"""The mesh of explicitly sharded arguments must be set where they are used.

Explicit axes are part of an array's type. Without the mesh they belong to, JAX stops at some
operation in the middle of the step, with an error about that operation.
"""

from __future__ import annotations

from typing import Any

import jax

from bk_jax.paths import leaf_names
from bk_jax.sharding.partition import many_devices


def check_mesh(*trees: Any) -> None:
    """Raises if an argument has explicit axes and no mesh is set."""
    if not many_devices() or not jax.sharding.get_abstract_mesh().empty:
        return
    for tree in trees:
        for number, leaf in enumerate(jax.tree_util.tree_leaves(tree)):
            if axes := explicit_axes(leaf):
                raise ValueError(
                    f"argument {leaf_names(tree)[number]!r} is spread over a mesh with explicit axes "
                    f"{axes}, and no mesh is set where the private gradient is called. Call the step "
                    "inside of `with jax.set_mesh(mesh):`, or make the mesh with axis_types of "
                    "jax.sharding.AxisType.Auto: then nothing has to be set."
                )


def explicit_axes(leaf: Any) -> tuple[str, ...]:
    """The explicit axes of the mesh that an array is on; its type says how they cut it."""
    if not isinstance(leaf, jax.Array):
        return ()
    sharding = getattr(jax.typeof(leaf), "sharding", None)
    return tuple(sharding.mesh.explicit_axes) if sharding is not None else ()
