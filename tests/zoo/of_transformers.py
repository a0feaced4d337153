"""Flax models of Hugging Face's transformers, tiny, from their configurations.

T5 is not here: the last transformers with Flax calls `jnp.clip(x, a_max=...)`, which JAX has no more.
"""

from __future__ import annotations

from typing import Any

import transformers

from zoo.entry import Entry, T, ids, of_outputs, pixels

VOCAB = 13
WIDE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
TEXT = {"vocab_size": VOCAB, "max_position_embeddings": 9}
IMAGE = {"image_size": 8, "patch_size": 4}


def entry(name: str, batch: dict[str, Any], **config: Any) -> Entry:
    """A loss of what the model returns for the batch."""
    settings = getattr(transformers, f"{name}Config")(**config)
    shape = {"input_shape": (1, T)} if "input_ids" in batch else {}
    model = getattr(transformers, f"Flax{name}Model")(settings, **shape, seed=0)

    def loss(params: Any, batch: Any) -> Any:
        return of_outputs(model(**batch, params=params, train=False).to_tuple())

    return Entry(loss, model.params, batch)


def tokens() -> dict[str, Any]:
    return {"input_ids": ids(VOCAB)}


def bert():
    return entry("Bert", tokens(), **WIDE, **TEXT)


def roberta():
    return entry("Roberta", tokens(), **WIDE, **(TEXT | {"max_position_embeddings": T + 3}))


def gpt2():
    return entry("GPT2", tokens(), vocab_size=VOCAB, n_positions=9, n_embd=8, n_layer=1, n_head=2)


def gpt_j():
    config = {"vocab_size": VOCAB, "n_positions": 9, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return entry("GPTJ", tokens(), **config, rotary_dim=2)


def llama():
    return entry("Llama", tokens(), **WIDE, **TEXT)


def vit():
    return entry("ViT", {"pixel_values": pixels(3, 8, 8)}, **WIDE, **IMAGE)


def beit():
    return entry("Beit", {"pixel_values": pixels(3, 8, 8)}, **WIDE, **IMAGE)


MODELS = (bert, roberta, gpt2, gpt_j, llama, vit, beit)
