"""The benchmark on Hugging Face's classes, without them: a stand-in for the package or the model."""

import dataclasses
import importlib.util
import math
import sys
from functools import partial
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.ops import machine
from benchmarks.peers import flax_benchmark, flax_models
from benchmarks.steps import step_models
from benchmarks.suite.comparisons import Comparison

SIZES = {"batch": 2, "length": 3, "depth": 1, "words": 11}
ONE = Comparison("flax", "jax", "flax_gpt2", SIZES, ("bk_jax", "bk_jax, loop"), budget=0, least=1)


@pytest.fixture
def small_model(monkeypatch):
    """Our own GPT2 in place of theirs."""
    monkeypatch.setitem(flax_models.MODELS, "flax_gpt2", partial(step_models.make, "gpt2", d=8))


@pytest.mark.usefixtures("small_model")
def test_all_steps_have_the_same_loss_and_clip_to_the_same_sum():
    one = dataclasses.replace(ONE, steps=(*ONE.steps, "optax"))
    result = flax_benchmark.measure(one)
    assert list(result["steps"]) == ["plain", *one.steps]
    losses, sums = list(result["losses"].values()), list(result["sums"].values())
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
    # Norms are rounded up, by up to 1 %, so that the clip norm holds.
    np.testing.assert_allclose(sums, result["sums"]["optax"], rtol=0.01)
    assert max(sums) == result["sums"]["optax"]
    assert result["versions"].startswith(f"jax {jax.__version__}")


@pytest.mark.usefixtures("small_model")
@pytest.mark.parametrize("has_jax_privacy", [False, True])
def test_it_prints_a_table_for_each_size_and_says_what_is_not_there(
    capsys, monkeypatch, has_jax_privacy
):
    asked = []
    found = flax_benchmark.measure(ONE)
    monkeypatch.setattr(flax_benchmark, "measure", lambda one: asked.append(one) or found)
    monkeypatch.setattr(machine, "describe", lambda: "a machine")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: has_jax_privacy or None)
    flax_benchmark.main(["--sizes", "2x3", "4x5", "--depth", "1", "--words", "7"])
    assert [one.sizes for one in asked] == [
        {"batch": 2, "length": 3, "depth": 1, "words": 7},
        {"batch": 4, "length": 5, "depth": 1, "words": 7},
    ]
    assert {"jax_privacy, loop" in one.steps for one in asked} == {has_jax_privacy}
    out = capsys.readouterr().out
    assert ("jax_privacy is not installed here" in out) != has_jax_privacy
    assert out.count("| not private (A/A) | ") == 2
    assert out.count("| `bk_jax, loop` | ") == 2


def test_sizes_are_examples_times_tokens(capsys):
    assert flax_benchmark.parse(["--sizes", "2x30"]).sizes == [(2, 30)]
    assert flax_benchmark.parse([]).sizes == [(8, 100), (2, 1000)]
    with pytest.raises(SystemExit):
        flax_benchmark.parse(["--sizes", "0x30"])
    assert "examples x tokens, such as 8x100, got '0x30'" in capsys.readouterr().err


class StandIn:
    """Answers as Hugging Face's model does; the logits are rows of its only parameter."""

    def __init__(self, config, seed):
        self.params = {"table": jnp.zeros((config.vocab_size, config.vocab_size))}

    def __call__(self, ids, params, train):
        assert not train
        return SimpleNamespace(logits=params["table"][ids])


def test_the_loss_is_the_mean_over_all_tokens_but_the_first(monkeypatch):
    package = ModuleType("transformers")
    package.GPT2Config, package.FlaxGPT2LMHeadModel = SimpleNamespace, StandIn
    monkeypatch.setitem(sys.modules, "transformers", package)
    task = flax_models.make("flax_gpt2", **SIZES)
    ids = np.array([[1, 2, 3]])
    assert task.batch.shape == (2, 3)
    assert float(task.loss(task.params, ids)) == pytest.approx(math.log(11))
    grads = jax.grad(task.loss)(task.params, ids)["table"]
    assert np.nonzero(np.any(grads != 0, axis=1))[0].tolist() == [1, 2]
    assert grads[1, 2] == pytest.approx((1 / 11 - 1) / 2)


def test_models_of_ours_have_their_names_there_too():
    assert flax_models.make("mlp", width=3, depth=1, batch=2).batch[0].shape == (2, 3)
