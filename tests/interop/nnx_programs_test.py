"""Private gradients of nnx programs: transforms around and inside, models in trees, any stream."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import bk_jax

B, D = 4, 3
X = np.arange(B * D, dtype=np.float32).reshape(B, D) / 4
BATCH = {"x": X, "y": np.asarray([1, -1, 2, 0], np.float32)}


class Network(nnx.Module):
    def __init__(self, seed=0):
        rngs = nnx.Rngs(seed)
        self.up, self.down = nnx.Linear(D, 5, rngs=rngs), nnx.Linear(5, 1, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))[:, 0]


class Rematted(nnx.Module):
    """Computes its layers again on the way back; with a norm and dropout if asked for."""

    def __init__(self, norm=False, rate=0.0):
        self.network = Network()
        self.norm = nnx.BatchNorm(D, rngs=nnx.Rngs(0)) if norm else None
        self.dropout = nnx.Dropout(rate, rngs=nnx.Rngs(1))

    @nnx.remat
    def __call__(self, x):
        x = x if self.norm is None else self.norm(x)
        return self.network(self.dropout(x))


class Stacked(nnx.Module):
    """Layers with dropout, applied by `nnx.scan`: a stream has a key for each layer."""

    def __init__(self, rate):
        rngs = nnx.Rngs(0)

        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def make(rngs):
            return nnx.Sequential(nnx.Linear(D, D, rngs=rngs), nnx.Dropout(rate, rngs=rngs))

        self.layers = make(rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def layer(x, layer):
            return jnp.tanh(layer(x))

        return layer(x, self.layers).sum(-1)


def loss_fn(model, batch):
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2)


def product(models, batch):
    """A loss of two models, wherever they are."""
    one, two = jax.tree.leaves(models, is_leaf=lambda m: isinstance(m, Network))[:2]
    return jnp.sum((one(batch["x"]) * two(batch["x"]) - batch["y"]) ** 2)


def unclipped(loss_fn=loss_fn, **options):
    options = {"l2_clip_norm": np.inf, "noise_multiplier": 0.0, **options}
    return bk_jax.nnx.value_and_grad(loss_fn, **options)


def assert_same(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)


# --- transforms ---

INSIDE = {
    "nnx.jit": (nnx.jit(loss_fn), Network),
    "nnx.remat": (loss_fn, Rematted),
    "nnx.remat in nnx.jit": (nnx.jit(loss_fn), Rematted),
    "nnx.scan": (loss_fn, lambda: Stacked(0.0)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_transforms_that_hand_variables_through_change_nothing(name):
    loss, make = INSIDE[name]
    grad_fn = unclipped(loss)
    assert_same(grad_fn(make(), BATCH)[1], nnx.grad(loss_fn)(make(), BATCH))
    routes = grad_fn.explain(make(), BATCH).routes()
    tapped = {path.rsplit("/", 1)[-1] for path, route in routes.items() if route == "leaf"}
    assert tapped == {"bias"}


@pytest.mark.parametrize("jit", [nnx.jit, lambda f: f], ids=["nnx.jit", "none"])
def test_a_change_inside_of_a_transform_is_refused(jit):
    with pytest.raises(ValueError, match=r"loss_fn changes 'norm/mean' \(BatchStat\), 'norm/var'"):
        unclipped(jit(loss_fn))(Rematted(norm=True), BATCH)


def test_a_value_that_is_exchanged_is_a_change():
    class Exchanging(nnx.Module):
        def __init__(self):
            self.one, self.two = nnx.Param(jnp.ones(D)), nnx.Param(jnp.ones(D))

        @nnx.remat
        def __call__(self, x):
            one = self.one[...]
            self.one[...], self.two[...] = self.two[...], one
            return x @ one

    with pytest.raises(ValueError, match=r"changes 'one' \(Param\), 'two' \(Param\)"):
        unclipped()(Exchanging(), BATCH)


def test_steps_in_a_scan_are_those_of_a_loop():
    batches = jax.tree.map(lambda x: np.stack([x, 2 * x, -x]), BATCH)
    keys = jax.random.split(jax.random.key(0), 3)
    grad_fn = bk_jax.nnx.value_and_grad(loss_fn, l2_clip_norm=0.5, normalize_by=B)

    def start():
        model = Network()
        return model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    def step(run, batch, key):
        model, optimizer = run
        value, grads = grad_fn(model, batch, key=key)
        optimizer.update(model, grads)
        return run, value

    @nnx.jit
    def train(run, batches, keys):
        scan = nnx.scan(in_axes=(nnx.Carry, 0, 0), out_axes=(nnx.Carry, 0))
        return scan(step)(run, batches, keys)[1]

    run, looped = start(), start()
    values = train(run, batches, keys)
    expected = [step(looped, jax.tree.map(lambda x, i=i: x[i], batches), keys[i]) for i in range(3)]
    np.testing.assert_allclose(values, [value for _, value in expected], rtol=1e-4)
    got, plain = (nnx.state(model, nnx.Param) for model, _ in (run, looped))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), got, plain)


# --- models in trees ---

TREES = {
    "tuple": lambda: (Network(0), Network(1)),
    "list": lambda: [Network(0), Network(1)],
    "dictionary": lambda: {"one": Network(0), "two": [Network(1)]},
    "with an array": lambda: (Network(0), Network(1), jnp.ones(2)),
}


@pytest.mark.parametrize("name", TREES)
def test_gradients_are_where_the_models_are(name):
    def with_arrays(models, batch):
        arrays = [x for x in jax.tree.leaves(models) if x.shape == (2,)]
        return product(models, batch) + sum(jnp.sum(x**2) for x in arrays)

    _, grads = unclipped(with_arrays)(TREES[name](), BATCH)
    expected = nnx.grad(with_arrays)(TREES[name](), BATCH)
    if name == "with an array":  # each of the examples adds it
        expected = (*expected[:2], B * expected[2])
    assert_same(grads, expected)


def test_an_optimizer_takes_the_gradient_of_several_models():
    models = TREES["dictionary"]()
    before = nnx.to_pure_dict(nnx.state(models))
    optimizer = nnx.Optimizer(models, optax.sgd(1.0), wrt=nnx.Param)
    _, grads = unclipped(product)(models, BATCH)
    optimizer.update(models, grads)
    moved = jax.tree.map(jnp.subtract, before, nnx.to_pure_dict(nnx.state(models)))
    assert_same(moved["two"][0], nnx.to_pure_dict(grads["two"][0]))


def test_labels_beside_a_model_are_refused():
    def loss(model, batch, other):
        return jnp.sum((model(batch["x"]) - other[1]) ** 2)

    with pytest.raises(ValueError, match="'other' at '1': an array with 4 rows, one for each"):
        unclipped(loss)(Network(), BATCH, (Network(1), BATCH["y"]))


def test_a_filter_sees_paths_inside_of_each_model():
    only = nnx.DiffState(0, lambda path, variable: path == ("down", "bias"))
    _, grads = unclipped(product, argnums=only)(TREES["tuple"](), BATCH)
    assert [jax.tree.map(jnp.shape, nnx.to_pure_dict(g)) for g in grads] == [
        {"down": {"bias": (1,)}}
    ] * 2


# --- streams ---


def test_every_layer_of_a_stack_has_its_own_random_numbers_for_each_example():
    def masks(model, batch):
        @nnx.scan(in_axes=(0,), out_axes=0)
        def mask(layer):
            return layer.layers[1](jnp.ones(16))

        return jnp.sum(model(batch["x"])), mask(model.layers)

    model = Stacked(0.5)
    grad_fn = unclipped(masks, has_aux=True)
    first, second = (np.asarray(grad_fn(model, BATCH)[0][1]) for _ in range(2))
    assert first.shape == (B, 2, 16)
    assert len({tuple(row) for row in np.concatenate([first, second]).reshape(-1, 16)}) == 4 * B
    assert list(model.layers.layers[1].rngs.count[...]) == [2, 2]


@pytest.mark.parametrize("how", ["position", "keyword"])
def test_streams_may_come_with_the_call(how):
    def with_rngs(model, batch, rngs):
        return loss_fn(model, batch), rngs.dropout()

    rngs = nnx.Rngs(dropout=3)
    grad_fn = unclipped(with_rngs, has_aux=True)
    call = {"position": ((rngs,), {}), "keyword": ((), {"rngs": rngs})}[how]
    (_, keys), _ = grad_fn(Network(), BATCH, *call[0], **call[1])
    assert len(set(map(tuple, np.asarray(jax.random.key_data(keys))))) == B
    assert rngs.dropout.count[...] == 1


def test_a_model_by_keyword_is_seen_by_all_examples():
    def distilled(student, batch, *, teacher):
        return jnp.sum((student(batch["x"]) - teacher(batch["x"])) ** 2)

    _, grads = unclipped(distilled)(Network(), BATCH, teacher=Network(1))
    expected = nnx.grad(lambda m, b: distilled(m, b, teacher=Network(1)))(Network(), BATCH)
    assert_same(grads, expected)


# --- forms of the call ---


def test_it_decorates():
    @bk_jax.nnx.value_and_grad(has_aux=True, noise_multiplier=0.0)
    def grad_fn(model, batch):
        return loss_fn(model, batch), model(batch["x"])

    (value, seen), _ = grad_fn(Network(), BATCH)
    assert value.shape == ()
    assert seen.shape == (B, 1)


def test_clip_norms_by_group_are_a_state():
    by_layer = nnx.State({"up": 3.0, "down": 4.0})
    grad_fn = bk_jax.nnx.value_and_grad(loss_fn, l2_clip_norm=by_layer, noise_multiplier=0.0)
    _, grads = grad_fn(Network(), BATCH)
    assert grad_fn.sensitivity() == 5.0
    assert optax.tree.norm(grads["up"]) <= 3.0 * B
