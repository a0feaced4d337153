"""A pretrained transformer learns privately whether a sentence praises a film.

python examples/text.py --config configs/text_lora.toml

The file says which part of the encoder is trained, beside the new head: all of it (text_full.toml),
low-rank updates (text_lora.toml), the biases (text_bias.toml) or nothing (text_head.toml). The files
*_adapted.toml start from an encoder that is adapted to public reviews.
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
from parts.keeping import kept

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


def classify(encoder: Tree, head: Tree, tokens: Any, heads: int) -> jax.Array:
    """The head on the encoder, or on its last layers and what the others made of the tokens."""
    encode = bert.encode if "embeddings" in encoder else bert.finish
    return bert.dense(head, encode(encoder, tokens, heads))[:, 0]


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

    tokens: Any = jax.ShapeDtypeStruct((1, 8), jnp.int32)  # any: only the program matters here
    if "embeddings" not in encoder:
        vectors = jax.ShapeDtypeStruct((1, 8, len(head["kernel"])), jnp.float32)
        tokens = (vectors, jax.ShapeDtypeStruct((1, 8), bool))
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
    """Every sentence as the encoder's vector, which depends on no other sentence."""
    encode = jax.jit(bert.encode, static_argnums=2)
    vectors = kept(path, rows["tokens"], lambda part: encode(encoder, part, heads), CHUNK)
    return rows | {"tokens": vectors}


def begun(rows: Tree, first: Tree, heads: int, path: Path | None = None) -> Tree:
    """Every sentence as what the first layers make of it, in half precision."""
    begin = jax.jit(bert.begin, static_argnums=2)

    def in_half(part: np.ndarray) -> jax.Array:
        return begin(first, part, heads)[0].astype(np.float16)

    vectors = kept(path, rows["tokens"], in_half, CHUNK)
    return rows | {"tokens": (vectors, rows["tokens"] != bert.PADDING)}


def path_of(model: Tree, rows: Tree, suffix: str = "") -> Path | None:
    """Where to keep what an adapted encoder makes of the sentences."""
    if "adapted" not in model:
        return None
    adapted = Path(model["adapted"])
    return adapted.with_name(f"{adapted.stem}{suffix}_{len(rows['label'])}.npy")


def cut(encoder: Tree, last: int) -> tuple[Tree, Tree]:
    """The first layers with the tables, and the last ones."""
    layers = encoder["layers"]
    return encoder | {"layers": layers[:-last]}, {"layers": layers[-last:]}


def make_optimizer(learning_rate: float, head_factor: float) -> optax.GradientTransformation:
    """Adam; the head takes longer steps than the rest."""

    def longer(updates: Tree, params: Tree = None) -> Tree:
        return updates | {"head": jax.tree.map(lambda x: head_factor * x, updates["head"])}

    adam = optax.adam(learning_rate)
    return adam if head_factor == 1 else optax.chain(adam, optax.stateless(longer))


def inputs_of(model: Tree, encoder: Tree, heads: int) -> tuple[list[Tree], Tree]:
    """Sentences to learn from and others, through layers that stay as they are; the other layers."""
    data = reviews.load_data(model["length"], model["held_out"])
    if model["mode"] == "head":
        return [encoded(part, encoder, heads, path_of(model, part)) for part in data], encoder
    if "last_layers" not in model:
        return list(data), encoder
    suffix = f"_last{model['last_layers']}"
    first, last = cut(encoder, model["last_layers"])
    return [begun(part, first, heads, path_of(model, part, suffix)) for part in data], last


OWN = ("mode", "length", "held_out", "last_layers", "adapted", "public")
OWN += ("learning_rate", "head_factor", "clip_parts", "seed")


def make_problem(model: dict[str, Any]) -> study.Problem:
    encoder, head, heads = start_of(model)
    data, encoder = inputs_of(model, encoder, heads)
    options = {name: value for name, value in model.items() if name not in OWN}
    classifier = MODES[model["mode"]](encoder, head, heads, **options)
    print(f"{model['mode']}: {num_trained(classifier):,} numbers are trained")
    optimizer = make_optimizer(model["learning_rate"], model.get("head_factor", 1))
    problem = problem_of(classifier, *data, optimizer)
    return problem._replace(clip_parts=model.get("clip_parts", False))


def main(argv: Sequence[str] | None = None) -> list[study.Outcome]:
    return study.main("text_lora", "Does the sentence praise the film?", make_problem, argv)


if __name__ == "__main__":
    main()
