"""The compiled private step beside the plain one: it moves no more arrays about.

A copy or a transpose in the optimised program is an array whose elements XLA had to put into another
order. Each family of the suite has a few of its models here (all of them would take a minute). A model
that needs more copies than the plain step is listed with the reason; more by a tenth, or by two, may
happen. The plain step is the gradient of the mean loss of the batch. Scalars do not count: they are
counters of loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from models import adapters, convolutions, flow, mlp, recurrent, stacked, transformers
from models.model import Model

import bk_jax

pytestmark = pytest.mark.native  # the twins of the custom calls are other programs

CHOSEN: dict[str, list[Callable[[], Model]]] = {
    "mlp": [mlp.mlp_linen, mlp.mlp_equinox, mlp.regulariser],
    "transformers": [
        transformers.gpt2_linen,
        transformers.bert_linen,
        transformers.vit_linen,
        transformers.decoder_equinox,
        transformers.t5_plain,
        transformers.moe_top1,
    ],
    "stacked": [stacked.scan_remat_linen, stacked.albert_loop, stacked.nested_three_deep],
    "convolutions": [convolutions.resnet_linen, convolutions.convs_equinox],
    "recurrent": [recurrent.lstm_plain, recurrent.gru_linen],
    "adapters": [adapters.lora_plain, adapters.lora_merged],
    "flow": [
        flow.cond_inside,
        flow.vmap_inside,
        flow.lax_map,
        flow.one_hot_and_dense,
        flow.dropout,
        flow.mixed_precision_linen,
    ],
}
LOOP = "what a loop records is stacked step by step, and examples come first for the norms"
LEAF = "the gradient of each example is formed, and turned round as the plain one is"
CHOICE = "an example decides, so both branches are computed"
RANDOM = "each example draws random numbers of its own"
ROUTED = "the tokens of one example compete, not those of the batch: they have an axis more"
# How many more than the plain step, at most, and why.
MORE = {
    "regulariser": (6, LEAF),
    "moe_top1": (11, ROUTED),
    "scan_remat_linen": (79, LOOP),
    "nested_three_deep": (33, LOOP),
    "lstm_plain": (5, LOOP),
    "gru_linen": (29, LOOP),
    "lora_merged": (6, LEAF),
    "cond_inside": (4, CHOICE),
    "lax_map": (15, LOOP),
    "dropout": (22, RANDOM),
}


@pytest.fixture(autouse=True)
def _caches() -> Iterator[None]:
    """JAX remembers traces, as it does for users: not while tracers are watched for leaks."""
    with jax.check_tracer_leaks(False):
        yield


def plain_step(model: Model) -> Callable[..., Any]:
    """Value and gradient of the mean loss; a loss of one example is mapped over them."""
    axes = (None, 0, *[None] * (len(model.args) - 2))

    def loss(*args: Any) -> Any:
        if model.options.get("keep_batch_dim", True):
            return model.loss(*args)
        return jnp.mean(jax.vmap(model.loss, axes)(*args))

    return jax.value_and_grad(loss, argnums=model.options.get("argnums", 0))


def moves(step: Callable[..., Any], model: Model) -> int:
    """The copies and transposes of arrays in the compiled step."""
    text = jax.jit(step).lower(*model.args).compile().as_text()
    return len(re.findall(r"= \w+\[\d[^=]* (?:copy|transpose)\(", text))


@pytest.mark.parametrize(
    "make", [make for family in CHOSEN.values() for make in family], ids=lambda make: make.__name__
)
def test_private_steps_move_no_more_arrays_than_plain_ones(make):
    model = make()
    plain = moves(plain_step(model), model)
    private = moves(bk_jax.clipped_value_and_grad(model.loss, **model.options), model)
    more, reason = MORE.get(make.__name__, (max(2, plain // 10), "no reason is known"))
    assert private <= plain + more, f"{private} copies and transposes, plain {plain}: {reason}"


def test_what_is_listed_is_tested():
    names = {make.__name__ for family in CHOSEN.values() for make in family}
    assert set(MORE) <= names
