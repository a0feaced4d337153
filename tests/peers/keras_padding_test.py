"""Rows of padding in a private Keras model that is not finite on them: x / sum(x) of zeros is NaN."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import layers, ops
from support.keras_models import ONE, TWO, WHOLE, D, X, Y, assert_same, made, step

from bk_jax import privacy, random
from bk_jax.sampling import PoissonSampler

# Keras' own variables have an `__array__` of the time before NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def shares(x):
    return x / ops.sum(ops.abs(x), -1, keepdims=True)


def one_output():
    return keras.Sequential(
        [keras.Input((D,)), layers.Lambda(shares), layers.Dense(2, "softmax", name="one")]
    )


def two_outputs():
    """Keras keeps the mean loss of each output in variables of metrics."""
    x = keras.Input((D,))
    hidden = layers.Lambda(shares)(x)
    one = layers.Dense(2, "softmax", name="one")(hidden)
    return keras.Model(x, [one, layers.Dense(1, name="two")(hidden)])


MODELS = {
    "one output": (one_output, Y, ONE | {"metrics": ["accuracy", ONE["loss"]]}),
    "two outputs": (two_outputs, [Y, X[:, 0]], TWO),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_logs_are_those_of_the_examples(private, name):
    build, y, compiled = MODELS[name]
    plain = made(build, **compiled)
    assert np.isnan(ops.convert_to_numpy(keras.tree.flatten(plain(0 * X))[0])).all()
    logs = plain.train_on_batch(X, y, return_dict=True)
    model = private(made(build, **compiled))
    history = step(model, X, y)
    assert_same(model.get_weights(), plain.get_weights())
    assert set(history) == set(logs)
    for metric, value in logs.items():
        np.testing.assert_allclose(history[metric], [value], rtol=1e-5, err_msg=metric)


def test_a_batch_of_padding_alone_changes_no_metric(private, tmp_path):
    """With a learning rate of 0, an epoch shows the metrics of all examples that were drawn."""
    plan = dataclasses.replace(WHOLE, batch_size=1, steps=12, max_batch_size=4)
    key, sampler = random.key(0), PoissonSampler.of(plan)
    with privacy.open_ledger(tmp_path / "again.ledger", plan, key=key) as ledger:
        drawn = [sampler.indices(step.sampling_key) for step in ledger]
    assert {len(indices) for indices in drawn} > {0, 1}
    build, y, compiled = MODELS["two outputs"]
    model = private(made(build, keras.optimizers.SGD(0.0), **compiled), plan, key=key)
    history = model.fit(X, y, epochs=1, steps_per_epoch=plan.steps, verbose=0).history
    rows = np.concatenate(drawn)
    expected = model.evaluate(
        X[rows], [part[rows] for part in y], batch_size=1, verbose=0, return_dict=True
    )
    assert set(history) == set(expected) > {"one_loss", "one_accuracy", "two_mae"}
    for metric, value in expected.items():
        np.testing.assert_allclose(history[metric], [value], rtol=1e-5, err_msg=metric)
