"""A small GPT, trained on public text and fine-tuned privately on another one.

python examples/language_model.py --config configs/language_model.toml
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import study
from parts import gpt, texts
from parts.pretraining import Pretraining, pretrained

from bk_jax import peft

Tree = Any
PROMPT = "The "


class Tuning(NamedTuple):
    """What of a model is fine-tuned: `params`, with a way back to `whole` parameters."""

    params: Tree
    frozen: Tree
    losses_fn: Callable[[Tree, jax.Array, Tree], jax.Array]
    whole: Callable[[Tree], Tree]


def tune_all(params: Tree, heads: int) -> Tuning:
    def losses_fn(params: Tree, windows: jax.Array, frozen: None) -> jax.Array:
        return gpt.losses_fn(params, windows, heads)

    return Tuning(params, None, losses_fn, lambda params: params)


def tune_low_rank(params: Tree, heads: int, rank: int, seed: int = 0) -> Tuning:
    """LoRA on every matrix of the layers: fewer parameters, hence less noise."""

    def original(params: Tree, windows: jax.Array) -> jax.Array:
        return gpt.losses_fn(params, windows, heads)

    shape = jax.ShapeDtypeStruct((1, len(params["positions"])), np.int32)
    key = jax.random.key(seed)
    lora = peft.lora(original, params, shape, rank=rank, match="layers/*/w", key=key)

    def losses_fn(adapters: Tree, windows: jax.Array, frozen: Tree) -> jax.Array:
        return lora.loss_fn(adapters, windows, frozen=frozen)

    merge = jax.jit(lora.merge)
    return Tuning(lora.adapters, params, losses_fn, lambda adapters: merge(params, adapters))


def make_problem(model: dict[str, Any]) -> study.Problem:
    """From `[model]` of the configuration; pre-trains if there is no file of it yet."""
    settings = study.from_table(Pretraining, model["pretraining"], "[model.pretraining]")
    heads, rank = settings.heads, model.get("lora_rank")
    public = pretrained(
        Path(model["pretrained"]),
        settings,
        lambda: texts.windows(texts.public_text(), settings.length),
    )
    topics = texts.without_repetitions(texts.topics())
    learned, held_out = texts.private_windows(topics, settings.length)
    seed = model.get("seed", 0)
    tuning = tune_all(public, heads) if rank is None else tune_low_rank(public, heads, rank, seed)
    return study.Problem(
        params=tuning.params,
        losses_fn=tuning.losses_fn,
        data=learned.rows,
        evaluate=lambda params: gpt.quality(tuning.whole(params), held_out.rows, heads),
        optimizer=optax.adam(model["learning_rate"]),
        frozen=tuning.frozen,
        describe=lambda params: gpt.generate(tuning.whole(params), PROMPT, heads),
    )


def main(argv: Sequence[str] | None = None) -> list[study.Outcome]:
    title = "A small GPT, fine-tuned on Python's help topics"
    return study.main("language_model", title, make_problem, argv)


if __name__ == "__main__":
    main()
