"""Models of Hugging Face's Flax classes: code that nobody here wrote, as people use it.

    task = make("flax_gpt2", batch=8, length=100)
    loss, grads = jax.value_and_grad(task.loss)(task.params, task.batch)

Weights are random, of the configuration's own initializer; nothing is downloaded. `transformers` 4.57
is the last version that has these classes; `tools/peers.py` installs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from benchmarks.steps import step_models
from benchmarks.steps.step_models.parts import Params, Task, Weights, cross_entropy


def gpt2(batch: int = 8, length: int = 100, depth: int = 12, words: int = 50257) -> Task:
    """GPT2-small, of `depth` blocks and `words` tokens, without dropout."""
    from transformers import FlaxGPT2LMHeadModel, GPT2Config

    config = GPT2Config(n_layer=depth, vocab_size=words, n_positions=max(length, 1024))
    model = FlaxGPT2LMHeadModel(config, seed=0)

    def loss(params: Params, ids: jax.Array) -> jax.Array:
        logits = model(ids, params=params, train=False).logits
        return cross_entropy(logits[:, :-1], ids[:, 1:])

    return Task(loss, model.params, Weights().ids(batch, length, below=words))


MODELS: dict[str, Callable[..., Task]] = {"flax_gpt2": gpt2}


def make(name: str, **sizes: Any) -> Task:
    """The model of that name, Hugging Face's or one of `benchmarks/steps`."""
    return MODELS[name](**sizes) if name in MODELS else step_models.make(name, **sizes)
