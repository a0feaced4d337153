"""A pretrained transformer learns privately whether a sentence praises a film.

python examples/text.py --config configs/text_lora.toml

The file says which part of the encoder is trained, beside the new head: all of it (text_full.toml),
low-rank updates (text_lora.toml), the biases (text_bias.toml) or nothing (text_head.toml).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import study
from parts import adapting, bert, reviews

from bk_jax import peft

Tree = Any
CHUNK = 128  # sentences that are encoded at once
Logits = Callable[[Tree, Tree, jax.Array], jax.Array]


class Classifier(NamedTuple):
    """A model whose parameters are in two parts.

    Attributes:
      params: what is trained.
      frozen: what is not.
      logits_fn: `logits_fn(params, frozen, tokens)`, one number per sentence.
    """

    params: Tree
    frozen: Tree
    logits_fn: Logits


def new_head(width: int, seed: int = 0) -> Tree:
    """Small numbers, not zeros: through a head of zeros the encoder gets no gradient."""
    kernel = np.random.default_rng(seed).normal(size=(width, 1), scale=0.05)
    return {"kernel": kernel.astype(np.float32), "bias": np.zeros(1, np.float32)}


def classify(encoder: Tree, head: Tree, tokens: jax.Array, heads: int) -> jax.Array:
    """The head on the encoder."""
    return bert.dense(head, bert.encode(encoder, tokens, heads))[:, 0]


# --- what is trained ------------------------------------------------------------------------------


def all_trained(encoder: Tree, head: Tree, heads: int) -> Classifier:
    def logits_fn(params: Tree, frozen: None, tokens: jax.Array) -> jax.Array:
        return classify(params["encoder"], params["head"], tokens, heads)

    return Classifier({"encoder": encoder, "head": head}, None, logits_fn)


def low_rank_trained(
    encoder: Tree, head: Tree, heads: int, *, rank: int, alpha: float, match: str
) -> Classifier:
    """The encoder is frozen; `match` says which of its products get an update."""

    def logits_of_encoder(encoder: Tree, head: Tree, tokens: jax.Array) -> jax.Array:
        return classify(encoder, head, tokens, heads)

    tokens = jax.ShapeDtypeStruct((1, 8), jnp.int32)  # any: only the program matters here
    lora = peft.lora(logits_of_encoder, encoder, head, tokens, rank=rank, alpha=alpha, match=match)

    def logits_fn(params: Tree, frozen: Tree, tokens: jax.Array) -> jax.Array:
        return lora.loss_fn(params["adapters"], params["head"], tokens, frozen=frozen)

    return Classifier({"adapters": lora.adapters, "head": head}, encoder, logits_fn)


def biases_trained(encoder: Tree, head: Tree, heads: int) -> Classifier:
    """Every weight of the encoder is frozen."""

    def is_trained(path: str, leaf: Any) -> bool:
        return path.startswith("head/") or peft.biases(path, leaf)

    params, frozen = peft.partition({"encoder": encoder, "head": head}, is_trained)

    def logits_fn(params: Tree, frozen: Tree, tokens: jax.Array) -> jax.Array:
        whole = peft.combine(params, frozen)
        return classify(whole["encoder"], whole["head"], tokens, heads)

    return Classifier(params, frozen, logits_fn)


def nothing_trained(encoder: Tree, head: Tree, heads: int) -> Classifier:
    """Only the head: sentences come as vectors that the encoder has made once."""

    def logits_fn(params: Tree, frozen: None, vectors: jax.Array) -> jax.Array:
        return bert.dense(params, vectors)[:, 0]

    return Classifier(head, None, logits_fn)


MODES = {
    "full": all_trained,
    "lora": low_rank_trained,
    "bias": biases_trained,
    "head": nothing_trained,
}


# --- the problem ----------------------------------------------------------------------------------


def num_trained(classifier: Classifier) -> int:
    return sum(np.size(x) for x in jax.tree.leaves(classifier.params))


def problem_of(
    classifier: Classifier, data: Tree, held_out: Tree, optimizer: optax.GradientTransformation
) -> study.Problem:
    logits_fn = classifier.logits_fn

    def losses_fn(params: Tree, rows: Tree, frozen: Tree) -> jax.Array:
        logits = logits_fn(params, frozen, rows["tokens"])
        return optax.sigmoid_binary_cross_entropy(logits, rows["label"])

    @jax.jit
    def accuracy(params: Tree, frozen: Tree, rows: Tree) -> jax.Array:
        return jnp.mean((logits_fn(params, frozen, rows["tokens"]) > 0) == rows["label"])

    params, frozen, held_out = jax.device_put((classifier.params, classifier.frozen, held_out))

    def evaluate(params: Tree) -> dict[str, jax.Array]:
        return {"accuracy": accuracy(params, frozen, held_out)}

    return study.Problem(params, losses_fn, data, evaluate, optimizer, frozen)


def start_of(model: Tree) -> tuple[Tree, Tree, int]:
    """Encoder, head and its number of attention heads: MiniLM, adapted to public reviews if asked."""
    encoder, heads = bert.minilm()
    head = new_head(encoder["embeddings"]["word"].shape[1], model.get("seed", 0))
    if "public" not in model:
        return encoder, head, heads
    settings = study.from_table(adapting.Adapting, model["public"], "[model.public]")
    return *adapting.adapted(Path(model["adapted"]), settings, encoder, head, heads), heads


def encoded(rows: Tree, encoder: Tree, heads: int, path: Path | None = None) -> Tree:
    """Every sentence as the encoder's vector, which depends on no other sentence; kept in the file."""
    if path is not None and path.exists():
        return rows | {"tokens": np.load(path)}
    encode = jax.jit(bert.encode, static_argnums=2)
    parts = np.array_split(rows["tokens"], max(1, len(rows["tokens"]) // CHUNK))
    vectors = np.concatenate([encode(encoder, part, heads) for part in parts])
    if path is not None:
        np.save(path, vectors)
    return rows | {"tokens": vectors}


def make_problem(model: dict[str, Any]) -> study.Problem:
    own = ("mode", "length", "held_out", "learning_rate", "seed", "adapted", "public")
    mode, length, held_out = (model[name] for name in own[:3])
    encoder, head, heads = start_of(model)
    options = {name: value for name, value in model.items() if name not in own}
    classifier = MODES[mode](encoder, head, heads, **options)
    print(f"{mode}: {num_trained(classifier):,} numbers are trained")
    data = reviews.load_data(length, held_out)
    if mode == "head":
        kept = Path(model["adapted"]) if "adapted" in model else None
        paths = [kept and kept.with_name(f"{kept.stem}_{len(p['label'])}.npy") for p in data]
        data = [encoded(part, encoder, heads, p) for part, p in zip(data, paths, strict=True)]
    return problem_of(classifier, *data, optax.adam(model["learning_rate"]))


def main(argv: Sequence[str] | None = None) -> list[study.Outcome]:
    return study.main("text_lora", "Does the sentence praise the film?", make_problem, argv)


if __name__ == "__main__":
    main()
