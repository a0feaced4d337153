"""Steps for several GPUs: they send what ordinary training sends, and two numbers for each example."""

import functools

import jax
import jax.numpy as jnp
import pytest
from devices.networks import MODELS
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import bk_jax
from benchmarks.gpu import wire
from benchmarks.gpu.programs import compile_program, described, make_mesh
from bk_jax.hlo.collectives import find_collectives
from gpu_programs import cases, gates
from gpu_programs.cases import Case

LAYOUTS = {"data": (4, 1), "fsdp": (4, 1), "tensor": (2, 2)}
EXAMPLES = 8


def per_example(loss):
    """A private step as one may write it by hand; the gradients of all examples meet on each device."""

    def step(params, batch):
        each = jax.vmap(jax.grad(loss), (None, 0))(params, batch[:, None])
        whole = jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, P()), each)
        return 0.0, jax.tree.map(lambda x: x.sum(0), whole)

    return step


STEPS = {
    "plain": jax.value_and_grad,
    "private": bk_jax.clipped_value_and_grad,
    "broken": per_example,
}


@functools.cache
def compiled(layout, step):
    """A transformer of tests/devices, which pins examples to their devices, as people do."""
    mesh = make_mesh("a100", *LAYOUTS[layout])
    pinned = NamedSharding(mesh, P("data"))
    model = MODELS["transformer"](lambda x: jax.lax.with_sharding_constraint(x, pinned))
    specs = model.layouts[layout]
    places = {leaf: NamedSharding(mesh, spec) for leaf, spec in specs.items()}
    jitted = jax.jit(STEPS[step](model.loss), out_shardings=(NamedSharding(mesh, P()), places))
    params = described(model.params, specs, mesh, jnp.float32)
    batch = described(model.batch, P("data"), mesh)
    return compile_program(jitted, params, batch).module()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_collectives_are_those_of_the_plain_step(layout):
    private, plain = compiled(layout, "private"), compiled(layout, "plain")
    assert find_collectives(private)
    assert gates.more_collectives(private, plain, EXAMPLES) == []


def test_gradients_that_leave_their_device_are_found():
    said = gates.more_collectives(compiled("data", "broken"), compiled("data", "plain"), EXAMPLES)
    assert any(line.startswith("all-gather: ") for line in said)


def test_without_set_mesh_a_process_with_one_device_does_not_know_of_several(monkeypatch):
    """Why `jax.set_mesh` stands around a trace that is made ahead for other devices."""
    from bk_jax.sharding import partition

    assert jax.device_count() == 1
    assert not partition.many_devices()
    with jax.set_mesh(make_mesh("a100", data=4)):
        assert partition.many_devices()


LLAMA = {"depth": 3, "d": 256, "hidden": 512, "head": 32, "groups": 4, "words": 512}
CASE = Case(
    "llama", "h100", "bfloat16", (("batch", 4), ("length", 96), *LLAMA.items()), "both", (2, 2)
)
WIDER = 2.02  # reductions of sums are float32, of the plain step's gradients bfloat16


def test_a_step_cut_along_both_axes_sends_nothing_of_another_kind():
    """What docs/scale.md says of large ones: parameters are gathered alike, sums are scattered."""
    private, plain = (cases.compiled(CASE, step) for step in ("auto", "plain"))
    ours, theirs = wire.sent(private.compiled)["inside"], wire.sent(plain.compiled)["inside"]
    assert ours["all-gather"] <= theirs["all-gather"]
    assert ours["reduce-scatter"] <= WIDER * theirs["reduce-scatter"]
    assert sum(ours.values()) <= WIDER * sum(theirs.values())
    assert gates.per_sample_gradients(private.module(), cases.weights(CASE), 2) == []
