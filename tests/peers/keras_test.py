"""`bk_jax.keras.make_private` with the real Keras: the gradient and the batches of `model.fit`."""

import dataclasses

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers, ops
from support.documents import ROOT, run_python
from support.keras_models import (
    IDS,
    MODELS,
    WHOLE,
    D,
    N,
    X,
    Y,
    assert_same,
    made,
    step,
    transformer,
)

from bk_jax import privacy, sampling
from bk_jax.interop.keras import _dataset
from bk_jax.interop.keras_step import make_grad_fn

# Keras' own variables have an `__array__` of the time before NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

# --- the gradient ---


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_logs_are_those_of_keras_where_nothing_is_clipped(private, name):
    build, x, y, compiled = MODELS[name]
    plain, model = made(build, **compiled), private(made(build, **compiled))
    logs = plain.train_on_batch(x, y, return_dict=True)
    history = step(model, x, y)
    assert_same(model.get_weights(), plain.get_weights())
    assert set(history) == set(logs)
    for metric, value in logs.items():
        np.testing.assert_allclose(history[metric], [value], rtol=1e-5, err_msg=metric)


def clipped_mean(model, bound):
    """By `vmap`: gradients of rows, each cut to the bound."""
    others = [v.value for v in model.non_trainable_variables]
    metrics = [v.value for v in model.metrics_variables]

    def loss(trainable, x, y):
        found = model.compute_loss_and_updates(
            trainable, others, metrics, x[None], y[None], None, True, ()
        )
        return found[0]

    trainable = [v.value for v in model.trainable_variables]
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(trainable, X, Y)
    norms = jnp.sqrt(sum(jnp.sum(g.reshape(N, -1) ** 2, 1) for g in rows))
    factors = jnp.minimum(1.0, bound / norms)
    assert 0 < jnp.sum(factors < 1) < N  # some are clipped, some are not
    return [jnp.tensordot(factors, g, 1) / N for g in rows]


def test_each_example_is_clipped_and_an_earlier_plain_step_is_forgotten(private):
    bound = 0.7
    model = made()
    model.train_on_batch(X, Y)  # compiles a step that clips nothing
    before, expected = model.get_weights(), clipped_mean(model, bound)
    step(private(model, dataclasses.replace(WHOLE, l2_clip_norm=bound)))
    change = [a - b for a, b in zip(before, model.get_weights(), strict=True)]
    assert_same(change, expected)
    assert sum(np.sum(c**2) for c in change) <= bound**2


def test_kernels_take_the_routes_of_their_layers():
    """Layers of Keras are products and lookups to us; what is tapped itself is small."""
    model = made(transformer)
    model._symbolic_build(data_batch=(IDS, Y))
    state = [
        [v.value for v in vs] for vs in (model.non_trainable_variables, model.metrics_variables)
    ]
    weights = model.trainable_variables
    arguments = ([v.value for v in weights], ((IDS, Y), []))
    routes = make_grad_fn(model, {}).explain(*arguments, model_state=tuple(state)).routes()
    tapped = {v.name for i, v in enumerate(weights) if routes[str(i)] == "leaf"}
    assert tapped == {"bias", "beta", "gamma"}


def test_noise_is_that_of_the_plan_and_new_at_every_step(private):
    """An output without a loss has noise alone; its size is the multiplier over the batch size."""
    plan = dataclasses.replace(WHOLE, noise_multiplier=2.0, l2_clip_norm=0.5)
    model = private(
        made(lambda: keras.Sequential([keras.Input((D,)), layers.Dense(500)]), loss=zero), plan
    )
    draws = []
    for _ in range(2):
        before = model.get_weights()[0]
        step(model)
        draws.append((before - model.get_weights()[0]).ravel())
    stddev = 2.0 * 0.5 / N
    for draw in draws:
        np.testing.assert_allclose(np.std(draw), stddev, rtol=0.1)
    assert abs(np.corrcoef(*draws)[0, 1]) < 0.1


def zero(y, y_pred):
    del y
    return ops.zeros_like(y_pred[:, 0])


# --- batches ---


def test_an_example_is_in_a_batch_once_and_every_batch_has_its_own_key(tmp_path):
    plan = privacy.PrivacyPlan(
        num_examples=100,
        batch_size=30,
        steps=3,
        delta=1e-3,
        noise_multiplier=1.0,
        max_batch_size=60,
    )
    loader = sampling.Loader(np.arange(1, 101), sampling.PoissonSampler.of(plan))
    with privacy.open_ledger(tmp_path / "run.ledger", plan) as ledger:
        drawn = [_dataset(ledger, loader, 3)[0][0] for _ in range(3)]
        assert ledger.steps == 3
    for batch in drawn:
        real = batch.examples[~batch.is_padding_example]
        assert 0 < len(real) == len(set(real))
        assert not np.any(batch.examples[len(real) :])
    keys = [tuple(np.asarray(jax.random.key_data(batch.noise_key))) for batch in drawn]
    assert len(set(keys)) == 3


def differs_from_the_first(y, y_pred):
    del y
    return ops.any(y_pred != y_pred[:1], axis=-1)


def test_each_example_has_its_own_dropout(private):
    def build():
        return keras.Sequential([keras.Input((64,)), layers.Dropout(0.5), layers.Dense(64)])

    model = private(made(build, loss="mse", metrics=[differs_from_the_first]))
    ones = np.ones((N, 64), np.float32)
    history = step(model, ones, ones)
    np.testing.assert_allclose(history["differs_from_the_first"], [(N - 1) / N])
    seed = model.layers[0].seed_generator
    assert list(seed.state.numpy()) == [seed.state.numpy()[0], 1]  # the next step has others


def test_the_lines_of_the_page_run():
    assert run_python(ROOT / "docs" / "keras.md") == 2
