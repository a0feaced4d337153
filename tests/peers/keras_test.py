"""`bk_jax.keras.make_private` with the real Keras: what `model.fit` does, spends and refuses."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers, ops
from support.documents import ROOT, run_python

import bk_jax
from bk_jax import privacy, sampling
from bk_jax.interop.keras import _dataset
from bk_jax.interop.keras_step import make_grad_fn

# Keras' own variables have an `__array__` of the time before NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

N, D, T = 8, 4, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, 2, N)
IDS = RNG.integers(0, 7, (N, T))

# Every example is in every batch, there are rows of padding, and noise is next to nothing.
WHOLE = privacy.PrivacyPlan(
    num_examples=N,
    batch_size=N,
    steps=4,
    delta=1e-3,
    noise_multiplier=1e-7,
    l2_clip_norm=100.0,
    max_batch_size=N + 3,
    pld_interval=0.05,
)


def sequential():
    return keras.Sequential(
        [keras.Input((D,)), layers.Dense(3, "tanh"), layers.Dense(2, "softmax")]
    )


def functional():
    """Two inputs, two outputs, and a penalty."""
    inputs = [keras.Input((D,), name="x"), keras.Input((T,), dtype="int32", name="ids")]
    words = layers.Flatten()(layers.Embedding(7, 2)(inputs[1]))
    hidden = layers.Dense(3, "tanh", kernel_regularizer="l2")(
        layers.concatenate([inputs[0], words])
    )
    outputs = [
        layers.Dense(2, "softmax", name="one")(hidden),
        layers.Dense(1, name="two")(hidden),
    ]
    return keras.Model(inputs, outputs)


def transformer():
    ids = keras.Input((T,), dtype="int32")
    h = layers.Embedding(7, 4)(ids)
    h = layers.LayerNormalization()(h + layers.MultiHeadAttention(2, 2)(h, h, use_causal_mask=True))
    h = layers.GlobalAveragePooling1D()(h + layers.Dense(4, "gelu")(h))
    return keras.Model(ids, layers.Dense(2, "softmax")(h))


CROSS_ENTROPY = "sparse_categorical_crossentropy"
ONE = {"loss": CROSS_ENTROPY, "metrics": ["accuracy"]}
TWO = {"loss": [CROSS_ENTROPY, "mse"], "metrics": [["accuracy"], ["mae"]]}
MODELS = {
    "sequential": (sequential, X, Y, ONE),
    "functional": (functional, [X, IDS], [Y, X[:, 0]], TWO),
    "transformer": (transformer, IDS, Y, ONE),
}


def made(build=sequential, optimizer=None, **compiled):
    keras.utils.set_random_seed(0)
    model = build()
    model.compile(optimizer or keras.optimizers.SGD(1.0), **compiled or ONE)
    return model


@pytest.fixture
def private(tmp_path):
    """Makes a model private, with the ledger of this test."""

    def make(model=None, plan=WHOLE, **arguments):
        arguments = {"ledger": tmp_path / "run.ledger", "plan": plan, **arguments}
        return bk_jax.keras.make_private(made() if model is None else model, **arguments)

    return make


def step(model, x=X, y=Y, **arguments):
    return model.fit(x, y, epochs=1, steps_per_epoch=1, verbose=0, **arguments).history


def assert_same(got, expected):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


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


# --- the run ---

RUN = privacy.PrivacyPlan(
    num_examples=200,
    batch_size=50,
    steps=17,
    delta=1e-3,
    noise_multiplier=0.5,
    max_batch_size=96,
    pld_interval=0.05,
)
RUN_X = RNG.normal(size=(200, D)).astype(np.float32)
RUN_Y = (RUN_X.sum(1) > 0).astype(np.int64)


def test_fit_learns_until_the_plan_is_spent_and_says_what_it_cost(private):
    model = private(made(optimizer="adam"), RUN)
    model.optimizer.learning_rate = 0.1
    seen = []
    callback = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append((epoch, model.privacy.ledger.steps))
    )
    data = {"validation_data": (RUN_X, RUN_Y), "callbacks": [callback], "verbose": 0}
    history = model.fit(RUN_X, RUN_Y, epochs=2, **data).history
    assert seen == [(0, 4), (1, 8)]  # an epoch is 200 // 50 steps
    assert model.privacy.epsilon() == RUN.epsilon(8)
    last = model.fit(RUN_X, RUN_Y, **data).history
    assert model.privacy.ledger.steps == 16
    assert last["val_accuracy"][-1] > 0.9 > history["val_accuracy"][0]
    model.fit(RUN_X, RUN_Y, verbose=0)  # what is left is less than an epoch
    assert model.privacy.epsilon() == RUN.epsilon()
    with pytest.raises(ValueError, match="asked for 1 steps, but the plan has 0 of 17 left"):
        model.fit(RUN_X, RUN_Y)


@pytest.mark.parametrize("how", [{"steps_per_execution": 3}, {"run_eagerly": True}], ids=str)
def test_each_step_is_paid_for_once_however_keras_takes_it(private, how):
    model = private(made(**ONE, **how), RUN)
    model.fit(RUN_X, RUN_Y, epochs=1, verbose=0)
    assert model.privacy.ledger.steps == model.optimizer.iterations == 4


def test_training_stops_when_a_callback_says_so(private):
    def stop(batch, logs):
        model.stop_training = batch == 1

    model = private(plan=RUN)
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    model.fit(RUN_X, RUN_Y, callbacks=[callback], verbose=0)
    assert model.privacy.ledger.steps == model.optimizer.iterations == 2


def test_a_saved_model_goes_on_with_its_ledger(private, tmp_path):
    model = private()
    step(model)
    model.save(tmp_path / "model.keras")
    saved = json.loads(json.dumps(model.privacy.checkpoint()))
    model.privacy.ledger.close()
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is keras.Sequential
    assert_same(loaded.get_weights(), model.get_weights())
    assert not hasattr(loaded, "privacy")
    with pytest.raises(privacy.LedgerError, match="1 steps on record, but no checkpoint was given"):
        private(loaded)
    private(loaded, plan=None, checkpoint=saved)
    step(loaded)
    assert loaded.privacy.plan == WHOLE
    assert loaded.privacy.ledger.steps == 2
    assert loaded.optimizer.iterations == 2


def test_a_budget_becomes_a_plan(private):
    numbers = {"delta": 1e-3, "num_examples": 100, "batch_size": 20, "steps": 5}
    model = private(plan=None, epsilon=2.0, l2_clip_norm=0.5, **numbers)
    plan = model.privacy.plan
    assert 1.9 < plan.epsilon() <= 2.0
    assert (plan.steps, plan.l2_clip_norm) == (5, 0.5)
    assert plan.max_batch_size % 8 == 0


# --- what is refused, before it costs a step ---


def with_batch_norm(**options):
    return keras.Sequential(
        [
            keras.Input((D,)),
            layers.BatchNormalization(**options, name="norm"),
            layers.Dense(2, "softmax"),
        ]
    )


def test_state_that_crosses_examples_is_refused(private):
    model = private(made(with_batch_norm))
    with pytest.raises(ValueError, match=r"norm/moving_mean', '\w*/norm/moving_variance'") as info:
        step(model)
    assert "LayerNormalization or GroupNormalization" in str(info.value)
    assert model.privacy.ledger.steps == 0


def test_batch_normalization_with_fixed_statistics_is_a_layer(private):
    plain, model = (made(lambda: with_batch_norm(trainable=False)) for _ in range(2))
    plain.train_on_batch(X, Y)
    step(private(model))
    assert_same(model.get_weights(), plain.get_weights())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_weight": np.ones(N)}, "takes no sample_weight: every example counts once"),
        ({"class_weight": {0: 2.0}}, "takes no class_weight: every example counts once"),
        ({"validation_split": 0.5}, "takes no validation_split: .* pass validation_data"),
        ({"batch_size": 4}, "takes no batch_size: the plan decides it"),
        ({"epochs": 2, "steps_per_epoch": 3}, "asked for 6 steps, but the plan has 4 of 4 left"),
        ({"x": X[1:], "y": Y[1:]}, "the data has 7 examples, but the plan was made for 8"),
        ({"x": (X for _ in range(2)), "y": None}, "got a generator. Data sets and generators"),
        ({"x": X.tolist()}, "arrays of NumPy or JAX, .* got a float"),
    ],
)
def test_fit_refuses(private, arguments, message):
    model = private()
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(**{"x": X, "y": Y, **arguments})
    assert model.privacy.ledger.steps == 0


def test_batches_that_others_choose_are_refused(private):
    model = private()
    with pytest.raises(ValueError, match="train_on_batch, and loops that call train_step"):
        model.train_on_batch(X, Y)


def test_loss_scaling_is_refused(private):
    model = private(made(optimizer=keras.optimizers.SGD(1.0, loss_scale_factor=2.0)))
    with pytest.raises(ValueError, match="clipped at another norm than the plan's"):
        step(model)


def test_a_model_may_be_compiled_later(private):
    model = private(sequential())
    with pytest.raises(ValueError, match=r"compile the model before fit: model\.compile"):
        step(model)
    model.compile("sgd", **ONE)
    step(model)
    assert model.privacy.ledger.steps == 1


def test_distributions_are_refused(private):
    model = private()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0"]))
    try:
        with pytest.raises(ValueError, match="trains on one device"):
            step(model)
    finally:
        keras.distribution.set_distribution(None)


class OwnStep(keras.Sequential):
    def train_step(self, state, data):
        return super().train_step(state, data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": layers.Dense(1)}, r"expects a keras\.Model, got a Dense"),
        ({"model": OwnStep()}, "OwnStep has a train_step of its own.*compute_loss"),
        ({"noise_multiplier": 0.0}, "decide noise_multiplier; leave it out"),
        ({"epsilon": 1.0}, "leave out epsilon"),
        (
            {"plan": None, "epsilon": 1.0},
            "with epsilon, make_private needs delta, num_ex.* batch_size;",
        ),
        (
            {"plan": dataclasses.replace(WHOLE, max_batch_size=None)},
            "PrivacyPlan with max_batch_size",
        ),
        ({"holomorphic": True}, "no argument holomorphic; options .* clipping"),
    ],
)
def test_make_private_refuses(private, arguments, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        private(**arguments)
    assert not (tmp_path / "run.ledger").exists()


@pytest.mark.parametrize(
    ("module", "name", "answer", "message"),
    [
        (keras.backend, "backend", "torch", "Keras runs on torch, .* KERAS_BACKEND=jax"),
        (keras.config, "is_nnx_enabled", True, "nnx enabled has train steps of its own"),
    ],
)
def test_other_modes_of_keras_are_refused(private, monkeypatch, module, name, answer, message):
    monkeypatch.setattr(module, name, lambda: answer)
    with pytest.raises(ValueError, match=message):
        private(sequential())


def test_a_model_is_made_private_once(private):
    model = private()
    with pytest.raises(ValueError, match="private already, and its ledger goes on"):
        private(model)


def test_the_lines_of_the_page_run():
    assert run_python(ROOT / "docs" / "keras.md") == 2
