"""A neighbouring relation that is misread halves the truth: replace-one counts twice."""

import dataclasses
import enum

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation

import bk_jax
from bk_jax import audit, privacy

GRAD_FN = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(x @ w), l2_clip_norm=3.0)
BOUNDS = {"add_or_remove_one": 3.0, "replace_one": 6.0, "replace_special": 3.0}
SMALL = {"num_examples": 100, "batch_size": 10, "steps": 2, "delta": 1e-4, "pld_interval": 1e-2}

# Not one of these says which relation is meant.
MISTAKES = {
    "a misspelt name": "replace-one",
    "the name in words": "replace one",
    "half of a name": "replace",
    "the enum printed": "NeighboringRelation.REPLACE_ONE",
    "the number of the enum": 2,
    "nothing": None,
    "true": True,
    "bytes": b"replace_one",
    "a list": ["replace_one"],
    "an enum of somebody else": enum.Enum("Neighbours", ["REPLACE_ONE"]).REPLACE_ONE,
    "an object with a name": type("Named", (), {"name": "ADD_OR_REMOVE_ONE"})(),
    "the enum itself": NeighboringRelation,
}


def spellings(name):
    return [name, name.upper(), name.title(), NeighboringRelation[name.upper()]]


def test_every_relation_of_dp_accounting_is_here():
    assert {relation.name.lower() for relation in NeighboringRelation} == BOUNDS.keys()


@pytest.mark.parametrize("name", BOUNDS)
def test_sensitivity_takes_every_spelling(name):
    assert [GRAD_FN.sensitivity(each) for each in spellings(name)] == [BOUNDS[name]] * 4


@pytest.mark.parametrize("name", BOUNDS)
def test_a_plan_takes_every_spelling_and_keeps_one(name):
    plans = [
        privacy.PrivacyPlan(noise_multiplier=1.0, neighboring_relation=each, **SMALL)
        for each in spellings(name)
    ]
    assert {plan.neighboring_relation for plan in plans} == {name}
    assert len(set(plans)) == 1
    assert dataclasses.replace(plans[0], steps=3).neighboring_relation == name


def test_the_plan_of_a_budget_takes_the_enum():
    setting = {k: v for k, v in SMALL.items() if k != "pld_interval"}
    by_enum, by_name = (
        privacy.plan(target_epsilon=8.0, neighboring_relation=relation, **setting)
        for relation in (NeighboringRelation.REPLACE_ONE, "replace_one")
    )
    assert by_enum == by_name
    assert GRAD_FN.sensitivity(by_name.neighboring_relation) == 6.0


@pytest.mark.parametrize("name", BOUNDS)
def test_an_audit_takes_every_spelling(name):
    w, batch = np.ones(2, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    sum_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(x @ w), l2_clip_norm=3.0)
    compiled = jax.jit(sum_fn.__call__)
    for relation in spellings(name):
        report = audit.assert_sensitivity(
            compiled, w, batch, bound=BOUNDS[name], relation=relation, examples=1
        )
        assert report.bounds["REPLACE_ONE"] == 6.0


TAKERS = {
    "sensitivity": GRAD_FN.sensitivity,
    "PrivacyPlan": lambda relation: privacy.PrivacyPlan(
        noise_multiplier=1.0, neighboring_relation=relation, **SMALL
    ),
    "plan": lambda relation: privacy.plan(
        target_epsilon=1.0, delta=1e-4, num_examples=100, batch_size=10, steps=2,
        neighboring_relation=relation,
    ),
    "assert_sensitivity": lambda relation: audit.assert_sensitivity(
        GRAD_FN, np.ones(2), np.ones((2, 2)), relation=relation
    ),
}  # fmt: skip


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_no_relation_is_refused(taker, mistake):
    expected = (
        "relation must be one of 'add_or_remove_one', 'replace_one', 'replace_special' in any "
        "case, or a dp_accounting.NeighboringRelation; got "
    )
    with pytest.raises(ValueError, match=expected):
        TAKERS[taker](MISTAKES[mistake])
