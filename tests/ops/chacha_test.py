"""ChaCha20: the standard's vectors, and native words equal to the twin's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import chacha
from support.tolerance import assert_bits_equal

from bk_jax import ops
from bk_jax.ops.chacha import chacha_bits_twin, chacha_blocks

KEY = np.frombuffer(bytes(range(32)), np.uint32)


def test_block_function_of_the_standard():
    """RFC 8439, section 2.3.2: the oracle and the twin."""
    expected = [
        0xE4E7F110, 0x15593BD1, 0x1FDD0F50, 0xC47120A3, 0xC7F4D1C7, 0x0368C033, 0x9AAA2204, 0x4E6CD4C3,
        0x466482D2, 0x09AA9F07, 0x05D7C214, 0xA2028BD9, 0xD19C12B5, 0xB94E16DE, 0xE883D0CB, 0x4E3C50A2,
    ]  # fmt: skip
    assert chacha.block(KEY, 1, [0x09000000, 0x4A000000, 0]) == expected
    counter = np.ones(1, np.uint32)
    words = chacha_blocks(KEY, counter, np.uint32(0x09000000), stream=0x4A000000, domain=0)
    assert words[:, 0].tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 15, 17, 255, 256, 257, 1000])
def test_words_in_order(implementation, count):
    words = np.asarray(jax.jit(lambda key: ops.chacha_bits(key, count, stream=5, domain=3))(KEY))
    assert (words.shape, words.dtype) == ((count,), jnp.uint32)
    for position in {0, 1, 16, 17, 254, 256, count - 1} & set(range(count)):
        assert words[position] == chacha.word(KEY, position, 5, 3)


@pytest.mark.native
def test_twin_and_native_are_equal():
    native = ops.chacha_bits(KEY, 100_000, stream=1, domain=2)
    twin = jax.jit(lambda key: chacha_bits_twin(key, count=100_000, stream=1, domain=2))(KEY)[0]
    assert_bits_equal(native, twin)


@pytest.mark.parametrize("key", [KEY[:4], KEY.astype(np.int32), np.uint32(3)])
def test_key_errors(key):
    with pytest.raises(ValueError, match=r"chacha_bits expects a key uint32\[8\], got"):
        ops.chacha_bits(key, 3, stream=0, domain=0)
