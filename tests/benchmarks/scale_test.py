"""Llama's shapes on many GPUs: sizes, cuts, what is sent, and the tables of docs/scale.md."""

import json

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from benchmarks.gpu import scale, scale_document, wire
from benchmarks.gpu.layouts import parameter_specs
from benchmarks.steps import step_models

FOUND = json.loads(scale_document.DATA.read_text())


def model(name):
    return step_models.make(name, abstract=True, batch=1, length=8)


@pytest.mark.parametrize(
    ("name", "published"), [("llama", 1.24e9), ("llama_8b", 8.03e9), ("llama_70b", 70.6e9)]
)
def test_models_have_the_parameters_of_their_names(name, published):
    assert scale.weights_of(model(name).params) == pytest.approx(published, rel=5e-3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for name, all_ in scale.MESHES.items() for shape in all_.values()],
)
def test_every_matrix_is_cut_over_all_devices_and_evenly(name, shape):
    mesh = AbstractMesh(shape, ("data", "model"))
    params = model(name).params
    specs = parameter_specs(params, "both", mesh)
    for leaf, spec in zip(jax.tree.leaves(params), jax.tree.leaves(specs), strict=True):
        if min(leaf.shape[-2:]) < 100 or len(leaf.shape) == 1:  # vectors, and stacks of them
            assert not any(spec)
            continue
        assert {*spec} - {None} == {"data", "model"}
        for size, axis in zip(leaf.shape, spec, strict=True):
            assert size % mesh.shape.get(axis, 1) == 0


def test_layers_are_cut_by_columns_then_rows():
    mesh = AbstractMesh((2, 2), ("data", "model"))
    layers = parameter_specs(model("llama").params, "both", mesh)["layers"]
    assert {layers[name] for name in ("query", "gate", "up")} == {P(None, "data", "model")}
    assert {layers[name] for name in ("out", "down")} == {P(None, "model", "data")}


def test_lora_trains_factors_that_are_whole_on_every_device():
    task = step_models.make("llama", abstract=True, batch=1, length=8, depth=2)
    _, adapters = scale._adapted(task)
    assert len(adapters) == 7
    assert {part["a"].shape[-1] for part in adapters.values()} == {scale.RANK}
    specs = parameter_specs(adapters, "both", AbstractMesh((2, 2), ("data", "model")))
    assert not any(any(spec) for spec in jax.tree.leaves(specs))


# --- what is sent ---


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("all-gather", 600),
        ("all-reduce", 1200),
        ("reduce-scatter", 2400),
        ("collective-permute", 800),
    ],
)
def test_bytes_of_a_ring_of_four(kind, sent):
    assert wire.ring_bytes(kind, 800, 4) == sent


def test_rings_of_a_program():
    text = """
  %a.1 = f32[8] all-reduce(%x), channel_id=1, replica_groups={{0,8},{1,9}}, to_apply=%add
  ROOT %b = f32[8]{0} all-gather(%y), replica_groups=[2,8]<=[16], dimensions={0}
  %c = f32[8] collective-permute(%z), source_target_pairs={{0,1},{7,8}}
  %d = f32[8] collective-permute(%z), source_target_pairs={{0,1},{2,3}}
"""
    rings = wire.rings(text)
    assert rings == {"a.1": (0, 8), "b": tuple(range(8)), "c": (7, 8), "d": (0, 1)}
    assert [wire.place(ring) for ring in rings.values()] == [
        "between",
        "inside",
        "between",
        "inside",
    ]


def test_axes_of_a_mesh():
    assert wire.members("mesh['x'=2,'y'=3,'z'=2] {'x','z'}, dims") == (0, 1, 6, 7)


def test_another_way_of_writing_devices_is_an_error():
    with pytest.raises(ValueError, match="XLA writes them in a new way"):
        wire.members("mesh[0:4]")


def test_loops_count_as_often_as_they_run():
    """On one device there is nothing to send: the program is read, and the sums are empty."""
    step = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 2, x))
    assert wire.sent(step.lower(np.ones(4, np.float32)).compile()) == {"inside": {}, "between": {}}


# --- the page ---

ROW = {
    "plain": {
        "peak": 40e9,
        "flops": {"model": scale_document.FLOPS / 10, "ours": 0},
        "sent": {"inside": {"all-reduce": 450}, "between": {}},
    },
    "auto": {
        "peak": 50e9,
        "trained": 10**9,
        "flops": {"model": scale_document.FLOPS / 10, "ours": scale_document.FLOPS / 40},
        "sent": {"inside": {"all-reduce": 450e6}, "between": {"all-gather": 50e6}},
    },
}


def test_memory_has_the_state_of_the_optimizer_beside_it():
    *_, line = scale_document.memory({"llama all 8": ROW})
    assert line == "| 1B, all, 8 GPUs | 40 | 50 (1.25x) | 1.50 | yes |"


def test_what_does_not_fit_is_said():
    row = {**ROW, "auto": {**ROW["auto"], "peak": 100e9}}
    *_, line = scale_document.memory({"llama_70b lora 8": row})
    assert line.endswith("| no, 1.3 times |")


def test_times_add_what_is_sent_at_the_speed_of_its_links():
    row = {**ROW, "plain": {**ROW["plain"], "sent": {"inside": {}, "between": {}}}}
    *_, line = scale_document.seconds({"llama_8b all 8": row})
    assert line == "| 8B, all, 8 GPUs | 100 | 125 | 0 | 2 | 1.25 | 1.27 |"


def test_the_page_has_the_tables_of_the_file():
    document = scale_document.DOCUMENT.read_text()
    assert scale_document.filled(document, FOUND) == document


def test_every_size_and_mesh_is_on_the_page():
    wanted = {
        f"{m} {t} {n}" for m, all_ in scale.MESHES.items() for t in scale.TRAINED for n in all_
    }
    assert {name for name, row in FOUND.items() if {*scale.STEPS} <= row.keys()} == wanted
    assert all(row["auto"]["flops"]["ours"] > 0 for row in FOUND.values())
