"""The language model: its texts, its loss, and the whole study at a tiny size."""

from __future__ import annotations

import dataclasses
import functools
import math
import textwrap
from pathlib import Path

import jax
import language_model
import numpy as np
import optax
import pytest
import study
from parts import gpt, pretraining, texts

import bk_jax
from bk_jax import sampling

ROOT = Path(__file__).parents[2]
HEADS, LENGTH = 2, 16
TINY = pretraining.Pretraining(
    width=8, layers=1, heads=HEADS, length=LENGTH, steps=2, batch_size=4, learning_rate=1e-2
)
TOPICS = {
    f"topic {i}": f"Some {i} words about {i * i}.\n\nAnd {i + 7} more of them." for i in range(12)
}
CONFIG = f"""
[run]
epsilon = 8.0
delta = 1e-3
epochs = 1
batch_size = 16
physical_batch_size = 8
clip_norm = 1.0
seed = 0
rounds = 1
[model]
learning_rate = 1e-2
lora_rank = 2
pretrained = '{{folder}}/pretrained.npz'
[model.pretraining]
{chr(10).join(f"{name} = {value}" for name, value in dataclasses.asdict(TINY).items())}
"""


@pytest.fixture
def params():
    return gpt.init_params(TINY.width, TINY.layers, LENGTH)


@pytest.fixture
def windows():
    rows = np.random.default_rng(0).integers(1, 256, (5, LENGTH)).astype(np.int32)
    rows[-1, 7:] = texts.END
    return rows


@pytest.fixture
def small_texts(monkeypatch):
    monkeypatch.setattr(texts, "topics", lambda: TOPICS)
    monkeypatch.setattr(texts, "modules", lambda: [Path(textwrap.__file__)])


# --- texts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 160])
def test_windows_cover_a_text_exactly_once(size):
    text = bytes(np.random.default_rng(size).integers(1, 256, size).tolist())
    rows = texts.windows(text, 16)
    assert rows.shape == (math.ceil(size / 16), 16)
    assert bytes(rows.ravel().tolist()).rstrip(b"\0") == text


def test_windows_of_the_real_topics_cover_them_once_and_hold_out_whole_topics():
    kept = texts.without_repetitions(texts.topics())
    learned, held_out = texts.private_windows(kept, 128)
    names = set(held_out.topics)
    assert names == set(texts.held_out_names(kept))
    assert not names & set(learned.topics)
    assert names | set(learned.topics) == set(kept)
    for part in (learned, held_out):
        for name in set(part.topics):
            rows = part.rows[part.topics == name]
            assert bytes(rows.astype(np.uint8)).rstrip(b"\0").decode() == kept[name]


def test_no_paragraph_is_kept_twice():
    kept = texts.without_repetitions(texts.topics())
    paragraphs = [" ".join(p.split()) for text in kept.values() for p in text.split("\n\n")]
    assert len(paragraphs) == len(set(paragraphs))


def test_repetitions_go_and_what_is_new_stays():
    found = texts.without_repetitions(
        {"b": "one\n\n  two\n\nthree", "a": "two\n\nfour", "c": "one"}
    )
    assert found == {"a": "two\n\nfour", "b": "one\n\nthree"}


def test_docstrings_are_those_of_modules_classes_and_functions():
    source = '"""M."""\nclass A:\n    """C."""\n    def f(self):\n        """F."""\nx = """no"""\n'
    assert list(texts.docstrings(source)) == ["M.", "C.", "F."]


def test_the_public_text_has_nothing_of_the_private_module():
    files = texts.modules()
    assert len(files) > 100
    assert not [
        file for file in files if file.parent.name in texts.SKIPPED or file.name == "pdb.py"
    ]


# --- the model ------------------------------------------------------------------------------------


def test_a_byte_is_predicted_from_those_before_it(params, windows):
    logits = jax.jit(gpt.logits_fn, static_argnums=2)
    changed = windows.copy()
    changed[:, 9] = changed[:, 9] % 255 + 1
    before, after = logits(params, windows, HEADS), logits(params, changed, HEADS)
    np.testing.assert_array_equal(before[:, :10], after[:, :10])
    assert np.all(np.any(before[:, 10] != after[:, 10], axis=-1))


def test_a_model_that_knows_nothing_needs_eight_bits_per_byte(params, windows):
    ignorant = params | {"bytes": np.zeros_like(params["bytes"])}

    @jax.jit
    def measure(params, windows):
        return gpt.quality(params, windows, HEADS), gpt.losses_fn(params, windows, HEADS)

    quality, losses = measure(ignorant, windows)
    np.testing.assert_allclose(quality["bits per byte"], 8, rtol=1e-6)
    assert quality["next-byte accuracy"] == 0
    np.testing.assert_allclose(losses[-1], 7 / 16 * losses[0], rtol=1e-6)


def test_generated_text_goes_on_from_the_prompt(params):
    text = gpt.generate(params, "The ", HEADS)
    assert text.startswith("The ")
    assert "\0" not in text
    assert text == gpt.generate(params, "The ", HEADS)


TUNINGS = {
    "all": lambda params: language_model.tune_all(params, HEADS),
    "low rank": lambda params: language_model.tune_low_rank(params, HEADS, rank=2),
}


@pytest.mark.usefixtures("quick_compiles")
@pytest.mark.parametrize("name", TUNINGS)
def test_the_clipped_sum_is_the_one_by_vmap(params, windows, name):
    tuning = TUNINGS[name](params)
    moved = jax.tree.map(lambda x: np.asarray(x) + np.float32(0.1), tuning.params)
    problem = study.Problem(moved, tuning.losses_fn, windows, lambda _: {}, optax.sgd(1.0))
    batch = sampling.Batch(windows, np.arange(5) == 3)
    by_vmap = functools.partial(study.vmap_sum, problem, 0.1)
    grad_fn = bk_jax.clipped_value_and_grad(problem.loss_fn, l2_clip_norm=0.1)
    options = {"is_padding_example": batch.is_padding_example, "frozen": tuning.frozen}
    theirs = jax.jit(by_vmap)(moved, batch, tuning.frozen)
    ours = jax.jit(grad_fn)(moved, windows, **options)[1]
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_low_rank_tuning_starts_from_the_public_model(params, windows):
    tuning = TUNINGS["low rank"](params)
    jax.tree.map(np.testing.assert_array_equal, tuning.whole(tuning.params), params)
    losses = jax.jit(tuning.losses_fn)(tuning.params, windows, tuning.frozen)
    public = jax.jit(gpt.losses_fn, static_argnums=2)(params, windows, HEADS)
    np.testing.assert_allclose(losses, public, rtol=1e-6)


def test_low_rank_tuning_trains_every_matrix_of_the_layers_and_nothing_else(params):
    tuned = TUNINGS["low rank"](params).params
    assert {x["a"].shape[-1] for x in tuned.values()} == {2}
    names = {name.split("/")[2].split("[")[0] for name in tuned}
    assert names == {"qkv", "out", "up", "down"}


@pytest.mark.usefixtures("quick_compiles")
def test_a_topic_can_be_the_unit(params, windows):
    """As the README has it: the gradient of a whole topic is clipped."""
    units = sampling.group_by_user(windows, ["b", "a", "b", "a", "b"], max_examples=2)
    loss_fn = sampling.unit_loss(lambda params, rows: gpt.losses_fn(params, rows, HEADS))
    grad_fn = bk_jax.clipped_value_and_grad(loss_fn, l2_clip_norm=1e-3, keep_batch_dim=False)
    _, grads = jax.jit(grad_fn)(params, units)
    assert 0 < float(optax.tree.norm(grads)) <= 2e-3 * (1 + 1e-4)


# --- pre-training ---------------------------------------------------------------------------------


def test_batches_of_pretraining_have_one_size_and_cover_the_rows():
    rows = np.arange(10)[:, None]
    batches = list(pretraining.shuffled(rows, 4, 5))
    assert [batch.shape for batch in batches] == [(4, 1)] * 5
    assert sorted(np.concatenate(batches).ravel().tolist()) == sorted([*range(10)] * 2)
    assert [len(batch) for batch in pretraining.shuffled(rows, 64, 2)] == [10, 10]


def test_what_pretraining_made_is_used_again(tmp_path, windows, monkeypatch):
    path = tmp_path / "new" / "pretrained.npz"
    monkeypatch.setattr(pretraining, "train", lambda start, *_: jax.tree.map(np.cos, start))
    first = pretraining.pretrained(path, TINY, lambda: windows)
    monkeypatch.setattr(pretraining, "train", lambda *_: pytest.fail("trained again"))
    second = pretraining.pretrained(path, TINY, lambda: pytest.fail("read the text again"))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert [file.name for file in path.parent.iterdir()] == ["pretrained.npz"]
    with pytest.raises(
        ValueError, match=r"was made with .*steps=2.* says .*steps=3.*Delete the file"
    ):
        pretraining.pretrained(path, dataclasses.replace(TINY, steps=3), lambda: windows)


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_texts", "quick_compiles")
def test_the_study_end_to_end(tmp_path, capsys):
    config = tmp_path / "tiny.toml"
    config.write_text(CONFIG.format(folder=tmp_path))
    outcomes = language_model.main([f"--config={config}", f"--directory={tmp_path / 'run'}"])
    assert [outcome.name for outcome in outcomes] == [study.PLAIN, study.PRIVATE, study.BY_VMAP]
    for outcome in outcomes:
        assert outcome.points[-1].step == 2
        assert list(outcome.points[-1].metrics) == ["bits per byte", "next-byte accuracy"]
        assert 0 < outcome.points[-1].metrics["bits per byte"] < 10
    assert 7 < outcomes[1].points[-1].epsilon <= 8
    printed = capsys.readouterr().out
    assert printed.count("The ") == 4  # generated before training, and after each of three
    assert "| private | 2 |" in printed
    assert (tmp_path / "run" / "study.png").stat().st_size > 10_000
    assert (tmp_path / "pretrained.npz").exists()


def test_the_configuration_is_understood():
    settings, model = study.read_config(ROOT / "configs" / "language_model.toml")
    made = pretraining.Pretraining(**model["pretraining"])
    assert made.width % made.heads == 0
    assert settings.epsilon <= 8
    kept = texts.without_repetitions(texts.topics())
    learned, _ = texts.private_windows(kept, made.length)
    assert settings.delta < 1 / len(learned.rows)
