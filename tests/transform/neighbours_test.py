"""One example moves the noiseless result by at most `sensitivity()`, for random programs."""

import jax
import numpy as np
from dp_accounting import NeighboringRelation
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.generator import BATCH, programs
from support.tolerance import eps

import bk_jax


def flat(tree):
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)])


@settings(max_examples=12)
@given(
    program=programs(statements=3),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    index=st.integers(0, BATCH - 1),
    clip_norm=st.sampled_from([0.01, 1.0, {"a": 0.3, "b": 4.0}]),
    normalize_by=st.sampled_from([1.0, 3.0]),
)
def test_neighbouring_data(x64, program, scale, index, clip_norm, normalize_by):
    grad_fn = bk_jax.clipped_value_and_grad(
        program.loss(),
        l2_clip_norm=clip_norm,
        normalize_by=normalize_by,
        method=program.options["method"],
    )
    run, params = jax.jit(grad_fn), program.params()
    x, ids = program.batch()
    x = scale * x
    other = x.copy(), ids.copy()
    other[0][index], other[1][index] = -3 * x[index], ids[index - 1]

    def result(batch, is_padding):
        return flat(run(params, batch, is_padding_example=is_padding)[1])

    nobody = np.zeros(BATCH, bool)
    all_of_them = result((x, ids), nobody)
    removed = result((x, ids), np.arange(BATCH) == index)
    replaced = result(other, nobody)
    rounding = 8 * BATCH**2 * eps(np.float64) * grad_fn.sensitivity()
    moved = np.linalg.norm(all_of_them - removed)
    assert moved <= grad_fn.sensitivity() + rounding
    assert moved <= grad_fn.sensitivity(NeighboringRelation.ADD_OR_REMOVE_ONE) + rounding
    moved = np.linalg.norm(all_of_them - replaced)
    assert moved <= grad_fn.sensitivity(NeighboringRelation.REPLACE_ONE) + rounding
