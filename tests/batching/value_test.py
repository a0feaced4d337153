"""Places: every one into every other, and when that moves elements."""

import jax
import numpy as np
import pytest

from batching.same import ABSENT, B, in_front, placed
from bk_jax.program.batching import Place, Value, at
from bk_jax.program.batching.value import settled

SHAPE = (1, 2, 1)
PLACES = [Place(0), Place(2), *(Place(axis, extra=True) for axis in range(4))]
EXAMPLES = np.arange(2 * B, dtype=np.float32).reshape(B, *SHAPE)


@pytest.mark.parametrize("one", PLACES, ids=str)
@pytest.mark.parametrize("other", PLACES, ids=str)
def test_from_place_to_place(one, other):
    value = Value(placed(EXAMPLES, one), one)
    assert value.shape == SHAPE
    move = jax.jit(lambda array: at(Value(array, one), other, B).array)
    np.testing.assert_array_equal(in_front(move(value.array), other, B), EXAMPLES)
    is_moved = "transpose" in str(jax.make_jaxpr(move)(value.array))
    assert is_moved == (one.axis != other.axis)


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("size", [0, 1, B])
def test_what_is_shared_is_repeated(place, size):
    shared = EXAMPLES[0]
    repeated = at(Value(shared), place, size)
    assert repeated.place == place
    whole = np.broadcast_to(shared, (size, *SHAPE))
    np.testing.assert_array_equal(in_front(repeated.array, place, size), whole)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_place_that_is_right_already(place):
    value = Value(placed(EXAMPLES, place), place)
    assert at(value, place, B) is value
    assert at(Value(EXAMPLES), ABSENT, B).array is EXAMPLES


def test_an_extra_axis_settles_on_an_axis_of_size_1_beside_it():
    """The axis behind it is looked at first."""
    expected = {0: Place(0), 1: Place(0), 2: Place(2), 3: Place(2)}
    for axis, place in expected.items():
        extra = Place(axis, extra=True)
        found = settled(Value(placed(EXAMPLES, extra), extra))
        assert found.place == place
        np.testing.assert_array_equal(found.array, placed(EXAMPLES, place))


def test_what_cannot_settle_stays():
    shape = (B, 2, 3)
    for value in (Value(np.zeros(shape), Place(0, extra=True)), Value(np.zeros(shape))):
        assert settled(value) is value
    grown = Value(np.zeros(shape), Place(0))
    assert settled(grown) is grown
