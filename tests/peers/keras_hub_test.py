"""`make_private` on models and tasks of keras-hub, tiny, from their configurations."""

import keras
import keras_hub
import numpy as np
import pytest
from keras import layers

import bk_jax
from bk_jax import privacy

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

N, T, VOCAB = 4, 5, 13
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, VOCAB, (N, T)).astype(np.int32)
MASK = np.ones((N, T), np.int32)
IMAGES = RNG.normal(size=(N, 8, 8, 3)).astype(np.float32)
Y = np.arange(N) % 2
NARROW = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 12}

# Every example is in every batch, and noise is next to nothing.
WHOLE = privacy.PrivacyPlan(
    num_examples=N,
    batch_size=N,
    steps=2,
    delta=1e-3,
    noise_multiplier=1e-7,
    l2_clip_norm=100.0,
    max_batch_size=N + 1,
    pld_interval=0.05,
)


def bert():
    return keras_hub.models.BertBackbone(
        vocabulary_size=VOCAB, num_heads=2, max_sequence_length=9, dropout=0.0, **NARROW
    )


def gemma():
    heads = {"num_query_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    return keras_hub.models.GemmaBackbone(vocabulary_size=VOCAB, **heads, **NARROW)


def vit():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 12}
    return keras_hub.models.ViTBackbone(image_shape=(8, 8, 3), patch_size=4, **sizes)


TOKENS = {"token_ids": IDS, "padding_mask": MASK}
MODELS = {
    "bert": (bert, TOKENS | {"segment_ids": 0 * IDS}),
    "gemma": (gemma, TOKENS),
    "vit": (vit, IMAGES),
}


def classifier(make):
    """The backbone and a layer that says which of two."""
    keras.utils.set_random_seed(0)
    backbone = make()
    found = backbone.output
    sequence = found["sequence_output"] if isinstance(found, dict) else found
    answer = layers.Dense(2, "softmax")(layers.GlobalAveragePooling1D()(sequence))
    model = keras.Model(backbone.input, answer)
    model.compile(keras.optimizers.SGD(1.0), loss="sparse_categorical_crossentropy")
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_that_of_keras_where_nothing_is_clipped(tmp_path, name):
    make, x = MODELS[name]
    plain, model = classifier(make), classifier(make)
    bk_jax.keras.make_private(model, ledger=tmp_path / "run.ledger", plan=WHOLE)
    before = plain.get_weights()
    plain.train_on_batch(x, Y)
    model.fit(x, Y, epochs=1, steps_per_epoch=1, verbose=0)
    for was, got, expected in zip(before, model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(got - was, expected - was, rtol=1e-3, atol=2e-5)
    assert model.privacy.ledger.steps == 1


# --- tasks, which have a fit of their own ---


def text_classifier(**options):
    return keras_hub.models.BertTextClassifier(
        bert(), 2, preprocessor=None, activation="softmax", dropout=0.0, **options
    )


def image_classifier(preprocessor=None):
    return keras_hub.models.ViTImageClassifier(vit(), 2, preprocessor, activation="softmax")


def language_model():
    """With adapters; what a token of -1 says is not asked for."""
    backbone = gemma()
    backbone.enable_lora(2)
    return keras_hub.models.GemmaCausalLM(backbone, preprocessor=None)


NEXT = np.where(np.arange(T) < 3, np.roll(IDS, -1, 1), -1)
TASKS = {
    "text classifier": (text_classifier, MODELS["bert"][1], Y, {}),
    "image classifier": (image_classifier, IMAGES, Y, {}),
    "language model": (language_model, TOKENS, NEXT, {"from_logits": True, "ignore_class": -1}),
}


def compiled(make, optimizer=None, **loss):
    keras.utils.set_random_seed(0)
    model = make()
    loss = keras.losses.SparseCategoricalCrossentropy(**loss)
    model.compile(optimizer or keras.optimizers.SGD(1.0), loss=loss, metrics=["accuracy"])
    return model


@pytest.mark.parametrize("name", TASKS)
def test_a_task_trains_as_keras_trains_it_where_nothing_is_clipped(tmp_path, name):
    make, x, y, loss = TASKS[name]
    plain, model = compiled(make, **loss), compiled(make, **loss)
    bk_jax.keras.make_private(model, ledger=tmp_path / "run.ledger", plan=WHOLE)
    before = plain.get_weights()
    plain.train_on_batch(x, y)
    seen = model.fit(x, y, epochs=1, steps_per_epoch=1, validation_data=(x, y), verbose=0).history
    assert set(seen) >= {"loss", "accuracy", "val_loss", "val_accuracy"}
    after = zip(before, model.get_weights(), plain.get_weights(), strict=True)
    for was, got, expected in after:
        np.testing.assert_allclose(got - was, expected - was, rtol=1e-3, atol=2e-5)
    assert any(np.any(w != g) for w, g in zip(before, model.get_weights(), strict=True))
    assert len(model.predict(x, verbose=0)) == N


def test_a_task_that_would_prepare_batches_itself_is_refused(tmp_path):
    model = compiled(lambda: image_classifier(layers.Rescaling(2.0)))
    bk_jax.keras.make_private(model, ledger=tmp_path / "run.ledger", plan=WHOLE)
    with pytest.raises(ValueError, match=r"has a preprocessor, .* model\.preprocessor = None"):
        model.fit(IMAGES, Y, verbose=0)
    assert model.privacy.ledger.steps == 0
    x, model.preprocessor = np.asarray(model.preprocessor(IMAGES)), None
    model.fit(x, Y, epochs=1, steps_per_epoch=1, verbose=0)
    assert model.privacy.ledger.steps == 1
