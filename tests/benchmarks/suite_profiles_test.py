"""Profiles of comparisons: what is read, expanded, scaled and refused."""

import dataclasses
import inspect
import json

import pytest
from support.results import TINY

from benchmarks.peers import flax_models, jax_worker
from benchmarks.steps import step_models
from benchmarks.suite import comparisons
from bk_jax.planning.methods import METHODS


@pytest.mark.parametrize("profile", ["quick", "full", "peers", "check", "tiny"])
def test_every_comparison_of_a_profile_can_be_made(profile):
    peers = {*jax_worker.STEPS, "opacus, hooks", "opacus, ghost"}
    for one in comparisons.read(profile):
        assert set(one.steps) <= {*METHODS, "noise"} | peers
        if one.model in flax_models.MODELS:
            assert inspect.signature(flax_models.MODELS[one.model]).bind(**one.sizes)
        else:
            assert step_models.make(one.model, abstract=True, **one.sizes)
        assert (one.kind == "largest") == (len(one.limits) > 0)
        assert set(one.compiled) < set(one.steps) or not one.compiled
        assert comparisons.from_dict(json.loads(json.dumps(one.as_dict()))) == one


def test_profiles_share_no_name_so_that_results_do_not_overwrite_each_other():
    names = [
        one.name for profile in ("quick", "full", "peers") for one in comparisons.read(profile)
    ]
    assert len(names) == len(set(names))


def test_the_full_profile_times_every_method_on_every_model_that_the_paper_trains():
    full = [one for one in comparisons.read("full") if one.kind == "time" and not one.figure]
    others = {
        "mlp",
        "mlp_shallow",
        "llama",
        "llama_8b",
        "llama_70b",
    }  # not the paper's, or too large
    assert all("auto" not in one.compiled for one in full)
    assert {one.model for one in full} == step_models.MODELS.keys() - others
    assert all({*METHODS, "noise"} == set(one.steps) for one in full)
    assert any(set(one.steps) > set(METHODS) for one in comparisons.read("quick"))


def test_the_full_profile_searches_the_largest_batch_of_every_model():
    full = comparisons.read("full")
    largest = {one.model for one in full if one.kind == "largest"}
    assert largest == {one.model for one in full if one.kind == "time"} - {"mlp_shallow"}
    assert {one.limits for one in full if one.kind == "largest"} == {(8e9, 24e9)}


def test_what_varies_becomes_a_figure():
    rows = [one for one in comparisons.read("tiny") if one.figure]
    assert [(one.name, one.x, one.sizes["batch"]) for one in rows] == [
        ("tiny-memory-batch-2", "batch", 2),
        ("tiny-memory-batch-4", "batch", 4),
    ]


def test_scaling_makes_sizes_smaller_and_another_result():
    one = dataclasses.replace(TINY, sizes={"batch": 8, "length": 100, "size": 224, "words": 50})
    half = comparisons.scaled(one, 0.5)
    assert half.sizes == {"batch": 4, "length": 50, "size": 128, "words": 50}
    assert (half.name, half.title) == ("tiny-scale-0.5", "mlp, scaled by 0.5")
    assert comparisons.scaled(one, 0.01).sizes == {"batch": 1, "length": 1, "size": 32, "words": 50}
    assert comparisons.scaled(one, 1.0) is one


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="no profile 'slow'; profiles are check, full, peers"):
        comparisons.read("slow")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\nkind = "speed"', "a has the kind 'speed'; kinds are time, memory"),
        (
            'name = "a"\nkind = "time"\ncompiled = ["bk", "auto"]',
            "a compiles auto, bk, not among its steps",
        ),
        (
            'name = "a"\nkind = "time"\n[[comparison]]\nname = "a"\nkind = "time"',
            "more than one.* a",
        ),
    ],
)
def test_a_wrong_profile_is_refused(tmp_path, monkeypatch, text, message):
    rest = '\nmodel = "mlp"\nsizes = {}\nsteps = []'
    text = "[[comparison]]\n" + text.replace("\n[[comp", rest + "\n[[comp") + rest
    (tmp_path / "wrong.toml").write_text(text)
    monkeypatch.setattr(comparisons, "CONFIGS", tmp_path)
    with pytest.raises(ValueError, match=message):
        comparisons.read("wrong")
