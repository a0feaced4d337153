"""The privacy claim itself: one example moves the noiseless result by at most `sensitivity()`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from hypothesis import given
from hypothesis import strategies as st
from support.models import mlp, mlp_loss
from support.tolerance import eps

import bk_jax

ADD, REPLACE, SPECIAL = (
    NeighboringRelation.ADD_OR_REMOVE_ONE,
    NeighboringRelation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL,
)


def test_sensitivity_of_each_relation():
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss, l2_clip_norm=3.0, normalize_by=2.0)
    assert grad_fn.sensitivity() == 1.5
    assert grad_fn.sensitivity(ADD) == 1.5
    assert grad_fn.sensitivity(SPECIAL) == 1.5
    assert grad_fn.sensitivity(REPLACE) == 3.0


def test_every_relation_has_a_sensitivity():
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss)
    assert all(grad_fn.sensitivity(relation) >= 1.0 for relation in NeighboringRelation)


def test_sensitivity_of_groups():
    grad_fn = bk_jax.dp_value_and_grad(mlp_loss, l2_clip_norm={"a": 3.0, "b": (4.0, 12.0)})
    assert grad_fn.sensitivity() == 13.0


@pytest.mark.parametrize("clipping", ["abadi", "automatic", "normalize", "indicator"])
def test_sensitivity_does_not_depend_on_the_clipping_function(clipping):
    assert bk_jax.dp_value_and_grad(mlp_loss, clipping=clipping).sensitivity() == 1.0


def test_sensitivity_of_a_traced_clip_norm():
    @jax.jit
    def traced(norm):
        return bk_jax.dp_value_and_grad(mlp_loss, l2_clip_norm=norm).sensitivity()

    assert traced(np.float32(2.5)) == 2.5


# --- neighbouring data ---

BATCH = 5
PARAMS = mlp(np.float64)
VARIANTS = {
    "abadi": {"l2_clip_norm": 0.7},
    "automatic": {"l2_clip_norm": 1.3, "clipping": "automatic"},
    "normalize": {"l2_clip_norm": 1e-3, "clipping": "normalize"},
    "indicator": {"l2_clip_norm": 5.0, "clipping": "indicator"},
    "callable": {"l2_clip_norm": 2.0, "clipping": lambda n: 3.0 + jnp.sin(n)},
    "groups": {"l2_clip_norm": {"w1": 0.1, "b1": 2.0, "w2": 0.3, "b2": 0.5}},
    "normalized": {"l2_clip_norm": 0.7, "normalize_by": 0.01},
}


@functools.cache
def every_variant(dtype):
    """One compiled program with all variants; the noiseless sums as functions of data."""
    grad_fns = {k: bk_jax.clipped_value_and_grad(mlp_loss, **v) for k, v in VARIANTS.items()}

    @jax.jit
    def sums(params, batch, is_padding):
        padding = {"is_padding_example": is_padding}
        return {k: grad_fn(params, batch, **padding)[1] for k, grad_fn in grad_fns.items()}

    return grad_fns, sums


def flat(tree):
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)])


def examples(seed, scale, kind, dtype):
    rng = np.random.default_rng(seed)
    x, y = (scale * rng.normal(size=(BATCH, n)) for n in (5, 3))
    if kind == "same":  # all examples push in one direction
        x[:], y[:] = x[0], y[0]
    elif kind == "spread":
        x *= 10.0 ** rng.uniform(-6, 4, (BATCH, 1))
    elif kind == "bad":
        x[0, 0], y[1, 1] = np.nan, np.inf
    return x.astype(dtype), y.astype(dtype)


@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    kind=st.sampled_from(["random", "same", "spread", "bad"]),
    index=st.integers(0, BATCH - 1),
    other=st.sampled_from(["random", "opposite", "zero", "bad"]),
)
def test_one_example_moves_the_sum_by_at_most_the_sensitivity(
    real, seed, scale, kind, index, other
):
    grad_fns, sums = every_variant(real)
    params = {k: v.astype(real) for k, v in PARAMS.items()}
    x, y = examples(seed, scale, kind, real)
    none, one = np.zeros(BATCH, bool), np.arange(BATCH) == index
    new_x, new_y = x.copy(), y.copy()
    new_x[index] = {
        "random": examples(seed + 1, scale, "random", real)[0][index],
        "opposite": -x[index],
        "zero": 0 * np.ones(5),
        "bad": np.nan * np.ones(5),
    }[other]
    full = sums(params, (x, y), none)
    removed = sums(params, (x, y), one)
    replaced = sums(params, (new_x, new_y), none)
    for name, grad_fn in grad_fns.items():
        # What a sum of BATCH clipped gradients loses by rounding, and nothing else.
        rounding = 8 * BATCH * eps(real) * BATCH * grad_fn.sensitivity()
        moved = np.linalg.norm(flat(full[name]) - flat(removed[name]))
        assert moved <= grad_fn.sensitivity(ADD) + rounding, name
        moved = np.linalg.norm(flat(full[name]) - flat(replaced[name]))
        assert moved <= grad_fn.sensitivity(REPLACE) + rounding, name


def test_the_sensitivity_is_attained():
    """One large example moves the sum by R: noise for less would not be enough."""
    x, y = (np.full((1, n), 10.0, np.float32) for n in (5, 3))
    grad_fn = bk_jax.clipped_value_and_grad(mlp_loss, l2_clip_norm=0.7)
    _, grads = jax.jit(grad_fn)({k: v.astype(np.float32) for k, v in PARAMS.items()}, (x, y))
    assert 0.98 * 0.7 <= np.linalg.norm(flat(grads)) <= 0.7


def test_the_order_of_examples_does_not_matter(x64):
    x, y = examples(0, 1.0, "random", np.float64)
    order = np.asarray([3, 1, 4, 0, 2])
    _, sums = every_variant(np.dtype(np.float64))
    none = np.zeros(BATCH, bool)
    one, two = sums(PARAMS, (x, y), none), sums(PARAMS, (x[order], y[order]), none)
    np.testing.assert_allclose(flat(one), flat(two), atol=1e-12)


def test_examples_do_not_see_each_other():
    """A loss that normalises over the batch axis sees one example, whatever else is in the batch."""

    def loss(w, x):
        centred = x - jnp.mean(x, axis=0)  # zero for a batch of one
        return jnp.sum(jnp.square(centred @ w)) + jnp.sum(x @ w)

    grad_fn = jax.jit(bk_jax.clipped_value_and_grad(loss, return_stats=True))
    w, x = np.ones((3, 2), np.float32), np.float32([[1, 2, 3], [4, 5, 6]])
    _, _, stats = grad_fn(w, x)
    np.testing.assert_allclose(stats.norms, np.sqrt(2) * np.linalg.norm(x, axis=1), rtol=1e-6)


@pytest.mark.parametrize("method", ["auto", "ghost_clip", "opacus"])
@pytest.mark.parametrize("low", [jnp.bfloat16, jnp.float16])
def test_a_loss_in_low_precision_respects_the_clip_norm(method, low):
    """No factor may be rounded up on its way through a back-propagation in half precision."""
    grad_fn = jax.jit(
        bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(x @ w).astype(low), method=method)
    )
    examples = 7 * np.random.default_rng(0).normal(size=(30, 1, 3)).astype(np.float32)
    results = [grad_fn(np.ones((3, 2), np.float32), x)[1] for x in examples]
    assert max(np.linalg.norm(np.asarray(g, np.float64)) for g in results) <= 1
