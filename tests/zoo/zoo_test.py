"""Every model: norms and clipped sums against `vmap`, and the recorded route of each parameter.

`make test-peers` compares the values of all; `-m "not slow"` those of `WITH_VALUES`,
one of each kind, and plans all.

BK_JAX_RECORD_ROUTES=1 pytest tests/zoo    # writes routes.json anew; look at the difference
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import oracle

import bk_jax
from zoo import of_equimo, of_haiku, of_keras, of_transformers
from zoo.entry import B, Entry

RECORD = Path(__file__).with_name("routes.json")
FAMILIES = {
    "equimo": of_equimo,
    "haiku": of_haiku,
    "keras": of_keras,
    "transformers": of_transformers,
}
MODELS = {
    f"{family}.{make.__name__}": make
    for family, module in FAMILIES.items()
    for make in module.MODELS
}
# Their values are compared in every run. The others' are, too, where slow tests are run.
WITH_VALUES = {
    "equimo.vssd",
    "haiku.attention",
    "haiku.lstm",
    "haiku.mlp",
    "keras.bert",
    "keras.gemma",
    "keras.llama",
    "keras.mobile_net",
    "keras.t5",
    "keras.vit",
}
# A sum of products in float32 and its like under `vmap` differ by roundings, in each of some layers.
RTOL = 2e-4

pytestmark = [
    # Keras' own variables have an `__array__` of the time before NumPy 2.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    # Its T5 hands a mask to a layer that drops it; no token is masked here.
    pytest.mark.filterwarnings("ignore:.*does not support masking:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def rows_by_vmap(entry: Entry, params: Any, batch: Any) -> Any:
    """The gradient of every example, as a batch of one."""

    def of_one(example: Any) -> Any:
        return jax.grad(entry.loss)(params, jax.tree.map(lambda x: x[None], example))

    return jax.vmap(of_one)(batch)


def squared_norms(rows: Any) -> jax.Array:
    return sum(jnp.sum(g.reshape(B, -1) ** 2, 1) for g in jax.tree.leaves(rows))


def private(entry: Entry) -> Any:
    return bk_jax.clipped_value_and_grad(
        entry.loss, l2_clip_norm=1.0, return_stats=True, method="bk"
    )


def check(entry: Entry, clip_norm: float, grad_fn: Any) -> None:
    """Compares norms, factors and clipped sums."""
    run = jax.jit(grad_fn, compiler_options=oracle.QUICK)
    _, grads, stats = run(entry.params, entry.batch)
    rows = jax.jit(lambda p, b: rows_by_vmap(entry, p, b), compiler_options=oracle.QUICK)(
        entry.params, entry.batch
    )
    norms = np.sqrt(squared_norms(rows))
    np.testing.assert_allclose(stats.norms, norms, rtol=RTOL)
    factors = np.minimum(1.0, clip_norm / norms)
    np.testing.assert_allclose(stats.clip_factors, factors, rtol=RTOL)
    for got, by_row in zip(jax.tree.leaves(grads), jax.tree.leaves(rows), strict=True):
        expected = np.tensordot(factors, np.asarray(by_row), 1)
        scale = np.sum(factors * norms)
        np.testing.assert_allclose(got, expected, rtol=0, atol=RTOL * scale)


@pytest.mark.parametrize(
    "name",
    [
        name if name in WITH_VALUES else pytest.param(name, marks=pytest.mark.slow)
        for name in MODELS
    ],
)
def test_values(name):
    entry = MODELS[name]()
    check(entry, 1.0, private(entry))


@pytest.mark.parametrize("name", MODELS)
def test_routes(name):
    """Traced and planned, not compiled."""
    entry = MODELS[name]()
    routes = private(entry).explain(entry.params, entry.batch).routes()
    if os.environ.get("BK_JAX_RECORD_ROUTES"):
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        text = json.dumps(known | {name: routes}, indent=1, sort_keys=True)
        RECORD.write_text(text + "\n")
    assert json.loads(RECORD.read_text())[name] == routes


def test_models_that_are_named_exist():
    assert MODELS.keys() >= WITH_VALUES


def test_every_record_is_of_a_model():
    assert json.loads(RECORD.read_text()).keys() == MODELS.keys()
