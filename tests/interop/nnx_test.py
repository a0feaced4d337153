"""`bk_jax.nnx.value_and_grad` in place of `nnx.value_and_grad`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import bk_jax
from bk_jax import audit, sampling
from bk_jax.paths import leaf_names

B, D = 4, 3
X = np.arange(B * D, dtype=np.float32).reshape(B, D) / 4
Y = np.asarray([1, -1, 2, 0], np.float32)
BATCH = {"x": X, "y": Y}


class Network(nnx.Module):
    """Two layers, random numbers between them, and a norm with running statistics if asked for."""

    def __init__(self, rngs, rate=0.0, norm=False):
        self.up = nnx.Linear(D, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs) if norm else None
        self.dropout = nnx.Dropout(rate, rngs=rngs)
        self.down = nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x):
        x = self.up(x)
        x = x if self.norm is None else self.norm(x)
        return self.down(self.dropout(jnp.tanh(x)))[:, 0]


def loss_fn(model, batch):
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2)


def network(**options):
    return Network(nnx.Rngs(0), **options)


def unclipped(loss_fn=loss_fn, **options):
    """Without clipping and noise a private gradient is the plain one of the sum."""
    options = {"l2_clip_norm": np.inf, "noise_multiplier": 0.0, **options}
    return bk_jax.nnx.value_and_grad(loss_fn, **options)


def assert_same(got, expected):
    assert leaf_names(got) == leaf_names(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


def test_the_gradient_is_that_of_nnx_where_nothing_is_clipped():
    value, grads = unclipped()(network(), BATCH)
    plain, expected = nnx.value_and_grad(loss_fn)(network(), BATCH)
    assert isinstance(grads, nnx.State)
    assert_same(grads, expected)
    np.testing.assert_allclose(value, plain / B, rtol=1e-5)  # the mean over examples


def test_the_routes_are_those_of_the_layers():
    grad_fn = bk_jax.nnx.value_and_grad(loss_fn)
    routes = grad_fn.explain(network(), BATCH).routes()
    assert routes["down/bias"] == "leaf"
    assert {routes["up/kernel"], routes["down/kernel"]} <= {"ghost", "store", "fused"}
    abstract = nnx.eval_shape(network)
    assert grad_fn.explain(abstract, BATCH).routes() == routes


@pytest.mark.parametrize("jit", [nnx.jit, jax.jit, lambda f: f], ids=["nnx.jit", "jax.jit", "none"])
def test_an_optimizer_takes_the_gradient(jit):
    """One step of SGD by 1 / B is the mean gradient; the model is changed in place."""
    model = network()
    optimizer = nnx.Optimizer(model, optax.sgd(1.0), wrt=nnx.Param)
    expected = jax.tree.map(
        lambda w, g: w - g / B,
        nnx.state(model, nnx.Param),
        nnx.grad(loss_fn)(network(), BATCH),
    )
    grad_fn = unclipped(normalize_by=B)

    def step(model, optimizer, batch):
        _, grads = grad_fn(model, batch)
        optimizer.update(model, grads)
        return nnx.state(model, nnx.Param)

    assert_same(jit(step)(model, optimizer, BATCH), expected)


def test_noise_needs_a_key_and_two_keys_give_two_gradients():
    grad_fn = bk_jax.nnx.value_and_grad(loss_fn, l2_clip_norm=0.5)
    one, two = (grad_fn(network(), BATCH, key=jax.random.key(i))[1] for i in range(2))
    assert not np.any(np.asarray(one["up"]["kernel"]) == np.asarray(two["up"]["kernel"]))
    with pytest.raises(ValueError, match="noise needs a key"):
        grad_fn(network(), BATCH)


# --- what is trained ---


def test_a_filter_selects_by_type():
    class Model(nnx.Module):
        def __init__(self):
            self.base = nnx.LoRALinear(D, 1, lora_rank=2, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.base(x)[:, 0]

    only = nnx.DiffState(0, nnx.LoRAParam)
    _, grads = unclipped(argnums=only)(Model(), BATCH)
    _, expected = nnx.value_and_grad(loss_fn, argnums=only)(Model(), BATCH)
    assert leaf_names(grads) == ["base/lora/lora_a", "base/lora/lora_b"]
    assert_same(grads, expected)


def test_a_filter_selects_by_path():
    _, grads = unclipped(argnums=nnx.DiffState(0, nnx.PathContains("down")))(network(), BATCH)
    assert leaf_names(grads) == ["down/bias", "down/kernel"]


def test_two_models_are_differentiated_together():
    def loss_of_two(one, two, batch):
        return jnp.sum((one(batch["x"]) * two(batch["x"])) ** 2)

    argnums = (0, nnx.DiffState(1, nnx.PathContains("up")))
    _, grads = unclipped(loss_of_two, argnums=argnums, batch_argnums=2)(network(), network(), BATCH)
    _, expected = nnx.value_and_grad(loss_of_two, argnums=argnums)(network(), network(), BATCH)
    assert isinstance(grads, tuple)
    for got, plain in zip(grads, expected, strict=True):
        assert_same(got, plain)


def test_a_model_that_is_not_differentiated_is_seen_by_all_examples():
    def distilled(student, batch, teacher):
        return jnp.sum((student(batch["x"]) - teacher(batch["x"])) ** 2)

    teacher = Network(nnx.Rngs(1))
    _, grads = unclipped(distilled)(network(), BATCH, teacher)
    _, expected = nnx.value_and_grad(distilled)(network(), BATCH, teacher)
    assert_same(grads, expected)


def test_shared_variables_are_one_parameter():
    class Tied(nnx.Module):
        def __init__(self):
            self.a = nnx.Linear(D, D, rngs=nnx.Rngs(0))
            self.b = self.a

        def __call__(self, x):
            return self.b(jnp.tanh(self.a(x))).sum(-1)

    _, grads = unclipped()(Tied(), BATCH)
    _, expected = nnx.value_and_grad(loss_fn)(Tied(), BATCH)
    assert leaf_names(grads) == ["a/bias", "a/kernel"]
    assert_same(grads, expected)


def test_nothing_to_train_is_an_error():
    with pytest.raises(ValueError, match="argument 0 has no variable that the filter of argnums"):
        unclipped(argnums=nnx.DiffState(0, nnx.LoRAParam))(network(), BATCH)


def test_statistics_are_not_trained_by_a_wide_filter():
    model = network(norm=True)
    model.eval()
    with pytest.raises(ValueError, match="'norm/mean' \\(BatchStat\\)"):
        unclipped(argnums=nnx.DiffState(0, ...))(model, BATCH)


def test_labels_that_are_no_part_of_the_batch_are_refused():
    with pytest.raises(ValueError, match=r"write batch_argnums=\(1, 2\)"):
        unclipped(lambda model, x, y: jnp.sum((model(x) - y) ** 2))(network(), X, Y)


# --- streams ---


def noise_of(model, batch):
    """A loss that shows the random numbers that one example gets."""
    return jnp.sum(model.up(batch["x"])), model.dropout(jnp.ones((16,)))


def masks(model, **options):
    (_, aux), _ = unclipped(noise_of, has_aux=True, **options)(model, BATCH)
    return np.asarray(aux)


@pytest.mark.parametrize("keep_batch_dim", [True, False])
def test_each_example_has_its_own_random_numbers(keep_batch_dim):
    rows = masks(network(rate=0.5), keep_batch_dim=keep_batch_dim)
    assert len({tuple(row) for row in rows}) == B


def test_streams_are_split_as_nnx_splits_them():
    model = network(rate=0.5)
    rows = masks(network(rate=0.5))
    nnx.split_rngs(model, splits=B)
    keys = model.dropout.rngs.key[...]
    for row, key in zip(rows, keys, strict=True):
        rng = nnx.RngStream(key, tag="default")
        expected = nnx.Dropout(0.5, deterministic=False)(jnp.ones(16), rngs=rng)
        np.testing.assert_array_equal(row, expected)


def test_the_next_call_has_other_random_numbers():
    model = network(rate=0.5)
    first = masks(model)
    assert model.dropout.rngs.count[...] == 1
    assert not np.array_equal(first, masks(model))
    assert model.dropout.rngs.count[...] == 2


def test_streams_count_on_under_jit():
    model = network(rate=0.5)
    grad_fn = unclipped()

    @nnx.jit
    def step(model, batch):
        return grad_fn(model, batch)[0]

    assert step(model, BATCH) != step(model, BATCH)
    assert model.dropout.rngs.count[...] == 2


def test_explaining_draws_nothing():
    model = network(rate=0.5)
    unclipped().explain(model, BATCH)
    assert model.dropout.rngs.count[...] == 0


# --- state ---


def test_batch_norm_in_training_mode_is_refused():
    with pytest.raises(ValueError, match=r"loss_fn changes 'norm/mean' \(BatchStat\)") as info:
        unclipped()(network(norm=True), BATCH)
    assert "GroupNorm or LayerNorm" in str(info.value)
    assert "model.eval()" in str(info.value)


def test_batch_norm_with_fixed_statistics_is_a_layer():
    def model():
        made = network(norm=True)
        made.eval()
        return made

    _, grads = unclipped()(model(), BATCH)
    assert_same(grads, nnx.grad(loss_fn)(model(), BATCH))


def test_a_state_that_the_loss_changes_is_refused():
    class Counting(nnx.Module):
        def __init__(self):
            self.dense = nnx.Linear(D, 1, rngs=nnx.Rngs(0))
            self.calls = nnx.Variable(jnp.zeros(()))

        def __call__(self, x):
            self.calls[...] += 1
            self.seen = nnx.Intermediate(x)
            return self.dense(x)[:, 0]

    with pytest.raises(
        ValueError, match=r"changes 'calls' \(Variable\), 'seen' \(Intermedia"
    ) as info:
        unclipped()(Counting(), BATCH)
    assert "has_aux=True" in str(info.value)


def test_a_state_with_as_many_rows_as_the_batch_is_no_data():
    class Table(nnx.Module):
        def __init__(self):
            self.dense = nnx.Linear(D, 1, rngs=nnx.Rngs(0))
            self.table = nnx.Variable(jnp.ones((B, 1)))

        def __call__(self, x):
            return self.dense(x)[:, 0] * self.table[...].sum()

    value, _ = unclipped()(Table(), BATCH)
    assert np.isfinite(value)


# --- what else a private gradient can do ---


def test_it_audits():
    grad_fn = bk_jax.nnx.value_and_grad(loss_fn, l2_clip_norm=0.5, noise_multiplier=0.0)
    assert grad_fn.sensitivity() == 0.5
    audit.assert_sensitivity(grad_fn, network(), BATCH)


def test_parts_of_a_batch_add_up():
    grad_fn = unclipped()
    halves = [jax.tree.map(lambda x, i=i: x[i : i + 2], BATCH) for i in (0, 2)]
    one, two = (grad_fn.clipped_sums(network(), half).sums for half in halves)
    grads = grad_fn.release(jax.tree.map(jnp.add, one, two))
    assert_same(grads, grad_fn(network(), BATCH)[1])


def test_a_loop_over_parts_wants_trees():
    """It would compile a part once, and all parts would have the same random numbers."""
    with pytest.raises(TypeError, match="with parameters as a tree of arrays, got a NnxValueAnd"):
        sampling.accumulated(unclipped())


def test_unknown_options_are_errors():
    with pytest.raises(TypeError, match="unexpected keyword argument 'holomorphic'"):
        bk_jax.nnx.value_and_grad(loss_fn, holomorphic=True)
