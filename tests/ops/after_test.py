"""After: an order for XLA's CPU scheduler, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.structure import fresh_jit
from support.tolerance import assert_bits_equal

from bk_jax import ops


def test_it_is_the_value_itself(implementation, dtype):
    x = np.asarray([1.5, -0.0, np.inf, np.nan], dtype)
    found = fresh_jit(lambda x, other: ops.after(x, other, other))(x, np.zeros((2, 3), np.int32))
    assert_bits_equal(found, x)


@pytest.mark.native
@pytest.mark.parametrize("in_order", [True, False])
def test_sums_in_a_chain_are_freed_before_the_next(in_order):
    """Without the chain XLA makes all of them first, each of 1.44 MB."""

    def run(a, factor, xs):
        updated = []
        for k, x in enumerate(xs):
            total = ops.clipped_gemm(a, factor, k * a)
            factor = ops.after(factor, total) if in_order else factor
            updated.append(x + total)
        return updated

    a, factor = np.ones((4, 1, 1, 600), np.float32), np.ones(4, np.float32)
    xs = [np.full((1, 600, 600), k, np.float32) for k in range(8)]
    compiled = jax.jit(run, donate_argnums=2).lower(a, factor, xs).compile()
    at_once = compiled.memory_analysis().temp_size_in_bytes // (600 * 600 * 4)
    assert at_once < 4 if in_order else at_once == 8
    for k, x in enumerate(compiled(a, factor, [jnp.asarray(x) for x in xs])):
        np.testing.assert_array_equal(x, k + 4 * k)
