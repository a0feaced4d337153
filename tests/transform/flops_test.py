"""Counting flops."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from bk_jax.planning.flops import count_flops
from transform.steps import count_up

A, B = count_up(2, 3), count_up(3, 5)
PRODUCT = 2 * 2 * 3 * 5


@jax.custom_jvp
def custom(a, b):
    return a @ b


custom.defjvp(lambda primals, tangents: (custom(*primals), custom(*tangents)))


def scanned(a, b):
    return lax.scan(lambda h, _: (h + jnp.sum(a @ b), None), 0.0, None, length=7)[0]


def branches(a, b):
    return lax.cond(a[0, 0] > 0, lambda: a @ b, lambda: (a @ b) + (a @ b))


def looped(a, b):
    return lax.while_loop(lambda h: h < 3, lambda h: h + jnp.sum(a @ b), 0.0)


COUNTS = {
    "product": (jnp.dot, PRODUCT),
    "elementwise": (lambda a, b: jnp.tanh(a) + 1, 0),
    "batched": (lambda a, b: jnp.einsum("nd,nk->dk", a, a), 2 * 3 * 3 * 2),
    "jit": (jax.jit(jnp.dot), PRODUCT),
    "remat": (jax.checkpoint(jnp.dot), PRODUCT),
    "custom_jvp": (custom, PRODUCT),
    "scan": (scanned, 7 * PRODUCT),
    "scan in scan": (
        lambda a, b: lax.scan(lambda h, _: (h + scanned(a, b), None), 0.0, None, length=2)[0],
        14 * PRODUCT,
    ),
    "the larger branch": (branches, 2 * PRODUCT),
    "while": (looped, PRODUCT),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    fun, expected = COUNTS[name]
    assert count_flops(jax.make_jaxpr(fun)(A, B)) == expected


@pytest.mark.parametrize(("groups", "expected"), [(1, 2 * 6 * 4 * 4 * 3), (2, 2 * 6 * 4 * 2 * 3)])
def test_convolutions(groups, expected):
    def conv(x, w):  # 6 features, 4 pixels, 4 channels, 3 taps
        return lax.conv_general_dilated(x, w, (1,), "VALID", feature_group_count=groups)

    image, kernel = count_up(1, 4, 6), count_up(6, 4 // groups, 3)
    assert count_flops(jax.make_jaxpr(conv)(image, kernel)) == expected
