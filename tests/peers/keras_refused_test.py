"""What `bk_jax.keras.make_private` and a private model refuse, before it costs a step."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import layers
from support.keras_models import ONE, WHOLE, D, N, X, Y, assert_same, made, sequential, step

# Keras' own variables have an `__array__` of the time before NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


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
