"""Predicted seconds: the work of a program in whole numbers, and what follows from rates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bk_jax
from bk_jax.planning.default_rates import AVX512
from bk_jax.planning.rates import names
from bk_jax.planning.seconds import pass_seconds, predict
from bk_jax.planning.work import Product, Work, count_work

# --- work ---


def floats(*shape, dtype=np.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def work(function, *args):
    return count_work(jax.make_jaxpr(function)(*args))


def test_a_product():
    found = work(jnp.matmul, floats(2, 3), floats(3, 5))
    assert found == Work({Product("product", 60, 4 * (6 + 15 + 10)): 1}, operations=1)
    (short,) = work(
        jnp.matmul, *(floats(*s, dtype=jnp.bfloat16) for s in ((2, 3), (3, 5)))
    ).products
    assert short == Product("product", 60, 2 * (6 + 15 + 10), itemsize=2)


def test_many_small_products():
    (found,) = work(jnp.matmul, floats(7, 2, 3), floats(7, 3, 5)).products
    assert found == Product("batched", 7 * 60, 7 * 4 * (6 + 15 + 10))


def test_a_convolution():
    def convolve(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    (found,) = work(convolve, floats(2, 5, 7, 3), floats(3, 3, 3, 4)).products
    nbytes = 4 * (2 * 35 * 3 + 9 * 12 + 2 * 35 * 4)
    assert found == Product("convolution", 2 * (2 * 35 * 4) * 27, nbytes, pixels=35)


ELSEWHERE = {
    "elementwise": (lambda x: x * x + 2, Work(fused=2 * 24, operations=2)),
    "transcendental": (jnp.tanh, Work(fused=24, transcendental=6, operations=1)),
    "a sum reads and writes": (lambda x: x.sum(0), Work(moved=24 + 12, operations=1)),
    "a transpose too": (lambda x: x.T, Work(moved=48, operations=1)),
    "a running sum too": (lax.cumsum, Work(moved=48, operations=1)),
    "a reshape does nothing": (lambda x: x.reshape(3, 2)[None], Work()),
    "a pool reads each element once per window": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 1), "VALID"),
        Work(moved=2 * 24 + 16, operations=1),
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_everything_else(name):
    function, expected = ELSEWHERE[name]
    assert work(function, floats(2, 3)) == expected


def test_rows_that_are_added_are_moved():
    """The small program that adds two elements is not the work."""
    found = work(lambda x, y: x.at[jnp.asarray([1, 0])].add(y), floats(9, 3), floats(2, 3))
    assert found.moved >= 2 * 4 * 27


def test_inner_programs_are_followed():
    def step(carry, _):
        return jax.jit(jnp.tanh)(carry @ carry), None

    found = work(lambda x: lax.scan(step, x, None, length=7)[0], floats(3, 3))
    assert (found.flops, found.transcendental, found.operations) == (7 * 54, 7 * 9, 14)


def test_the_longest_branch_counts():
    def branches(flag, x):
        return lax.cond(flag, lambda x: x @ x @ x, lambda x: x, x)

    assert work(branches, True, floats(3, 3)).flops == 2 * 54


# --- seconds ---

SLOW = AVX512.faster(0.001)  # the fixed cost of operations vanishes beside the work


def both(batch_size=4, length=32, route=None, rates=AVX512, **options):
    """The prediction of a dense layer with a bias and of a table."""
    found = {}

    def spy(*args, **kwargs):
        found["prediction"] = predict(*args[:4], rates, **kwargs)
        return found["prediction"]

    def loss(params, ids):
        x = params["table"][ids] @ params["kernel"] + params["bias"]
        return jnp.sum(jnp.tanh(x))

    params = {"bias": floats(128), "kernel": floats(64, 128), "table": floats(50, 64)}
    routes = {"kernel": route} if route else {}
    grad_fn = bk_jax.dp_value_and_grad(loss, routes=routes, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bk_jax.grad_fn.predict", spy)
        grad_fn.explain(params, floats(batch_size, length, dtype=np.int32))
    return found["prediction"]


def slower(name):
    """One rate a thousandth of what it is."""
    return dataclasses.replace(AVX512, **{name: getattr(AVX512.faster(0.001), name)})


def test_twice_as_fast_takes_half_as_long():
    assert both(rates=AVX512.faster(2.0)).plain == both().plain / 2
    assert both(rates=AVX512.faster(2.0)).private == both().private / 2


@pytest.mark.parametrize("name", ["product", "weight_gradient", "memory", "transcendental"])
def test_a_rate_of_the_plain_step_matters(name):
    assert both(rates=slower(name)).plain > both().plain


@pytest.mark.parametrize("name", ["clipped_gemm", "ghost_norm", "noise"])
def test_a_rate_of_ours_matters_to_the_private_step_only(name):
    before, after = both(route="ghost"), both(route="ghost", rates=slower(name))
    assert after.plain == before.plain
    assert after.private > before.private


def test_seconds_grow_with_the_batch():
    few, many = (both(batch_size=size, rates=SLOW, noise_multiplier=0.0) for size in (64, 128))
    assert 1.9 < many.plain / few.plain <= 2.0
    assert 1.9 < many.private / few.private <= 2.0


def test_ghost_norms_grow_with_the_square_of_the_length():
    def norm(length):
        slow, fast = (both(length=length, route="ghost", rates=r).blocks[1] for r in rates)
        return slow.private - fast.private

    rates = [dataclasses.replace(SLOW, ghost_norm=((1, rate),)) for rate in (1e6, 1e30)]
    assert 3.9 < norm(512) / norm(256) < 4.0


def test_the_route_decides_what_privacy_adds():
    extras = {}
    for route in ("ghost", "fused", "store"):
        _, kernel = both(length=512, route=route, rates=SLOW).blocks
        extras[route] = kernel.private - kernel.plain
    assert extras["store"] < extras["fused"] < extras["ghost"]


def test_noise_is_for_every_parameter():
    assert both().noise == tuple(size / AVX512.noise for size in (128, 64 * 128, 50 * 64))
    assert both(noise_multiplier=0.0).noise == (0.0, 0.0, 0.0)


def test_layers_that_share_activations_share_a_gram_matrix():
    def loss(params, x):
        return sum(jnp.sum(jnp.tanh(x @ params[name])) for name in "qkv")

    params = {name: floats(256, 256) for name in "qkv"}
    grad_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=0.0, routes={"*": "ghost"})
    rows = {row.path: row.seconds for row in grad_fn.explain(params, floats(4, 128, 256)).rows}
    assert rows["q"] > rows["k"] == rows["v"]


def test_a_pass_that_does_nothing_takes_no_time():
    assert pass_seconds(Work(), AVX512) == 0
    assert "source" not in names()


def kernel_seconds(**rates):
    def loss(kernel, x):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
        return jnp.sum(jnp.tanh(y))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bk_jax.grad_fn.current_rates", lambda device: dataclasses.replace(SLOW, **rates)
        )
        grad_fn = bk_jax.clipped_value_and_grad(loss, routes={"*": rates.pop("route", "fused")})
        found = grad_fn.explain(floats(3, 3, 16, 16), floats(4, 14, 14, 16))
    return found.plain_seconds, found.private_seconds


@pytest.mark.parametrize("name", ["conv_sum", "conv_norm", "kernel_gradient", "convolution"])
def test_rates_of_convolutions(name):
    before, after = kernel_seconds(), kernel_seconds(**{name: ((1, 1e6),)})
    of_plain, of_private = (b < a for b, a in zip(before, after, strict=True))
    assert of_plain == (name in ("kernel_gradient", "convolution"))
    assert of_private == (name != "kernel_gradient")
