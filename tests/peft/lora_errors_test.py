"""What LoRA cannot adapt is an error that names it, or is left out when asked."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bk_jax import peft

IDS = np.zeros((2, 3), np.int32)


def mixed_loss(params, ids):
    x = params["embedding"][ids] @ params["kernel"]
    x = x + jnp.sum(jnp.square(params["decayed"])) + jax.lax.stop_gradient(params["stopped"]).sum()
    return jnp.sum(x @ params["decayed"])


MIXED = {
    "embedding": np.ones((4, 3), np.float32),
    "kernel": np.ones((3, 3), np.float32),
    "decayed": np.ones((3, 3), np.float32),
    "stopped": np.ones((3, 3), np.float32),
    "unused": np.ones((3, 3), np.float32),
    "count": np.int32(1),
}
REASONS = {
    "embedding": r"'embedding': used by gather at .*lora_errors_test.py",
    "decayed": r"'decayed': used by (square|integer_pow|mul) at .*lora_errors_test.py",
    "stopped": r"'stopped': used by stop_gradient",
    "unused": "'unused': not used",
}


@pytest.mark.parametrize("name", REASONS)
def test_a_use_that_is_no_product_is_an_error_that_names_it(name):
    with pytest.raises(ValueError, match=f"(?s){REASONS[name]}.*skip=True"):
        peft.lora(mixed_loss, MIXED, IDS, rank=1, match=["kernel", name])


def test_such_parameters_are_left_out_when_asked():
    match = [*REASONS, "kernel"]
    lora = peft.lora(mixed_loss, MIXED, IDS, rank=1, match=match, skip=True)
    assert set(lora.adapters) == {"kernel"}
    assert set(lora.skipped) == set(REASONS)
    loss = functools.partial(lora.loss_fn, frozen=MIXED)
    assert jnp.isfinite(jax.jit(loss)(lora.adapters, IDS))


def test_nothing_left_to_adapt_is_an_error():
    with pytest.raises(
        ValueError, match="no selected parameter can be adapted: 'unused': not used"
    ):
        peft.lora(mixed_loss, MIXED, IDS, rank=1, match="unused", skip=True)


def test_what_is_joined_with_something_left_out_is_left_out():
    def loss(params, ids):
        looked_up = params["table"][:2][ids]
        return jnp.sum(looked_up @ jnp.concatenate([params["table"][2:], params["more"]], axis=1))

    params = {"table": np.ones((5, 3), np.float32), "more": np.ones((3, 2), np.float32)}
    with pytest.raises(ValueError, match="'more': joined with a parameter that is left out"):
        peft.lora(loss, params, IDS, rank=1, match="*", skip=True)


def test_a_returned_weight_is_named():
    def with_weight(params, x):
        return jnp.sum(x @ params["w"]), params["w"]

    params, x = {"w": np.ones((5, 2), np.float32)}, np.ones((1, 5), np.float32)
    with pytest.raises(ValueError, match="'w': used by return at an output"):
        peft.lora(with_weight, params, x, rank=1, match="w")


def test_convolutions_are_named():
    def loss(params, x):
        return jnp.sum(jax.lax.conv(x, params["k"], (1,), "SAME"))

    params, image = {"k": np.ones((2, 3, 1), np.float32)}, np.ones((1, 3, 4), np.float32)
    with pytest.raises(ValueError, match="'k': used by conv_general_dilated"):
        peft.lora(loss, params, image, rank=1, match="k")


def test_integers_are_refused():
    with pytest.raises(TypeError, match="not floating-point: 'count': int32"):
        peft.lora(mixed_loss, MIXED, IDS, rank=1, match="count")


@pytest.mark.parametrize("rank", [0, -1, 1.5])
def test_rank_must_be_a_positive_whole_number(rank):
    with pytest.raises(ValueError, match="rank must be a whole number of at least 1"):
        peft.lora(mixed_loss, MIXED, IDS, rank=rank, match="kernel")


def test_a_pattern_without_a_match_is_an_error():
    with pytest.raises(ValueError, match="pattern 'kernels' matches no parameter; paths are count"):
        peft.lora(mixed_loss, MIXED, IDS, rank=1, match=["kernel", "kernels"])
    with pytest.raises(ValueError, match="the function given as match selects no parameter"):
        peft.lora(mixed_loss, MIXED, IDS, rank=1, match=lambda path, leaf: leaf.shape == (9,))


def test_adapters_of_another_program_are_refused():
    def loss(params, x):
        return jnp.sum(x @ params["w1"] @ params["w2"])

    params = {"w1": np.ones((2, 3), np.float32), "w2": np.ones((3, 4), np.float32)}
    x = np.ones((1, 2), np.float32)
    lora, other = (peft.lora(loss, params, x, rank=2, match=name) for name in params)
    with pytest.raises(ValueError, match="the adapters do not fit the program"):
        lora.loss_fn(other.adapters, x, frozen=params)
    with pytest.raises(ValueError, match="the adapters do not fit the program"):
        lora.merge(params, other.adapters)
