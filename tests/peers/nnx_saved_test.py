"""What is saved of nnx: a run in Orbax's checkpoints, goes on bit for bit; a step in a file."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from support.process import run_python

import bk_jax
from bk_jax import privacy, sampling

N, D = 200, 3
TABLE = {
    "x": np.random.default_rng(0).normal(size=(N, D)).astype(np.float32),
    "y": np.ones(N, np.float32),
}
PLAN = privacy.PrivacyPlan(
    num_examples=N,
    batch_size=20,
    steps=6,
    delta=1e-5,
    noise_multiplier=2.0,
    max_batch_size=48,
    pld_interval=0.05,
)
LOADER = sampling.Loader(TABLE, sampling.PoissonSampler.of(PLAN))


class Network(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.up, self.down = nnx.Linear(D, 5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.down(self.dropout(jnp.tanh(self.up(x))))[:, 0]


def loss_fn(model, batch):
    return jnp.mean((model(batch["x"]) - batch["y"]) ** 2)


GRAD = bk_jax.nnx.value_and_grad(loss_fn, **PLAN.options())


@nnx.jit
def update(model, optimizer, batch, key):
    padding = batch.is_padding_example
    _, grads = GRAD(model, batch.examples, key=key, is_padding_example=padding)
    optimizer.update(model, grads)


def start():
    model = Network()
    return model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)


def take(run, ledger, steps):
    for _ in range(steps):
        step = ledger.take()
        update(*run, LOADER.batch(step.sampling_key), step.noise_key)


def save(manager, run, ledger):
    state = nnx.to_pure_dict(nnx.state(run))
    parts = {
        "state": ocp.args.StandardSave(state),
        "ledger": ocp.args.JsonSave(dict(ledger.checkpoint())),
    }
    manager.save(ledger.steps, args=ocp.args.Composite(**parts))
    manager.wait_until_finished()


def restore(manager):
    """A run as it was saved, and the place of its ledger."""
    run = start()
    state = nnx.state(run)
    like = jax.tree.map(ocp.utils.to_shape_dtype_struct, nnx.to_pure_dict(state))
    parts = {"state": ocp.args.StandardRestore(like), "ledger": ocp.args.JsonRestore()}
    saved = manager.restore(manager.latest_step(), args=ocp.args.Composite(**parts))
    nnx.replace_by_pure_dict(state, saved["state"])
    nnx.update(run, state)
    return run, saved["ledger"]


def numbers(run):
    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state(run)))
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(x) if is_key(x) else x) for x in leaves]


def test_a_run_goes_on_bit_for_bit(tmp_path):
    """Model, optimizer, streams of random numbers and the ledger's place."""
    secret, whole = bk_jax.random.key(5), start()
    with privacy.open_ledger(tmp_path / "whole.ledger", PLAN, key=secret) as ledger:
        take(whole, ledger, PLAN.steps)
    with ocp.CheckpointManager(tmp_path / "checkpoints") as manager:
        first = start()
        with privacy.open_ledger(tmp_path / "run.ledger", PLAN, key=secret) as ledger:
            take(first, ledger, 3)
            save(manager, first, ledger)
        run, place = restore(manager)
    with privacy.open_ledger(tmp_path / "run.ledger", PLAN, checkpoint=place) as ledger:
        take(run, ledger, 3)
    for got, expected in zip(numbers(run), numbers(whole), strict=True):
        np.testing.assert_array_equal(got, expected)
    assert any(np.any(a != b) for a, b in zip(numbers(run), numbers(first), strict=True))


LOAD = """
    import os, pathlib
    import jax, numpy as np
    import bk_jax

    bk_jax.register_custom_calls()
    folder = pathlib.Path(os.environ["FOLDER"])
    step = jax.export.deserialize(bytearray((folder / "step").read_bytes()))
    arrays = dict(np.load(folder / "arrays.npz"))
    of = lambda name: {kind: arrays[name + kind] for kind in ("kernel", "bias")}
    params = {name: of(name) for name in ("up", "down")}
    _, grads = step.call(params, {"x": arrays["x"], "y": arrays["y"]}, arrays["key"])
    np.testing.assert_array_equal(grads["up"]["kernel"], arrays["expected"])
"""


@pytest.mark.native
def test_a_step_with_plain_dictionaries_is_exported(tmp_path):
    """JAX has no form in a file for states of nnx."""
    graphdef, params, others = nnx.split(Network(), nnx.Param, ...)

    def step(pure, batch, key_data):
        state = jax.tree.map(lambda variable: variable, params)
        nnx.replace_by_pure_dict(state, pure)
        model = nnx.merge(graphdef, state, others, copy=True)
        key = jax.random.wrap_key_data(key_data, impl=bk_jax.random.CHACHA20)
        value, grads = GRAD(model, batch, key=key)
        return value, nnx.to_pure_dict(grads)

    pure = nnx.to_pure_dict(params)
    batch = {name: column[:48] for name, column in TABLE.items()}
    call = (pure, batch, np.asarray(jax.random.key_data(bk_jax.random.key(1))))
    exported = bk_jax.export_step(jax.jit(step))(*call)
    (tmp_path / "step").write_bytes(exported.serialize())
    arrays = {name + kind: pure[name][kind] for name in ("up", "down") for kind in pure[name]}
    expected = jax.jit(step)(*call)[1]["up"]["kernel"]
    np.savez(tmp_path / "arrays.npz", **arrays, **batch, key=call[2], expected=expected)
    run_python(LOAD, FOLDER=str(tmp_path))
