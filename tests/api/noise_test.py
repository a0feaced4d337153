"""Noise: its size, its independence, and that it can be repeated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tolerance import assert_bits_equal

import bk_jax

SHAPE = (200, 250)
SIZE = 200 * 250
PARAMS = {
    "used": np.zeros(SHAPE, np.float32),
    "unused": np.zeros(SHAPE, np.float32),
    "low": np.zeros(SHAPE, jnp.bfloat16),
}
X = np.zeros((2, 200), np.float32)


def loss(params, x):
    return jnp.sum(x @ params["used"])


def draw(key=0, params=PARAMS, **options):
    """The gradient of data that contribute nothing: noise alone."""
    key = jax.random.key(key) if isinstance(key, int) else key
    grad_fn = jax.jit(bk_jax.dp_value_and_grad(loss, **options))
    return jax.tree.map(np.asarray, grad_fn(params, X, key=key)[1])


@pytest.fixture(scope="module")
def noise():
    return draw(noise_multiplier=0.5, l2_clip_norm=3.0, normalize_by=6.0)


def test_standard_deviation_and_mean(noise):
    """0.5 * 3 / 6 = 0.25; six standard errors."""
    for name, leaf in noise.items():
        values = leaf.astype(np.float64)
        assert abs(values.std() - 0.25) < 6 * 0.25 / np.sqrt(2 * SIZE), name
        assert abs(values.mean()) < 6 * 0.25 / np.sqrt(SIZE), name


def test_distribution_is_gaussian(noise):
    """Shares within one, two and three standard deviations, and no element left out."""
    values = np.abs(noise["used"]) / 0.25
    for limit, share in [(1, 0.6826895), (2, 0.9544997), (3, 0.9973002)]:
        error = 6 * np.sqrt(share * (1 - share) / SIZE)
        assert abs(np.mean(values < limit) - share) < error
    assert np.all(values > 0)
    assert values.max() > 3.5


def test_leaves_are_independent(noise):
    one, two, three = (noise[name].astype(np.float64).ravel() for name in PARAMS)
    for a, b in [(one, two), (one, three), (two, three)]:
        assert abs(np.corrcoef(a, b)[0, 1]) < 6 / np.sqrt(SIZE)


def test_elements_are_independent(noise):
    values = noise["used"]
    rows = np.corrcoef(values)[np.triu_indices(200, 1)]
    assert np.abs(rows).max() < 7 / np.sqrt(250)
    assert len(np.unique(values)) > 0.99 * SIZE


def test_the_gradient_has_the_dtype_of_its_parameter(noise):
    assert {name: values.dtype for name, values in noise.items()} == {
        name: array.dtype for name, array in PARAMS.items()
    }


def test_keys_decide_the_noise():
    params = {"used": np.zeros((200, 3), np.float32)}
    grad_fn = jax.jit(bk_jax.dp_value_and_grad(loss))
    keys = jax.random.split(jax.random.key(7), 2)
    first, second = (grad_fn(params, X, key=k)[1]["used"] for k in keys)
    again = grad_fn(params, X, key=keys[0])[1]["used"]
    assert_bits_equal(again, first)
    assert np.all(np.asarray(first) != np.asarray(second))


def test_keys_of_the_old_kind_give_the_same_noise():
    params = {"used": np.zeros((200, 3), np.float32)}
    new = draw(jax.random.key(3), params)
    old = draw(jax.random.PRNGKey(3), params)
    assert_bits_equal(old["used"], new["used"])


def test_keys_of_bk_jax():
    """Their noise is the stream of each leaf, in the domain of noise, times sensitivity over divisor."""
    params = {name: np.zeros((20, 3), np.float32) for name in ("used", "unused")}
    x = np.zeros((2, 20), np.float32)
    key = bk_jax.random.key(3)
    grad_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=2.0)
    grads = jax.jit(grad_fn)(params, x, key=key)[1]
    words = jax.random.key_data(key)
    leaves = enumerate(sorted(params))  # the order of a dictionary's leaves
    for index, name in leaves:
        expected = jax.jit(
            lambda w, i=index: bk_jax.ops.gaussian(jnp.zeros((20, 3)), w, 2.0, stream=i)
        )
        assert_bits_equal(grads[name], expected(words))


def test_noise_is_nothing_that_a_user_drew():
    """`jax.random.bits` of the key does not give the noise's own key away."""
    from bk_jax.noise import noise_key

    key = jax.random.key(0)
    for drawn in (jax.random.bits(key, (8,)), jax.random.bits(jax.random.fold_in(key, 0), (8,))):
        assert not np.any(np.isin(noise_key(key), drawn))


@pytest.mark.parametrize(
    "options", [{"microbatch_size": 1}, {"method": "opacus"}, {"method": "bk"}]
)
def test_method_and_microbatches_do_not_change_the_noise(options):
    params = {"used": np.zeros((200, 3), np.float32), "unused": np.zeros(5, np.float32)}
    expected, out = draw(params=params), draw(params=params, **options)
    for name in params:
        assert_bits_equal(out[name], expected[name])


def test_noise_is_added_to_the_clipped_sum(x64):
    """The noisy gradient minus the clipped sum is the noise of an empty batch."""
    params = {"used": np.zeros((200, 3))}
    x = np.random.default_rng(0).normal(size=(4, 200))
    noisy_fn = bk_jax.dp_value_and_grad(loss, noise_multiplier=2.0, l2_clip_norm=0.5)
    clean_fn = bk_jax.clipped_value_and_grad(loss, l2_clip_norm=0.5)

    @jax.jit
    def all_three(params, x, key):
        _, noisy = noisy_fn(params, x, key=key)
        _, noise = noisy_fn(params, jnp.zeros_like(x), key=key)
        return noisy["used"], noise["used"], clean_fn(params, x)[1]["used"]

    noisy, noise, clean = all_three(params, x, jax.random.key(0))
    assert np.any(np.asarray(clean) != 0)
    np.testing.assert_allclose(noisy - noise, clean, atol=1e-14)


def test_noise_of_clip_groups_covers_all_of_them():
    """Groups of norms 3 and 4 have the sensitivity 5, in every leaf."""
    params = {name: PARAMS[name] for name in ("used", "unused")}
    out = draw(params=params, l2_clip_norm={"used": 3.0, "unused": 4.0}, noise_multiplier=1.0)
    for values in out.values():
        assert abs(values.std() - 5) < 6 * 5 / np.sqrt(2 * SIZE)


def test_a_traced_noise_multiplier():
    params = {"used": np.zeros((200, 3), np.float32)}
    key = jax.random.key(0)

    @jax.jit
    def step(sigma):
        return bk_jax.dp_value_and_grad(loss, noise_multiplier=sigma)(params, X, key=key)[1]["used"]

    np.testing.assert_allclose(step(np.float32(3)), 3 * step(np.float32(1)), rtol=1e-6)


def test_a_bare_call_is_private():
    """Nothing but the loss: noise is on, and asked for."""
    grad_fn = bk_jax.dp_value_and_grad(loss)
    assert grad_fn.noise_multiplier == 1.0
    with pytest.raises(ValueError, match="noise needs a key"):
        grad_fn(PARAMS, X)
