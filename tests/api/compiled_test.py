"""What XLA compiles: no copy of a gradient between our calls, and each output gradient once."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax.summing.blocks import lookup

pytestmark = pytest.mark.native
VOCABULARY, WIDTH, TOKENS, BATCH = 331, 32, 12, 4


def loss(params, tokens):
    """A language model with one hidden layer and a head that is tied to the token table."""
    h = params["table"][tokens]
    h = h + jnp.tanh(h @ params["hidden"])
    logits = jax.nn.log_softmax(h @ params["table"].T)[:, :-1]
    return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1))


def compiled(**options):
    table = jnp.ones((VOCABULARY, WIDTH))
    params = {"table": table, "hidden": jnp.ones((WIDTH, WIDTH))}
    tokens = np.zeros((BATCH, TOKENS), np.int32)
    grad_fn = bk_jax.dp_value_and_grad(loss, **options)
    step = jax.jit(lambda params, tokens, key: grad_fn(params, tokens, key=key))
    return step.lower(params, tokens, jax.random.key(0)).compile().as_text()


@pytest.fixture(scope="module")
def program():
    return compiled()


def operands(program, target):
    """Names of the operands of every call of a target."""
    calls = re.findall(rf"custom-call\((.*?)\), custom_call_target=\"{target}\"", program)
    return [re.findall(r"%([\w.-]+)", call) for call in calls]


def test_noise_and_scatter_take_over_what_a_call_made(program):
    (noisy,) = operands(program, "bk_gaussians")
    taken = noisy[2:]  # after key and deviation
    taken += [names[3] for names in operands(program, "bk_clipped_scatter")]
    assert len(taken) == 3  # two parameters and one lookup
    assert [name for name in taken if not name.startswith("ffi_call")] == []


def test_the_gradient_of_logits_is_stored_once(program):
    read = {names[0] for names in operands(program, "bk_ghost_norm")}
    read &= {names[0] for names in operands(program, "bk_clipped_gemm")}
    (logits,) = read & {names[0] for names in operands(program, "bk_tied_cross")}
    rows = f"f32[{BATCH * TOKENS},{VOCABULARY}]"
    assert re.search(rf"%{re.escape(logits)} = {re.escape(rows)}", program)
    padded = re.findall(rf"= f32\[[\d,]*{TOKENS},{VOCABULARY}\]\S* pad\(", program)
    assert len(padded) == 1


def test_stored_tables_are_made_for_all_examples_at_once():
    """Example by example, each table was copied into the others' array, twice."""
    program = compiled(routes={"table": "store"})
    loops = re.findall(r"= \((.*)\) while\(", program)
    assert [carried for carried in loops if f"{VOCABULARY},{WIDTH}]" in carried] == []
    assert len(operands(program, "bk_per_sample_grad")) == 1
    assert len(operands(program, "bk_clipped_scatter")) == 1


def test_more_rows_than_ids_can_number_are_refused():
    ids, gradients = np.zeros((3, 1), np.int32), np.zeros((3, 1, 1), np.float32)
    message = r"tables of 3 examples have 3000000000 rows, more than int32 .*\(microbatch_size\)"
    with pytest.raises(ValueError, match=message):
        lookup.add_to_each(jnp.asarray(ids), jnp.asarray(gradients), 10**9)


def test_an_id_outside_its_table_reaches_no_other_example():
    ids, gradients = np.asarray([[2], [0], [-1]], np.int32), np.ones((3, 1, 1), np.float32)
    tables = lookup.add_to_each(jnp.asarray(ids), jnp.asarray(gradients), 2)
    np.testing.assert_array_equal(tables[..., 0], [[0, 0], [1, 0], [0, 0]])


def test_convolutions_read_images_in_the_shape_of_xla():
    def loss(params, images):
        for kernel in params:
            layout = ("NHWC", "HWIO", "NHWC")
            images = jax.lax.conv_general_dilated(
                jnp.tanh(images), kernel, (1, 1), "SAME", dimension_numbers=layout
            )
        return jnp.mean(images**2)

    params = [jnp.ones((3, 3, 8, 8)) for _ in range(3)]
    grad_fn = bk_jax.clipped_value_and_grad(loss)
    program = jax.jit(grad_fn).lower(params, jnp.ones((5, 12, 12, 8))).compile().as_text()
    assert len(operands(program, "bk_conv_grad")) == 3  # gradients that are stored
    assert re.findall(r"f32\[5,1,1,12,12,8\]", program) == []
