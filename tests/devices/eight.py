"""Everything that needs eight devices, in one process: writes what `meshes_test.py` looks at."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
import tempfile
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from support.documents import ROOT, run_python

import bk_jax
from bk_jax import _native, hlo
from bk_jax.hlo import cli
from bk_jax.hlo.collectives import find_collectives
from bk_jax.noise import add_noise
from bk_jax.sharding import partition
from bk_jax.summing.blocks import tied
from bk_jax.summing.blocks.dense import Dense, Operands
from bk_jax.summing.norms import Measured, norms_by_group
from devices.equal import equal_layers
from devices.networks import MODELS, Model
from devices.patches import convolutions

LAYOUTS = {  # layout: sizes of the axes data and model
    "transformer": {"data": (8, 1), "fsdp": (4, 2), "tensor": (2, 4), "product": (4, 2)},
    "resnet": {"data": (2, 1), "fsdp": (4, 1), "tensor": (4, 2)},
    "experts": {"data": (8, 1), "fsdp": (4, 1), "tensor": (2, 4)},
    "stacked": {"tensor": (2, 4)},
}
OPTIONS = {"l2_clip_norm": 0.5, "return_stats": True}
KEY = bk_jax.random.key(3)


def make_mesh(data: int, model: int, kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    devices = jax.devices()[: data * model]
    return jax.make_mesh((data, model), ("data", "model"), axis_types=(kind, kind), devices=devices)


def step(model: Model, **options: Any) -> Callable[..., Any]:
    options = OPTIONS | {"routes": model.routes} | options
    grad_fn = bk_jax.dp_value_and_grad(model.loss, noise_multiplier=1.0, **options)
    return lambda params, batch, key: grad_fn(params, batch, key=key)


def flat(tree: Any) -> dict[str, list[float]]:
    """Arrays by their path, for JSON."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): np.asarray(x, np.float64).ravel().tolist() for path, x in leaves
    }


def collectives(compiled: Any) -> list[dict[str, Any]]:
    (module,) = hlo.load(compiled)
    return [
        {"kind": c.kind, "dims": c.dims, "bytes": c.nbytes, "ours": c.is_ours, "name": c.op_name}
        for c in find_collectives(module)
    ]


def findings(compiled: Any) -> dict[str, Any]:
    """What `bk-hlo lint` says of a program, and its exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(compiled.as_text())
        file.flush()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            command = ["lint", file.name, "--only", "private-collective", "--collective-limit", "0"]
            code = cli.main(command)
    return {"code": code, "said": said.getvalue()}


def on_mesh(
    name: str, layout: str, sizes: tuple[int, int], *, private_alone: bool = False
) -> dict[str, Any]:
    """The private and the plain step of a model on a mesh."""
    mesh = make_mesh(*sizes)
    on_data = NamedSharding(mesh, P("data"))
    model = MODELS[name](lambda x: jax.lax.with_sharding_constraint(x, on_data))
    places = {leaf: NamedSharding(mesh, spec) for leaf, spec in model.layouts[layout].items()}
    params = {leaf: jax.device_put(value, places[leaf]) for leaf, value in model.params.items()}
    batch = jax.tree.map(lambda x: jax.device_put(x, on_data), model.batch)
    whole = NamedSharding(mesh, P())
    stats = bk_jax.Stats(on_data, on_data, on_data, whole, whole)
    private = jax.jit(step(model), out_shardings=(whole, places, stats))
    private = private.lower(params, batch, KEY).compile()
    found = {
        "results": flat(private(params, batch, jax.device_put(KEY, whole))),
        "private": collectives(private),
        "lint": findings(private),
    }
    if private_alone:
        return found
    plain = jax.jit(jax.value_and_grad(model.loss), out_shardings=(whole, places))
    plain = plain.lower(params, batch).compile()
    return {**found, "plain": collectives(plain)}


def on_one_device(model: Model) -> dict[str, Any]:
    compiled = jax.jit(step(model)).lower(model.params, model.batch, KEY)
    return flat(compiled.compile()(model.params, model.batch, KEY))


def main(path: str) -> None:
    found: dict[str, Any] = {}
    for name, layouts in LAYOUTS.items():
        found[name] = {"one": on_one_device(MODELS[name]())}
        for layout, sizes in layouts.items():
            found[name][layout] = on_mesh(name, layout, sizes)
    found["others"] = others()
    with open(path, "w") as file:
        json.dump(found, file)


def others() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_native, "available", lambda target: False)
        twins = on_mesh("transformer", "tensor", (2, 4), private_alone=True)
        twin_noise = noise_everywhere(CUTS[2::3])  # they take long to compile
    return {
        "twins": twins,
        "noise": noise_everywhere(CUTS),
        "twin noise": twin_noise,
        "bad": bad_program(),
        "norms": norms_of_every_cut(),
        "tied": tied_sums(),
        "microbatches": microbatches(),
        "explicit": explicit(),
        "mapped": mapped(),
        "vmapped": vmapped(),
        "equal": equal_layers(make_mesh),
        "patches": convolutions(make_mesh),
        "pages": {"devices.md": run_python(ROOT / "docs" / "devices.md")},
    }


def bad_program() -> dict[str, Any]:
    """The calls without their partitioning, so that XLA gathers their operands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "is_cut", lambda: False)
        return on_mesh("experts", "data", (8, 1), private_alone=True)


CUTS = [
    ((2, 1), P("data")), ((4, 1), P("data")), ((8, 1), P("data")), ((2, 4), P("model")),
    ((2, 4), P(("data", "model"))), ((2, 4), P(("model", "data"))),
]  # fmt: skip


def noise_everywhere(cuts: list[tuple[tuple[int, int], P]]) -> list[bool]:
    """Whether noise of arrays that are cut in these ways has the bits that it has on one device."""
    arrays = [np.zeros(shape, np.float32) for shape in (*[(8, 16)] * 3, (8,), ())]

    def draw(arrays: Any) -> Any:
        return add_noise(arrays, KEY, 1.0)

    whole = jax.jit(draw).lower(arrays).compile()(arrays)
    same = []
    for sizes, spec in cuts:
        mesh = make_mesh(*sizes)
        specs = (spec, P(None, *spec), P("model", "data"), spec, P())
        places = [NamedSharding(mesh, s) for s in specs]
        compiled = jax.jit(draw, out_shardings=places).lower(arrays)
        parts = compiled.compile()
        assert not collectives(parts), "noise needs nobody else"
        pairs = zip(whole, parts(arrays), strict=True)
        same += [np.array_equal(one, many) for one, many in pairs]
    return same


def norms_of_every_cut() -> dict[str, Any]:
    """Ghost norms of small integers, however activations `[B, 1, T, d]` and gradients are cut."""
    rng = np.random.default_rng(0)
    a, g = (rng.integers(-3, 4, (8, 1, 4, n)).astype(np.float32) for n in (8, 16))
    mesh = make_mesh(2, 4)
    cuts = {
        "d": (P("data", None, None, "model"), P("data")),
        "p": (P("data"), P("data", None, None, "model")),
        "d and p by the same devices": (P("data", None, None, "model"),) * 2,
        "d and p by different devices": (P(None, None, None, "data"), P(None, None, None, "model")),
        "t": (P("data", None, "model"),) * 2,
        "t and p": (P("data", None, "model"), P("data", None, None, "model")),
    }
    found = {"truth": np.square(np.einsum("bntd,bntp->bndp", a, g)).sum((1, 2, 3)).tolist()}
    for ghost in (True, False):
        for name, specs in cuts.items():
            places = [NamedSharding(mesh, spec) for spec in specs]

            def norms(a: jax.Array, g: jax.Array, ghost: bool = ghost) -> Any:
                block: Any = types.SimpleNamespace(route="ghost" if ghost else "fused", leaves=(0,))
                return norms_by_group([Measured(Dense(block, Operands(a, g)), 0)], 1)[0][0]

            lowered = jax.jit(norms, in_shardings=places).lower(a, g)
            compiled = lowered.compile()
            given = [jax.device_put(x, place) for x, place in zip((a, g), places, strict=True)]
            estimate, upper = compiled(*given)
            found[f"{name}, {'ghost' if ghost else 'direct'}"] = {
                "estimate": np.asarray(estimate).tolist(),
                "upper": np.asarray(upper).tolist(),
                "collectives": collectives(compiled),
            }
    return found


def tied_sums() -> dict[str, float]:
    """A tied table's sum of small integers: how far it is from that of one device.

    The positions of the product are cut along model, those of the lookup are not; the table is wanted
    in pieces along the same axis, along that of the examples, or both.
    """
    rng = np.random.default_rng(0)
    left, right, gradients = (
        rng.integers(-3, 4, shape).astype("f")
        for shape in ((8, 1, 4, 32), (8, 1, 4, 16), (8, 4, 16))
    )
    ids, factor = rng.integers(0, 32, (8, 4)).astype(np.int32), np.ones(8, np.float32)
    arrays = (left, right, ids, gradients, factor)
    rule = partition.Rule((*tied.LABELS, "b"), ("r p",), scatters=True)

    def total(*arrays: jax.Array) -> jax.Array:
        return partition.sharded(lambda *_: rule)(tied._add_tables)(*arrays)

    one = np.asarray(jax.jit(total)(*arrays))
    mesh, positions = make_mesh(2, 4), P("data", None, "model")
    ins = [NamedSharding(mesh, s) for s in (positions, positions, *[P("data")] * 3)]
    found = {}
    for wanted in (P("model"), P("data"), P(("data", "model")), P("data", "model")):
        out = NamedSharding(mesh, wanted)
        lowered = jax.jit(total, in_shardings=ins, out_shardings=out).lower(*arrays)
        many = lowered.compile()(*map(jax.device_put, arrays, ins))
        found[str(wanted)] = float(np.abs(np.asarray(many) - one).max())
    return found


def microbatches() -> dict[str, Any]:
    """Four examples at a time, on four devices."""
    model, mesh = MODELS["experts"](), make_mesh(4, 1)
    on_data = NamedSharding(mesh, P("data"))
    batch = jax.tree.map(lambda x: jax.device_put(x, on_data), model.batch)
    params = jax.device_put(model.params, NamedSharding(mesh, P()))
    compiled = jax.jit(step(model, microbatch_size=4)).lower(params, batch, KEY)
    compiled = compiled.compile()
    return {"results": flat(compiled(params, batch, KEY)), "private": collectives(compiled)}


def explicit() -> dict[str, Any]:
    """A mesh of explicit axes, JAX's default, as the context."""
    model, mesh = MODELS["experts"](), make_mesh(8, 1, AxisType.Explicit)
    with jax.set_mesh(mesh):
        batch = jax.tree.map(lambda x: jax.device_put(x, P("data")), model.batch)
        params = jax.tree.map(lambda x: jax.device_put(x, P()), model.params)
        compiled = jax.jit(step(model)).lower(params, batch, KEY)
        compiled = compiled.compile()
        return {"results": flat(compiled(params, batch, KEY)), "private": collectives(compiled)}


def mapped() -> dict[str, Any]:
    """Inside `shard_map`: examples over data, experts over model, the sum over experts by hand."""
    model, mesh = MODELS["experts"](), make_mesh(4, 2)

    def loss(params: Any, batch: Any, axes: tuple[str, ...] = ("model",)) -> jax.Array:
        x, y = batch
        gate = jax.nn.softmax(x @ params["gate"])
        mine = params["up"].shape[0]
        first = jax.lax.axis_index("model") * mine
        gate = jax.lax.dynamic_slice_in_dim(gate, first, mine, axis=-1)
        h = jnp.tanh(jnp.einsum("btd,edh->beth", x, params["up"]))
        out = jax.lax.psum(jnp.einsum("beth,ehd,bte->btd", h, params["down"], gate), axes)
        return jnp.mean(jnp.square(out + params["bias"] - y))

    specs, data = model.layouts["tensor"], P("data")
    stats = bk_jax.Stats(data, data, data, P(), P())

    def run(loss: Any, check_vma: bool = True, **options: Any) -> Any:
        inside = jax.shard_map(
            step(dataclasses.replace(model, loss=loss), **options), mesh=mesh,
            in_specs=(specs, data, P()), out_specs=(P(), specs, stats), check_vma=check_vma,
        )  # fmt: skip
        return jax.jit(inside)(model.params, model.batch, KEY)

    def run_partly() -> Any:
        """Examples by hand, experts left to XLA."""
        inside = jax.shard_map(
            step(model), mesh=mesh, in_specs=(P(), data, P()), out_specs=(P(), P(), stats),
            axis_names={"data"},
        )  # fmt: skip
        params = jax.device_put(model.params, {k: NamedSharding(mesh, s) for k, s in specs.items()})
        return jax.jit(inside)(params, model.batch, KEY)

    def own_key(params: Any, batch: Any, key: Any) -> Any:
        own = jax.random.fold_in(key, jax.lax.axis_index("data"))
        return step(dataclasses.replace(model, loss=loss))(params, batch, own)

    def run_with_parts() -> Any:
        cut, out = {**specs, "gate": data}, (P(), specs, stats)
        inside = jax.shard_map(step(model), mesh=mesh, in_specs=(cut, data, P()), out_specs=out)
        return jax.jit(inside)(model.params, model.batch, KEY)

    def run_with_own_keys() -> Any:
        out = (P(), specs, stats)
        inside = jax.shard_map(own_key, mesh=mesh, in_specs=(specs, data, P()), out_specs=out)
        return jax.jit(inside)(model.params, model.batch, KEY)

    def refused(*args: Any, run: Callable[..., Any] = run, **options: Any) -> str:
        with pytest.raises(ValueError, match=r".") as caught:
            run(*args, **options)
        return str(caught.value)

    return {
        "results": flat(run(loss)),
        "microbatches": flat(run(loss, microbatch_size=1)),
        "partly": flat(run_partly()),
        "unchecked": refused(loss, check_vma=False),
        "mixes": refused(lambda params, batch: loss(params, batch, ("data", "model"))),
        "parts": refused(run=run_with_parts),
        "own keys": refused(run=run_with_own_keys),
        "differs": refused(lambda params, batch: loss(params, batch, ())),
    }


def vmapped() -> list[float]:
    """Two clip norms at once, by a user's own vmap over the step."""
    model = MODELS["experts"]()

    def norm(clip_norm: jax.Array) -> jax.Array:
        grad_fn = bk_jax.clipped_value_and_grad(model.loss, l2_clip_norm=clip_norm)
        return jnp.sum(jnp.square(grad_fn(model.params, model.batch)[1]["up"]))

    one = [float(jax.jit(norm)(np.float32(r))) for r in (0.1, 0.2)]
    both = jax.jit(jax.vmap(norm))(np.float32([0.1, 0.2]))
    return [float(x) for x in (*one, *both)]


if __name__ == "__main__":
    main(sys.argv[1])
