"""The example for text: every mode trains what it says, privately, and the encoder is MiniLM's."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import optax
import pytest
import study
import text
from parts import bert, reviews
from support import studies

from bk_jax import clipped_value_and_grad, sampling

ROOT = Path(__file__).parents[2]
SIZES = bert.Sizes(layers=1, width=16, hidden=24, heads=2, vocabulary=40, positions=12)
LENGTH = 10
OPTIONS = {"full": {}, "lora": {"rank": 2, "alpha": 4, "match": "*/kernel"}, "bias": {}}


def tiny_data(count, seed=0):
    """Sentences of several lengths; the label depends on the first word."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, SIZES.vocabulary, size=(count, LENGTH)).astype(np.int32)
    lengths = rng.integers(2, LENGTH + 1, size=(count, 1))
    tokens = np.where(np.arange(LENGTH) < lengths, tokens, bert.PADDING).astype(np.int32)
    return {"tokens": tokens, "label": (tokens[:, 0] % 2).astype(np.float32)}


def tiny_classifier(mode):
    encoder, head = bert.random_params(SIZES), text.new_head(SIZES.width)
    return text.MODES[mode](encoder, head, SIZES.heads, **OPTIONS[mode])


def leaves_of(tree):
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


@pytest.mark.usefixtures("quick_compiles")
@pytest.mark.parametrize(("mode", "parts"), [(m, False) for m in OPTIONS] + [("full", True)])
def test_the_clipped_sum_is_the_one_by_vmap(mode, parts):
    problem = text.problem_of(tiny_classifier(mode), None, tiny_data(1), optax.sgd(1.0))
    problem = problem._replace(clip_parts=parts)
    batch = sampling.Batch(tiny_data(6), np.array([False, True, False, False, False, False]))
    norms = problem.clip_norms(0.5)

    def ours(params, batch, frozen):
        grad_fn = clipped_value_and_grad(problem.loss_fn, l2_clip_norm=norms, return_stats=True)
        padding = batch.is_padding_example
        return grad_fn(params, batch.examples, is_padding_example=padding, frozen=frozen)

    def theirs(params, batch, frozen):
        return study.vmap_sum(problem, norms, params, batch, frozen)

    _, sums, stats = jax.jit(ours)(problem.params, batch, problem.frozen)
    expected = jax.jit(theirs)(problem.params, batch, problem.frozen)
    fractions = np.asarray(stats.clipped_fraction)
    assert np.all((fractions > 0) & (fractions <= 1))
    assert leaves_of(sums).keys() == leaves_of(expected).keys()
    for path, value in leaves_of(expected).items():
        np.testing.assert_allclose(leaves_of(sums)[path], value, rtol=1e-3, atol=1e-5, err_msg=path)


def test_norms_of_parts_are_as_much_together():
    problem = text.problem_of(tiny_classifier("full"), None, tiny_data(1), optax.sgd(1.0))
    assert problem.clip_norms(0.5) == 0.5
    norms = problem._replace(clip_parts=True).clip_norms(0.5)
    assert norms.keys() == {"encoder", "head"}
    assert sum(norm**2 for norm in norms.values()) == pytest.approx(0.25)


RUN = """
[run]
epsilon = 8.0
delta = 1e-3
epochs = 0.5
batch_size = 10
physical_batch_size = 8
clip_norm = 1.0
seed = 0
rounds = 1
reports = 1
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Settings of a short run, and their plan: finding its noise takes seconds."""
    path = tmp_path_factory.mktemp("small") / "small.toml"
    path.write_text(RUN)
    settings, _ = study.read_config(path)
    return settings, settings.plan(40)


@pytest.fixture
def _tiny_model_and_data(monkeypatch):
    monkeypatch.setattr(bert, "minilm", lambda: (bert.random_params(SIZES), SIZES.heads))
    monkeypatch.setattr(reviews, "load_data", lambda *_: (tiny_data(40), tiny_data(9, seed=1)))


@pytest.mark.usefixtures("_tiny_model_and_data", "quick_compiles")
@pytest.mark.parametrize("mode", ["full", "lora"])
def test_private_training_of_a_tiny_encoder(mode, small, tmp_path):
    _, model = study.read_config(ROOT / "configs" / f"text_{mode}.toml")
    points = study.Study(text.make_problem(model), *small, tmp_path).run_private()
    assert points[-1].step == 2
    assert 0.9 * small[1].epsilon(2) < points[-1].epsilon <= small[0].epsilon
    assert 0 <= points[-1].metrics["accuracy"] <= 1


@pytest.mark.usefixtures("_tiny_model_and_data")
@pytest.mark.parametrize("mode", ["head", "lora"])
def test_what_is_not_trained_meets_a_sentence_once(mode, tmp_path, monkeypatch):
    encoder = bert.random_params(SIZES._replace(layers=2))
    model = {"mode": mode, "length": LENGTH, "held_out": 9, "adapted": str(tmp_path / "a.npz")}
    model |= {"last_layers": 1}
    first, left = text.inputs_of(model, encoder, SIZES.heads)
    monkeypatch.setattr(bert, "through", None)
    again, _ = text.inputs_of(model, encoder, SIZES.heads)
    jax.tree.map(np.testing.assert_array_equal, again, first)
    assert len(list(tmp_path.iterdir())) == 2
    assert len(left["layers"]) == (2 if mode == "head" else 1)


@pytest.mark.usefixtures("_tiny_model_and_data", "quick_compiles")
def test_the_study_is_complete(tmp_path):
    """The command line, as a person calls it, with the mode that compiles quickest."""
    (_, model) = (ROOT / "configs" / "text_bias.toml").read_text().split("[model]")
    outcomes = studies.run_small(text.main, tmp_path, f"{RUN}\n[model]{model}")
    studies.assert_complete(outcomes, tmp_path, epsilon=8.0)


@pytest.mark.parametrize("mode", ["lora", "bias"])
def test_training_starts_from_the_pretrained_model(mode):
    tokens = tiny_data(3)["tokens"]
    whole, part = (
        jax.jit(c.logits_fn)(c.params, c.frozen, tokens)
        for c in (tiny_classifier("full"), tiny_classifier(mode))
    )
    np.testing.assert_allclose(part, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", OPTIONS)
def test_last_layers_on_what_the_first_ones_made_are_the_whole(mode):
    encoder, head = bert.random_params(SIZES._replace(layers=3)), text.new_head(SIZES.width)
    whole = text.all_trained(encoder, head, SIZES.heads)
    first, last = text.cut(encoder, 1)
    part = text.MODES[mode](last, head, SIZES.heads, **OPTIONS[mode])
    rows = tiny_data(5)
    begun = text.begun(rows, first, SIZES.heads)["tokens"]
    assert begun[0].dtype == np.float16
    expected = jax.jit(whole.logits_fn)(whole.params, whole.frozen, rows["tokens"])
    found = jax.jit(part.logits_fn)(part.params, part.frozen, begun)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    assert num_layers(part) == 1


def num_layers(classifier):
    """Of which anything is trained."""
    paths = [path.split("layers/")[1] for path in leaves_of(classifier.params) if "layers/" in path]
    return len({path.split("/")[0] for path in paths})


def test_the_head_takes_longer_steps():
    params = {"head": np.ones(2, np.float32), "encoder": np.ones(2, np.float32)}
    optimizer = text.make_optimizer(0.1, 3)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    np.testing.assert_allclose(updates["encoder"], -0.1, rtol=1e-4)
    np.testing.assert_allclose(updates["head"], -0.3, rtol=1e-4)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("text_*.toml")), ids=lambda p: p.stem
)
def test_what_sentences_become_is_kept_for_every_encoder(path):
    _, model = study.read_config(path)
    names = {text.path_of(model, tiny_data(4), suffix) for suffix in ("", "_last1", "_last2")}
    assert len(names) == (3 if "adapted" in model else 1)


def test_the_modes_train_what_they_say():
    full, lora, bias = (leaves_of(tiny_classifier(mode).params) for mode in OPTIONS)
    assert len(full) == 3 + 2 + 16 + 2  # tables, their norm, the layer, the head
    assert {x.shape for path, x in lora.items() if path.endswith("/a")} == {(16, 2), (24, 2)}
    assert sum(path.startswith("adapters/") for path in lora) == 2 * 6
    assert {path for path in full if path.endswith("/bias")} | {"head/kernel"} == set(bias)


def test_padding_changes_nothing():
    encode = jax.jit(bert.encode, static_argnums=2)
    params, tokens = bert.random_params(SIZES), tiny_data(4)["tokens"]
    longer = np.pad(tokens, ((0, 0), (0, 2)), constant_values=bert.PADDING)
    expected = encode(params, tokens, SIZES.heads)
    np.testing.assert_allclose(encode(params, longer, SIZES.heads), expected, rtol=1e-5, atol=1e-6)


def test_every_sentence_is_there_once_and_on_one_side():
    train, held_out = reviews.load_data(48, 1000)
    assert held_out["tokens"].shape == (1000, 48)
    assert len(train["label"]) + 1000 == len(reviews.load_sentences())
    assert 0.45 < np.mean(train["label"]) < 0.55


def test_the_encoder_is_minilm():
    """The numbers come from Hugging Face's FlaxBertModel with the same weights."""
    sentences = [
        "This is an example sentence",
        "A man is eating food.",
        "A man is eating a piece of bread.",
        "The stock market fell sharply on Monday.",
    ]
    params, heads = bert.minilm()
    assert sum(x.size for x in jax.tree.leaves(params)) == 22_713_216 - 384 * 385  # no pooler
    tokens = reviews.tokenize(sentences, 12)
    vectors = np.asarray(jax.jit(bert.encode, static_argnums=2)(params, tokens, heads))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(lengths[:, 0], [5.16348, 5.63268, 5.19692, 5.39992], rtol=1e-5)
    vectors = vectors / lengths
    expected = [0.0676568, 0.0634959, 0.0487131, 0.0793049, 0.0374480]
    np.testing.assert_allclose(vectors[0, :5], expected, atol=1e-5)
    similar = vectors @ vectors[1]
    np.testing.assert_allclose(similar, [-0.030241, 1, 0.755337, 0.015740], atol=1e-5)


def test_tokens_are_cut_and_filled_up():
    tokens = reviews.tokenize(["A film", "one two three four five"], 5)
    np.testing.assert_array_equal(tokens[0], [101, 1037, 2143, 102, bert.PADDING])
    assert tokens[1, 0] == 101
    assert tokens[1, -1] == 102  # the end is marked even where the sentence is cut
    assert reviews.tokenize([], 5).shape == (0, 5)
