"""A whole run of a private Keras model: what `model.fit` learns, spends, and goes on from."""

import json

import keras
import numpy as np
import pytest
from support.keras_models import ONE, WHOLE, D, assert_same, made, step

from bk_jax import privacy

# Keras' own variables have an `__array__` of the time before NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RUN = privacy.PrivacyPlan(
    num_examples=200,
    batch_size=50,
    steps=17,
    delta=1e-3,
    noise_multiplier=0.5,
    max_batch_size=96,
    pld_interval=0.05,
)
RUN_X = np.random.default_rng(1).normal(size=(200, D)).astype(np.float32)
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
