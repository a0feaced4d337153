"""Equations that look at one element at a time: any number of operands, arrays and scalars."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from batching.same import EXTRA, B, Given, Place, Result, batched, placed, same
from bk_jax import _compat
from bk_jax.program.batching.elementwise import NAMES

# One example's shape, and where its examples are.
PLACES = [
    ((1, 2, 3), Place(0)),
    ((2, 1, 3), Place(1)),
    ((2, 3, 1), Place(2)),
    ((2, 3), Place(0, extra=True)),
    ((2, 3), Place(1, extra=True)),
    ((2, 3), Place(2, extra=True)),
    ((), EXTRA),
]
places = pytest.mark.parametrize(("shape", "place"), PLACES, ids=str)


@places
def test_both_operands_at_one_place(shape, place):
    assert same(lambda x, y: jnp.abs(x) * y, Given(shape, place), Given(shape, place)) == Result(
        [place]
    )


@places
def test_an_operand_that_is_shared(shape, place):
    assert same(lambda x, y: (x + y, y - x), Given(shape, place), Given(shape)) == Result(
        [place, place]
    )


@places
def test_scalars(shape, place):
    """A number, a scalar that is shared and one of each example."""
    scalars = [Given(()), Given((), EXTRA)]
    assert same(lambda x, y, z: (2 * x, x + y, z - x), Given(shape, place), *scalars) == Result(
        [place] * 3
    )


@places
def test_clamp(shape, place):
    """Bounds are arrays or scalars, of each example or shared."""
    arrays = [Given(shape, place), Given(shape)]
    scalars = [Given((), EXTRA, low=-2, high=1), Given((), low=0, high=2)]

    def clamps(x, y, low, high):
        whole = jnp.full_like(x, 1)
        return lax.clamp(low, x, high), lax.clamp(low, y, whole), lax.clamp(y, x, whole)

    fronted = Place(0, not shape or shape[0] != 1)  # only a scalar says where its examples are
    assert same(clamps, *arrays, *scalars) == Result([place, fronted, place])


@places
@pytest.mark.parametrize("scalar", [False, True])
def test_select(shape, place, scalar):
    which = Given(() if scalar else shape, EXTRA if scalar else place, np.int32, 0, 3)
    assert same(
        lax.select_n, which, Given(shape, place), Given(shape), Given(shape, place)
    ) == Result([place])


@pytest.mark.parametrize("one", [0, 1, 2])
@pytest.mark.parametrize("other", [*range(3), *range(-4, 0)])
def test_operands_with_examples_at_different_places(one, other):
    """Three axes of size 1; a negative number is an extra axis."""
    where = Place(other) if other >= 0 else Place(other + 4, extra=True)
    given = [Given((1, 1, 1), Place(one)), Given((1, 1, 1), where)]
    grown = Place(other) if other >= 0 else Place(one)
    assert same(lambda x, y: (x - y, y - x), *given) == Result([Place(one), grown])


def test_extra_axes_at_different_positions():
    assert same(
        lambda x, y: x - y, Given((2, 3), Place(1, extra=True)), Given((2, 3), Place(2, extra=True))
    ) == Result([Place(1, extra=True)])


def test_an_axis_of_size_1_that_is_broadcast():
    """What `vmap` inside a loss writes: (1, 3) with (4, 3)."""
    add = lax.add_p.bind
    assert same(add, Given((1, 3), Place(0)), Given((4, 3))) == Result([Place(0, extra=True)])
    assert same(add, Given((1, 3), Place(0)), Given((4, 3), Place(1, extra=True))) == Result(
        [Place(0, extra=True)]
    )
    assert same(lambda x, y: add(y, x), Given((1, 1), Place(0)), Given((4, 1), Place(1))) == Result(
        [Place(1)]
    )


UNARY = """abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil cos cosh digamma erf
    erf_inv erfc exp exp2 expm1 floor is_finite lgamma log log1p logistic neg rsqrt sign sin
    sinh sqrt square tan tanh"""
BINARY = """add add_any atan2 complex div eq eq_to ge gt le le_to lt lt_to max min mul ne nextafter
    pow rem sub"""
BITWISE = "and or xor mulhi shift_left shift_right_arithmetic shift_right_logical"
SLOW_TO_COMPILE = "igamma igamma_grad_a igammac polygamma zeta"


def each_once(x, y, i, j):
    """Every primitive of the table."""
    z = lax.complex(x, y)
    yield from (getattr(lax, name)(x) for name in UNARY.split())
    yield from (_compat.primitive(name).bind(x, y) for name in BINARY.split())
    yield from (_compat.primitive(name).bind(i, j) for name in BITWISE.split() if name in KNOWN)
    yield from (lax.bitwise_not(i), lax.population_count(i), lax.clz(i))
    yield from (lax.conj(z), lax.real(z), lax.imag(z), lax.integer_pow(x, 3), lax.round(x))
    yield from (checkpoint_name(x, "x"), jnp.copy(x), lax.reduce_precision(x, 5, 4))
    yield from (lax.bitcast_convert_type(x, jnp.int32), i.astype(jnp.float32))
    yield from (lax.clamp(x, y, x), lax.select_n(x > y, x, y))


def slow(x, y):
    yield from (_compat.primitive(name).bind(x, y) for name in SLOW_TO_COMPILE.split())
    yield lax.betainc(x, y, x)


KNOWN = {name for name in NAMES if _compat.primitive(name) is not None} - {"stop_gradient"}
FLOATS = [Given((4, 1), Place(1), low=1, high=8)] * 2
INTEGERS = [Given((4, 1), Place(1), np.int32, 0, 9)] * 2


def test_every_primitive_of_the_table():
    result = same(lambda x, y, i, j: list(each_once(x / 8, y / 8, i, j)), *FLOATS, *INTEGERS)
    assert set(result.places) == {Place(1)}
    assert result.fallbacks == ()


def test_that_was_every_primitive_of_the_table():
    def function(x, y, i, j):
        return [*each_once(x, y, i, j), *slow(x, y)]

    jaxpr = jax.make_jaxpr(function)(*[x.array(0, B)[0] for x in (*FLOATS, *INTEGERS)])
    assert {eqn.primitive for eqn in jaxpr.eqns} == {_compat.primitive(name) for name in KNOWN}


def test_functions_that_compile_slowly_keep_their_place():
    places = [x.place for x in FLOATS]
    run, batching, found = batched(lambda x, y: list(slow(x, y)), places, B)
    outs = jax.eval_shape(run, *[placed(x.array(0, B), x.place) for x in FLOATS])
    assert {out.shape for out in outs} == {(4, B)}
    assert set(found) == {Place(1)}
    assert batching.fallbacks == []


@pytest.mark.parametrize(
    "given", [Given((2, 1), Place(1), np.float64), Given((), EXTRA, np.float64)]
)
def test_bits_seen_as_a_longer_row(x64, given):
    """A number of 64 bits is a row of two numbers of 32."""
    result = same(lambda x: lax.bitcast_convert_type(x, jnp.uint32), given)
    assert result.fallbacks == ("bitcast_convert_type",)


def test_bits_seen_as_a_shorter_row(x64):
    given = Given((1, 2), Place(0), np.uint32, low=0)
    result = same(lambda x: lax.bitcast_convert_type(x, jnp.uint64), given)
    assert result == Result([Place(0)], ("bitcast_convert_type",))
