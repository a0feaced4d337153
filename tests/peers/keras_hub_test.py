"""`make_private` on models of keras-hub, tiny, from their configurations."""

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
