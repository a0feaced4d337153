"""Models of keras-hub and keras.applications, tiny, from their configurations."""

from __future__ import annotations

from typing import Any

import keras
import keras_hub
import numpy as np

from zoo.entry import B, Entry, T, ids, of_outputs, pixels

VOCAB = 13
HUB = keras_hub.models


def entry(model: Any, inputs: Any) -> Entry:
    """A loss of all that the model returns; statistics are those of the model, not of the batch."""
    fixed = [np.asarray(v.value) for v in model.non_trainable_variables]

    names = [f"{i:02}:{v.path}" for i, v in enumerate(model.trainable_variables)]

    def loss(params: dict[str, Any], batch: Any) -> Any:
        weights = [params[name] for name in names]
        outputs, _ = model.stateless_call(weights, fixed, batch, training=False)
        return of_outputs(outputs)

    values = (np.asarray(v.value) for v in model.trainable_variables)
    return Entry(loss, dict(zip(names, values, strict=True)), inputs)


def language(make: Any, **config: Any) -> Entry:
    """A model of tokens."""
    inputs = {"token_ids": ids(VOCAB), "padding_mask": np.ones((B, T), np.int32)}
    model = make(vocabulary_size=VOCAB, **config)
    known = getattr(model, "input", inputs)
    inputs |= {"segment_ids": ids(2)} if "segment_ids" in known else {}
    return entry(model, {name: inputs[name] for name in known})


ENCODER = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
SEQUENCE = {"max_sequence_length": 9}
GROUPED = {
    "num_layers": 1,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 8,
    "intermediate_dim": 12,
}


def bert():
    return language(HUB.BertBackbone, **ENCODER, **SEQUENCE)


def roberta():
    return language(HUB.RobertaBackbone, **ENCODER, **SEQUENCE)


def distil_bert():
    return language(HUB.DistilBertBackbone, **ENCODER, **SEQUENCE)


def albert():
    return language(HUB.AlbertBackbone, **ENCODER, **SEQUENCE, embedding_dim=4)


def electra():
    return language(HUB.ElectraBackbone, **ENCODER, **SEQUENCE, vocab_size=VOCAB, embedding_dim=4)


def f_net():
    config = {k: v for k, v in ENCODER.items() if k != "num_heads"}
    return language(HUB.FNetBackbone, **config, **SEQUENCE)


def deberta():
    return language(HUB.DebertaV3Backbone, **ENCODER, **SEQUENCE, bucket_size=4)


def gpt2():
    return language(HUB.GPT2Backbone, **ENCODER, **SEQUENCE)


def gpt_neo_x():
    return language(HUB.GPTNeoXBackbone, **(ENCODER | {"hidden_dim": 16}), **SEQUENCE)


def opt():
    return language(HUB.OPTBackbone, **ENCODER, **SEQUENCE)


def bloom():
    return language(HUB.BloomBackbone, **ENCODER)


def falcon():
    config = {"num_layers": 1, "num_attention_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    return language(HUB.FalconBackbone, **config)


def llama():
    return language(HUB.LlamaBackbone, **GROUPED)


def mistral():
    return language(HUB.MistralBackbone, **GROUPED)


def mixtral():
    return language(HUB.MixtralBackbone, **GROUPED, num_experts=2, top_k=1)


def phi3():
    return language(HUB.Phi3Backbone, **GROUPED)


def qwen():
    return language(HUB.QwenBackbone, **GROUPED)


def gemma():
    return language(HUB.GemmaBackbone, **GROUPED, head_dim=4)


def gemma3():
    config = {"head_dim": 4, "image_size": 4, "vision_encoder": None}
    return language(HUB.Gemma3Backbone, **GROUPED, **config)


def t5():
    config = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
    model = HUB.T5Backbone(vocabulary_size=VOCAB, key_value_dim=4, **config)
    return entry(model, both_sides())


def bart():
    return entry(HUB.BartBackbone(vocabulary_size=VOCAB, **ENCODER, **SEQUENCE), both_sides())


def both_sides() -> dict[str, np.ndarray]:
    mask = np.ones((B, T), np.int32)
    return {
        "encoder_token_ids": ids(VOCAB),
        "encoder_padding_mask": mask,
        "decoder_token_ids": ids(VOCAB),
        "decoder_padding_mask": mask,
    }


def vit():
    model = HUB.ViTBackbone(
        image_shape=(8, 8, 3), patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=12
    )
    return entry(model, pixels(8, 8, 3))


def mit():
    model = HUB.MiTBackbone(
        image_shape=(16, 16, 3),
        layerwise_depths=[1, 1],
        num_layers=2,
        layerwise_num_heads=[1, 2],
        layerwise_sr_ratios=[2, 1],
        max_drop_path_rate=0.0,
        layerwise_patch_sizes=[3, 3],
        layerwise_strides=[2, 2],
        hidden_dims=[4, 8],
    )
    return entry(model, pixels(16, 16, 3))


def res_net():
    model = HUB.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64],
        stackwise_num_blocks=[1],
        stackwise_num_strides=[1],
        block_type="basic_block",
        image_shape=(8, 8, 3),
    )
    return entry(model, pixels(8, 8, 3))


def dense_net():
    model = HUB.DenseNetBackbone(
        stackwise_num_repeats=[1, 1], compression_ratio=0.5, growth_rate=4, image_shape=(32, 32, 3)
    )
    return entry(model, pixels(32, 32, 3))


def vgg():
    model = HUB.VGGBackbone(
        stackwise_num_repeats=[1, 1], stackwise_num_filters=[4, 8], image_shape=(8, 8, 3)
    )
    return entry(model, pixels(8, 8, 3))


def application(make: Any, size: int = 32, **config: Any) -> Entry:
    config = {"weights": None, "classes": 3, "input_shape": (size, size, 3), **config}
    return entry(make(**config), pixels(size, size, 3))


def mobile_net():
    return application(keras.applications.MobileNet, alpha=0.25)


def keras_lora():
    """Keras adds `A @ B` to the kernel before it multiplies."""
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "tanh", lora_rank=2)])
    model.add(keras.layers.Dense(3))
    made = entry(model, pixels(6))
    sizes = np.random.default_rng(0)
    some = {k: sizes.normal(size=v.shape).astype(np.float32) for k, v in made.params.items()}
    return Entry(made.loss, some, made.batch)


MODELS = (
    bert, roberta, distil_bert, albert, electra, f_net, deberta, gpt2, gpt_neo_x, opt, bloom, falcon,
    llama, mistral, mixtral, phi3, qwen, gemma, gemma3, t5, bart, vit, mit, res_net, dense_net, vgg,
    mobile_net, keras_lora,
)  # fmt: skip
