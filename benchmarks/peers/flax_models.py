"""Models of Flax: Hugging Face's classes, which nobody here wrote, and layers of flax.nnx.

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


def roberta(batch: int = 4, length: int = 256, depth: int = 12) -> Task:
    """RoBERTa-base that predicts every word from itself, without dropout."""
    from transformers import FlaxRobertaForMaskedLM, RobertaConfig

    config = RobertaConfig(num_hidden_layers=depth, max_position_embeddings=max(length, 512) + 2)
    model = FlaxRobertaForMaskedLM(config, seed=0)

    def loss(params: Params, ids: jax.Array) -> jax.Array:
        return cross_entropy(model(ids, params=params, train=False).logits, ids)

    return Task(loss, model.params, Weights().ids(batch, length, below=config.vocab_size))


def cnn(batch: int = 64, size: int = 32) -> Task:
    """Two convolutions of flax.nnx with GroupNorm and max_pool, and a dense layer."""
    from flax import nnx

    class Cnn(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.conv1 = nnx.Conv(3, 16, (3, 3), rngs=rngs)
            self.norm1 = nnx.GroupNorm(16, num_groups=4, rngs=rngs)
            self.conv2 = nnx.Conv(16, 32, (3, 3), rngs=rngs)
            self.norm2 = nnx.GroupNorm(32, num_groups=4, rngs=rngs)
            self.dense = nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            x = nnx.max_pool(nnx.relu(self.norm1(self.conv1(x))), (2, 2), (2, 2))
            x = nnx.max_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), (2, 2))
            return self.dense(x.mean((1, 2)))

    graph, params = nnx.split(Cnn(nnx.Rngs(0)), nnx.Param)

    def loss(params: Params, batch: Any) -> jax.Array:
        images, labels = batch
        return cross_entropy(nnx.merge(graph, params)(images), labels)

    w = Weights()
    return Task(loss, params, (w.normal(batch, size, size, 3, scale=1.0), w.labels(batch, 10)))


MODELS: dict[str, Callable[..., Task]] = {
    "flax_gpt2": gpt2,
    "flax_roberta": roberta,
    "nnx_cnn": cnn,
}


def make(name: str, **sizes: Any) -> Task:
    """The model of that name, one of these or one of `benchmarks/steps`."""
    return MODELS[name](**sizes) if name in MODELS else step_models.make(name, **sizes)
