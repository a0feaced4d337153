"""Noise on a grid: what one example can do, and what comes out."""

import dataclasses
import fractions
import functools
import math
import re

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.process import run_python

import bk_jax
from bk_jax import mechanisms, ops
from bk_jax.mechanisms.grid import WHOLE_ORDERS

PARAMS = {"w": np.ones((5, 3), np.float32), "b": np.zeros(3, np.float32)}
ROWS = (np.random.default_rng(0).normal(size=(6, 5)) * 4).astype(np.float32)


def loss_fn(params, x):
    return jnp.sum(jnp.tanh(x @ params["w"] + params["b"]) ** 2)


def make(bits=18, **options):
    options = {"noise_multiplier": 0.8, "l2_clip_norm": 0.5, "normalize_by": 4.0} | options
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **options)
    return grad_fn, mechanisms.on_grid(grad_fn, bits=bits)


@functools.cache
def integers(size, bits=18):
    """The integer sum of the first examples, the others being padding; one program for all sizes."""
    _, private = make(bits)
    call = jax.jit(lambda padding: private.clipped_sums(PARAMS, ROWS, is_padding_example=padding))
    masks = [np.arange(len(ROWS)) >= count for count in range(len(ROWS) + 1)]
    return [jax.tree.map(np.asarray, call(mask)) for mask in masks][size]


def norm_squared(tree):
    return sum(int(q) ** 2 for leaf in jax.tree.leaves(tree) for q in leaf.ravel())


def test_one_example_moves_the_integers_by_no_more_than_the_bound():
    """Exactly, in Python's integers; and the bound is used."""
    _, private = make()
    moved = []
    for count in range(len(ROWS)):
        pair = (integers(count + 1).sums, integers(count).sums)
        moved.append(norm_squared(jax.tree.map(np.subtract, *pair)))
    assert max(moved) <= private.bound_squared
    assert max(moved) > private.bound_squared * (1 - 1e-3)


def test_the_bound_keeps_the_noise_multiplier():
    """In fractions: noise of 2^bits over the bound is no less than the multiplier."""
    for multiplier in (0.7, 1.0, 1.2345, 37.0):
        _, private = make(noise_multiplier=multiplier)
        ratio = fractions.Fraction(4**private.bits, private.bound_squared)
        assert ratio >= fractions.Fraction(multiplier) ** 2
        assert float(ratio) == pytest.approx(multiplier**2, rel=1e-6)


def test_sums_are_those_of_the_gradient_to_a_grid_step_for_each_example():
    grad_fn, private = make()
    expected = grad_fn.clipped_sums(PARAMS, ROWS)
    found = integers(len(ROWS))
    allowed = len(ROWS) * (0.5 + private.shrinking(18) * math.sqrt(private.bound_squared))
    for name in PARAMS:
        assert found.sums[name].dtype == np.int32
        exact = np.asarray(expected.sums[name], np.float64) / private.step
        assert np.max(abs(found.sums[name] - exact)) < allowed
    assert float(found.value) == pytest.approx(float(expected.value), rel=1e-5)
    np.testing.assert_allclose(found.stats.norms, expected.stats.norms, rtol=1e-4)
    np.testing.assert_allclose(found.stats.clip_factors, expected.stats.clip_factors, rtol=1e-4)
    assert float(found.stats.clipped_fraction) == float(expected.stats.clipped_fraction)


def test_the_order_of_examples_does_not_matter():
    """Not in a single bit, because integers are added."""
    _, private = make()
    order = np.asarray([3, 1, 5, 0, 2, 4])
    call = jax.jit(private.clipped_sums)
    for a, b in zip(
        jax.tree.leaves(call(PARAMS, ROWS).sums),
        jax.tree.leaves(call(PARAMS, ROWS[order]).sums),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_release_adds_the_noise_of_the_sampler_and_divides():
    _, private = make(bits=12)
    sums = {"w": np.full((5, 3), 7, np.int32), "b": np.zeros(3, np.int32)}
    key = bk_jax.random.key(5)
    found = private.release(sums, key, like=PARAMS)
    words = jax.random.key_data(key)
    for stream, name in enumerate(("b", "w")):
        noisy = ops.discrete_gaussian(jnp.asarray(sums[name]), words, bits=12, stream=stream)
        expected = np.asarray(noisy, np.float64) * (0.8 * 0.5 / 2**12 / 4.0)
        assert found[name].dtype == jnp.float32
        np.testing.assert_allclose(found[name], expected, rtol=1e-6)


def test_an_example_that_is_not_finite_counts_nothing():
    _, private = make()
    rows = ROWS[:2].copy()
    rows[1] = np.nan
    found = private.clipped_sums(PARAMS, rows)
    for a, b in zip(jax.tree.leaves(found.sums), jax.tree.leaves(integers(1).sums), strict=True):
        np.testing.assert_array_equal(a, b)
    assert found.stats.nonfinite_count == 1


def test_clipping_that_is_broken_cannot_break_the_bound(monkeypatch):
    """Factors ten times too large: the integers are refused, and counted."""
    from bk_jax import clip

    honest = clip.Clipping.factors
    monkeypatch.setattr(clip.Clipping, "factors", lambda *a, **k: 10 * honest(*a, **k))
    _, private = make()
    found = private.clipped_sums({"w": np.full((5, 3), 0.1), "b": PARAMS["b"]}, ROWS)
    assert np.all(np.asarray(found.stats.norms) > 0.5)
    assert norm_squared(found.sums) == 0
    assert found.stats.nonfinite_count == len(ROWS)


def subsampled(order, shift, deviation, chance, both_ways):
    """The Renyi divergence of a sampled discrete Gaussian at one order, from its chances."""
    n = np.arange(-40 * deviation, 40 * deviation + shift + 1, dtype=np.float64)
    weight = np.exp(-(n**2) / (2 * deviation**2))
    moved = np.exp(-((n - shift) ** 2) / (2 * deviation**2))
    without, present = weight / weight.sum(), moved / moved.sum()
    mixed = (1 - chance) * without + chance * present
    pairs = [(mixed, without), (without, mixed)][: 2 if both_ways else 1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        sums = [np.nansum(np.where(q > 0, p**order / q ** (order - 1), 0)) for p, q in pairs]
    return [math.log(total) / (order - 1) for total in sums]


@pytest.mark.parametrize("order", [2, 3, 5, 8])
@pytest.mark.parametrize(("deviation", "shift"), [(1, 1), (2, 1), (8, 5)])
def test_at_whole_orders_it_is_the_gaussian_in_both_directions(order, deviation, shift):
    """The claim behind `accountant`: even with a deviation of one grid step."""
    event = dp_accounting.PoissonSampledDpEvent(
        0.1, dp_accounting.GaussianDpEvent(deviation / shift)
    )
    accountant = dp_accounting.rdp.RdpAccountant(orders=[order]).compose(event)
    expected = accountant._rdp[0]
    added, removed = subsampled(order, shift, deviation, 0.1, both_ways=True)
    assert added == pytest.approx(expected, rel=1e-9)
    assert removed <= added * (1 + 1e-12)


def test_at_other_orders_it_may_not_be():
    """Why whole orders only: at 1.5 a deviation of half a step is worse than a Gaussian."""
    assert all(isinstance(order, int) for order in WHOLE_ORDERS)
    worse = []
    for order in (1.5, 2.5, 3.5):
        event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(0.5))
        expected = dp_accounting.rdp.RdpAccountant(orders=[order]).compose(event)._rdp[0]
        worse.append(max(subsampled(order, 1, 0.5, 0.1, both_ways=True)) / expected - 1)
    assert max(abs(w) for w in worse) > 1e-6


def test_keys_of_a_loss_belong_to_places_and_to_nothing_else():
    """What the theorem needs of losses that draw: an example's integers from its row and place alone."""
    rows, count = ROWS[:3], 3

    def with_dropout(params, x, key):
        return loss_fn(params, x * jax.random.bernoulli(key, 0.5, x.shape))

    grad_fn = bk_jax.dp_value_and_grad(with_dropout, l2_clip_norm=0.5, prng_argnum=2)
    private = mechanisms.on_grid(grad_fn)

    @jax.jit
    def sums(rows, is_padding):
        key = bk_jax.random.key(2)
        return private.clipped_sums(PARAMS, rows, key, is_padding_example=is_padding).sums["w"]

    alone = {
        (example, place): np.asarray(sums(np.roll(rows, shift, axis=0), np.arange(count) != place))
        for shift in range(count)
        for place in range(count)
        for example in [(place - shift) % count]
    }
    for shift in range(count):
        whole = sums(np.roll(rows, shift, axis=0), np.zeros(count, bool))
        parts = [alone[(place - shift) % count, place] for place in range(count)]
        np.testing.assert_array_equal(whole, sum(parts))
    assert any((alone[0, 0] != alone[0, place]).any() for place in (1, 2))


def test_the_event_and_its_accountant():
    _, private = make(noise_multiplier=2.0)
    epsilon = private.accountant().compose(private.event()).get_epsilon(1e-5)
    best = min(
        order / 8 + math.log((order - 1) / order) - math.log(1e-5 * order) / (order - 1)
        for order in WHOLE_ORDERS
    )
    assert epsilon == pytest.approx(best, rel=1e-9)


def test_every_device_makes_its_part():
    code = """
import jax, numpy as np, bk_jax
from bk_jax import mechanisms
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
private = mechanisms.on_grid(bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum()))
release = jax.jit(private.release)
results = []
for spec in (P(), P("x"), P(None, "x")):
    sums = jax.device_put(np.zeros((8, 12), np.int32), NamedSharding(mesh, spec))
    results.append(np.asarray(release(sums, bk_jax.random.key(0))))
assert np.abs(results[0]).max() > 1
assert all((other == results[0]).all() for other in results)
print("same")
"""
    out = run_python(code, timeout=300, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert out.stdout.strip() == "same"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mechanisms.on_grid(loss_fn),
            "on_grid expects grad_fn to be what dp_value_and_grad",
        ),
        (lambda: make(noise_multiplier=0.0), "needs a noise_multiplier that is a number above 0"),
        (lambda: make(bits=7), "bits must be a whole number of at least 8"),
        (lambda: make(bits=25), "Pass at most 23 bits"),
        (lambda: make(bits=24, noise_multiplier=0.5), "Pass at most 23 bits"),
        (
            lambda: make(bits=23)[1].clipped_sums(PARAMS, np.zeros((500, 5), np.float32)),
            "500 examples do not fit into 32 bits with bits=23",
        ),
        (
            lambda: make(bits=8)[1].clipped_sums(PARAMS, ROWS),
            "a grid of bits=8 is too coarse for 18 parameters",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


def test_a_loss_with_auxiliary_output_is_refused():
    grad_fn, _ = make()
    signature = dataclasses.replace(grad_fn.signature, has_aux=True)
    with pytest.raises(ValueError, match="and no has_aux"):
        mechanisms.on_grid(dataclasses.replace(grad_fn, signature=signature))
