"""Adaptive clip norms: what they cost, and where they end up."""

import re

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax import audit, privacy
from bk_jax.mechanisms import AdaptiveClipping


def loss_fn(params, x):
    """Gradients are the example itself, in two halves."""
    return jnp.sum(params["a"] * x[0, :2]) + jnp.sum(params["b"] * x[0, 2:])


PARAMS = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}


@pytest.mark.parametrize("groups", [1, 3])
def test_the_event_is_that_of_all_queries_together(groups):
    """Gaussians of a gradient and of counts of sensitivity 1/2, composed one by one."""
    clip = AdaptiveClipping(batch_size=100, count_stddev=2.5, groups=groups)
    gradient = clip.split(1.5)
    assert clip.combined(gradient) == pytest.approx(1.5, rel=1e-14)
    one_by_one = [dp_accounting.GaussianDpEvent(gradient)]
    one_by_one += [dp_accounting.GaussianDpEvent(2.5 / 0.5)] * groups

    def epsilon(event):
        steps = dp_accounting.SelfComposedDpEvent(event, 10)
        return dp_accounting.pld.PLDAccountant().compose(steps).get_epsilon(1e-5)

    expected = epsilon(dp_accounting.ComposedDpEvent(one_by_one))
    assert epsilon(clip.event(gradient)) == pytest.approx(expected, rel=1e-3)


def test_one_example_moves_the_combined_query_by_one():
    """Gradient over R and counts over their noise, in units of the combined deviation."""
    clip = AdaptiveClipping(batch_size=4, count_stddev=1.0)
    sigma = clip.split(1.0)
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, l2_clip_norm=2.0, noise_multiplier=0.0)
    rows = np.asarray([[3, 4, 0, 0], [1, 0, 0, 0], [0, 0, 9, 0]], np.float32)

    def query(rows):
        found = grad_fn.clipped_sums(PARAMS, rows)
        gradient = np.concatenate([found.sums["a"], found.sums["b"]]) / 2.0 / sigma
        count = np.sum(np.where(np.asarray(found.stats.norms) <= 2.0, 0.5, -0.5))
        return np.concatenate([gradient, [count / clip.count_stddev]])

    for i in range(3):
        moved = np.linalg.norm(query(rows) - query(np.delete(rows, i, axis=0)))
        assert moved <= 1 + 1e-6
        assert i == 1 or moved > 0.999


@pytest.mark.parametrize("groups", [1, 2])
def test_no_example_moves_the_combined_query_further_than_the_plan_says(groups):
    """The audit's neighbours of a batch; gradient and votes, each in units of its own noise."""
    plan = privacy.PrivacyPlan(
        num_examples=100, batch_size=6, steps=5, delta=1e-4, noise_multiplier=0.8,
        adaptive=AdaptiveClipping(batch_size=6, count_stddev=0.7, groups=groups),
    )  # fmt: skip
    norms = 2.0 if groups == 1 else {"a": 2.0, "b": 0.5}
    sigma, clip = plan.options()["noise_multiplier"], plan.adaptive
    grad_fn = bk_jax.clipped_value_and_grad(loss_fn, l2_clip_norm=norms)
    stddev = sigma * grad_fn.sensitivity()

    @jax.jit
    def query(params, rows, *, is_padding_example):
        gradient = {name: params[name] for name in PARAMS}
        found = grad_fn.clipped_sums(gradient, rows, is_padding_example=is_padding_example)
        votes = clip.votes(norms, found.stats, is_padding_example=is_padding_example)
        scaled = jax.tree.map(lambda total: total / stddev, found.sums)
        return found.value, scaled | {"votes": votes / clip.count_stddev}

    rows = np.float32([[3, 4, 0, 0], [1, 0, 0, 0], [0, 0, 9, 0], [4, 1, 5, 5], [0, 0, 0, 0.1]])
    params, bound = PARAMS | {"votes": np.zeros(groups)}, 1 / plan.noise_multiplier
    report = audit.assert_sensitivity(query, params, rows, bound=bound)
    assert report.moved["ADD_OR_REMOVE_ONE"] > 0.99 * bound
    forgotten = bound * (1 - 1e-3)  # what it would be if a little less noise were enough
    with pytest.raises(audit.AuditError, match="more than the declared bound"):
        audit.assert_sensitivity(query, params, rows, bound=forgotten)


def test_votes_of_parts_add_up():
    clip = AdaptiveClipping(batch_size=4)
    grad_fn = bk_jax.clipped_value_and_grad(loss_fn, return_stats=True)
    rows = np.float32([[0.5, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0], [4, 0, 0, 0]])
    whole, first, last = (grad_fn(PARAMS, x)[2] for x in (rows, rows[:2], rows[2:]))
    key, votes = jax.random.key(0), clip.votes(1.0, first) + clip.votes(1.0, last)
    assert votes.tolist() == [0.5 - 1.5]
    assert float(clip.moved(1.0, votes, key=key)) == float(clip.update(1.0, whole, key=key))


def test_the_norms_of_groups_follow_their_own_quantiles():
    clip = AdaptiveClipping(batch_size=400, quantile=0.75, count_stddev=4.0, groups=2)
    sigma = clip.split(2.0)

    @jax.jit
    def step(norms, rows, key):
        grad_fn = bk_jax.dp_value_and_grad(
            loss_fn, l2_clip_norm=norms, noise_multiplier=sigma, return_stats=True
        )
        _, _, stats = grad_fn(PARAMS, rows, key=key)
        return clip.update(norms, stats, key=key)

    rng, last = np.random.default_rng(1), []
    norms = {"a": jnp.float32(9.0), "b": jnp.float32(9.0)}
    for i in range(100):
        rows = np.zeros((400, 4), np.float32)
        rows[:, 0], rows[:, 3] = rng.uniform(0, 4, 400), rng.uniform(0, 0.4, 400)
        norms = step(norms, rows, jax.random.key(i))
        last.append([float(norms["a"]), float(norms["b"])])
    assert np.mean(last[-20:], axis=0) == pytest.approx([3.0, 0.3], rel=0.05)


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.9])
def test_norms_follow_the_quantile(quantile):
    clip = AdaptiveClipping(batch_size=500, quantile=quantile, count_stddev=5.0)
    sigma = clip.split(2.0)

    @jax.jit
    def step(norm, rows, key):
        grad_fn = bk_jax.dp_value_and_grad(
            loss_fn, l2_clip_norm=norm, noise_multiplier=sigma, return_stats=True
        )
        _, _, stats = grad_fn(PARAMS, rows, key=key)
        return clip.update(norm, stats, key=key)

    rng = np.random.default_rng(0)
    norm, last = jnp.float32(10.0), []
    for i in range(80):
        scale = rng.uniform(0, 8, (500, 1))
        rows = (scale * np.eye(4)[rng.integers(0, 4, 500)]).astype(np.float32)
        norm = step(norm, rows, jax.random.key(i))
        last.append(float(norm))
    assert np.mean(last[-20:]) == pytest.approx(8 * quantile, rel=0.05)


def test_every_group_has_its_own_norm_and_padding_does_not_vote():
    clip = AdaptiveClipping(batch_size=2, learning_rate=1.0, count_stddev=1e-6, groups=2)
    norms = {"a": jnp.float32(1.0), "b": jnp.float32(1.0)}
    grad_fn = bk_jax.dp_value_and_grad(
        loss_fn, l2_clip_norm=norms, noise_multiplier=0.0, return_stats=True
    )
    rows = np.asarray([[0.5, 0, 9, 0], [0.5, 0, 9, 0], [0, 0, 0, 0]], np.float32)
    padding = np.asarray([False, False, True])
    _, _, stats = grad_fn(PARAMS, rows, is_padding_example=padding)
    moved = clip.update(norms, stats, key=jax.random.key(0), is_padding_example=padding)
    assert float(moved["a"]) == pytest.approx(np.exp(-0.5), rel=1e-5)
    assert float(moved["b"]) == pytest.approx(np.exp(0.5), rel=1e-5)


def test_the_count_has_noise_of_its_own():
    clip = AdaptiveClipping(batch_size=1, learning_rate=1.0, quantile=0.5, count_stddev=1.0)
    stats = bk_jax.Stats(*[jnp.zeros((0,))] * 5)
    norms = jax.vmap(lambda key: clip.update(jnp.float32(1), stats, key=key))(
        jax.random.split(jax.random.key(0), 2000)
    )
    noise = np.log(np.asarray(norms))
    assert abs(noise.mean()) < 5 / np.sqrt(2000)
    assert abs(noise.std() - 1) < 5 / np.sqrt(4000)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdaptiveClipping(batch_size=0), "batch_size must be finite and above 0"),
        (lambda: AdaptiveClipping(9, quantile=1.0), "quantile must be between 0 and 1, got 1.0"),
        (lambda: AdaptiveClipping(9, groups=0), "groups must be a whole number of at least 1"),
        (lambda: AdaptiveClipping(9, count_stddev=-1.0), "count_stddev must be finite and above 0"),
        (lambda: AdaptiveClipping(9, count_stddev=0.5).split(2.0), "It must be above 1; ten times"),
        (
            lambda: AdaptiveClipping(9, groups=2).update(
                1.0, bk_jax.Stats(*[jnp.zeros(3)] * 5), key=jax.random.key(0)
            ),
            "was made for groups=2; got 1 clip norms. Pass l2_clip_norm as a tree of that many numbers",
        ),
        (
            lambda: AdaptiveClipping(9).votes(1.0, bk_jax.Stats(*[jnp.zeros((3, 2))] * 5)),
            "was made for groups=1; got 1 clip norms and norms of shape (3, 2)",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
