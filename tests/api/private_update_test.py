"""`private_update`: one pass where it is possible, the same as release and optax everywhere."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.arrays import normals
from support.structure import custom_calls, fresh_jit
from support.tolerance import assert_bits_equal, assert_within, eps

import bk_jax
from bk_jax import optimizers
from bk_jax.updates import private_update

PARAMS = {
    "kernel": normals(0, (7, 33), np.float32),
    "bias": normals(1, (33,), np.float32),
    "scale": np.float32(1.5),
    "none": np.zeros((0, 3), np.float32),
}
X = normals(2, (5, 7), np.float32)


def loss(params, x):
    return jnp.sum(jnp.tanh(x @ params["kernel"] * params["scale"] + params["bias"]))


def make(**options):
    chosen = {"noise_multiplier": 0.5, "normalize_by": 3.0, **options}
    return bk_jax.dp_value_and_grad(loss, **chosen)


def schedule(count):
    return 0.1 / (1 + count)


OPTIMIZERS = {
    "sgd": (optimizers.sgd(0.1), optax.sgd(0.1)),
    "momentum": (optimizers.sgd(0.1, 0.9), optax.sgd(0.1, 0.9)),
    "nesterov": (optimizers.sgd(0.1, 0.9, nesterov=True), optax.sgd(0.1, 0.9, nesterov=True)),
    "adam": (optimizers.adam(0.1), optax.adam(0.1)),
    "adam_root": (
        optimizers.adam(0.1, 0.8, 0.9, 1e-3, 1e-4),
        optax.adam(0.1, 0.8, 0.9, 1e-3, 1e-4),
    ),
    "adamw": (optimizers.adamw(0.1, weight_decay=0.1), optax.adamw(0.1, weight_decay=0.1)),
    "adamw_zero": (optimizers.adamw(0.1, weight_decay=0.0), optax.adamw(0.1, weight_decay=0.0)),
    "sgd_schedule": (optimizers.sgd(schedule), optax.sgd(schedule)),
    "momentum_schedule": (optimizers.sgd(schedule, 0.9), optax.sgd(schedule, 0.9)),
    "adam_schedule": (optimizers.adam(schedule), optax.adam(schedule)),
}


def in_steps(grad_fn, optimizer, sums, state, params, key=None):
    """What a user writes."""
    grads = grad_fn.release(sums, key, like=params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


def run(step, grad_fn, optimizer, steps=3, key=True, params=PARAMS):
    """A few steps from one start; compiled."""

    @fresh_jit
    def one(params, state, key):
        return step(grad_fn.clipped_sums(params, X).sums, state, params, key=key)

    state = optimizer.init(params)
    for i in range(steps):
        params, state = one(params, state, jax.random.key(i) if key else None)
    return jax.tree.map(np.asarray, (params, state))


def assert_close(found, expected, roundings=64):
    """The same tree; a few roundings for each of three steps, of moments and parameters of size 1."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for out, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert out.dtype == right.dtype
        scale = 1 + np.abs(right.astype(np.float64))
        assert_within(out, right, roundings * eps(np.float32) * scale, str(right.shape))


def roundings_of(name):
    """Adam divides by `1 - b2**count`, which is 0.001 or more and has the rounding of a 1."""
    return 4096 if "adam" in name else 64


def calls(grad_fn, optimizer, params=PARAMS, key=True):
    """The custom calls of the compiled update."""
    update = private_update(grad_fn, optimizer)

    def step(sums, state, params, key):
        return update(sums, state, params, key=key)

    sums = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params)
    args = (sums, optimizer.init(params), params, jax.random.key(0) if key else None)
    return custom_calls(jax.jit(step).lower(*args).compile().as_text())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_release_and_optax(implementation, name):
    ours, theirs = OPTIMIZERS[name]
    grad_fn = make()
    expected = run(functools.partial(in_steps, grad_fn, theirs), grad_fn, theirs)
    assert_close(run(private_update(grad_fn, ours), grad_fn, ours), expected, roundings_of(name))


@pytest.mark.native
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_on_a_cpu_it_is_one_call(name):
    assert calls(make(), OPTIMIZERS[name][0]) == ["bk_noisy_update"]


@pytest.mark.native
@pytest.mark.parametrize(
    "other",
    [
        (make(), optax.adam(0.1)),
        (make(), optax.chain(optax.clip(1.0), optimizers.sgd(0.1))),
        (make(), optimizers.adam(0.1, mu_dtype=jnp.bfloat16)),
        (make(), optimizers.adam(0.1, nesterov=True)),
        (make(), optimizers.adamw(0.1, mask=lambda tree: jax.tree.map(jnp.ndim, tree))),
        (make(), optimizers.adamw(0.1, weight_decay=schedule)),
        (make(), optimizers.sgd(0.1, 0.9, accumulator_dtype=jnp.bfloat16)),
        (make(dtype=jnp.bfloat16), optimizers.sgd(0.1)),
    ],
)
def test_what_has_no_fused_form_is_made_in_steps(other):
    grad_fn, optimizer = other
    assert "bk_noisy_update" not in calls(grad_fn, optimizer)
    found = run(private_update(grad_fn, optimizer), grad_fn, optimizer)
    expected = run(functools.partial(in_steps, grad_fn, optimizer), grad_fn, optimizer)
    jax.tree.map(assert_bits_equal, found, expected)


@pytest.mark.native
def test_other_dtypes_are_made_in_steps():
    params = {**PARAMS, "bias": PARAMS["bias"].astype(jnp.bfloat16)}
    grad_fn, optimizer = make(), optimizers.adam(0.1)
    assert "bk_noisy_update" not in calls(grad_fn, optimizer, params)
    found = run(private_update(grad_fn, optimizer), grad_fn, optimizer, params=params)
    expected = run(
        functools.partial(in_steps, grad_fn, optimizer), grad_fn, optimizer, params=params
    )
    jax.tree.map(assert_bits_equal, found, expected)


@pytest.mark.native
def test_wide_scalars_are_made_in_steps(x64):
    """optax computes in float64 then."""
    params = jax.tree.map(lambda x: x.astype(np.float32), PARAMS)
    assert calls(make(), optimizers.sgd(0.1), params) == ["bk_noisy_update"]
    wide = optimizers.sgd(jnp.float64(0.1))
    assert "bk_noisy_update" not in calls(make(), wide, params)


def test_the_transformations_are_those_of_optax():
    """The same updates and states, bit for bit, and the same types: checkpoints can be exchanged."""
    grads = jax.tree.map(lambda x: x + 1, PARAMS)
    for ours, theirs in OPTIMIZERS.values():
        assert isinstance(ours, optax.GradientTransformation)
        assert type(ours) is type(theirs)
        state, expected = ours.init(PARAMS), theirs.init(PARAMS)
        for _ in range(2):
            assert jax.tree.structure(state) == jax.tree.structure(expected)
            updates, state = ours.update(grads, state, PARAMS)
            right, expected = theirs.update(grads, expected, PARAMS)
            jax.tree.map(assert_bits_equal, (updates, state), (right, expected))


def test_without_noise_no_key_is_needed(implementation):
    grad_fn, optimizer = make(noise_multiplier=0.0), optimizers.sgd(0.1, 0.9)
    found = run(private_update(grad_fn, optimizer), grad_fn, optimizer, key=False)
    expected = run(functools.partial(in_steps, grad_fn, optimizer), grad_fn, optimizer, key=False)
    assert_close(found, expected)


def test_clip_norms_by_group_and_traced_options(implementation):
    """The noise is that of all groups together; the multiplier may be traced."""
    norms = {"kernel": 1.0, "bias": 0.5, "scale": 0.1, "none": 0.2}

    def step(how, sigma, params, key):
        grad_fn = make(l2_clip_norm=norms, noise_multiplier=sigma)
        optimizer = optimizers.sgd(0.1)
        sums = grad_fn.clipped_sums(params, X).sums
        update = how(grad_fn, optimizer)
        return update(sums, optimizer.init(params), params, key=key)[0]

    def separate(grad_fn, optimizer):
        return functools.partial(in_steps, grad_fn, optimizer)

    key = jax.random.key(3)
    found, expected = (
        jax.jit(functools.partial(step, how))(np.float32(0.5), PARAMS, key)
        for how in (private_update, separate)
    )
    assert_close(*(jax.tree.map(np.asarray, tree) for tree in (found, expected)))


def test_a_scan_of_steps(implementation):
    grad_fn, optimizer = make(), optimizers.adam(schedule)
    update = private_update(grad_fn, optimizer)

    def one(carry, key):
        params, state = carry
        return update(grad_fn.clipped_sums(params, X).sums, state, params, key=key), None

    start = jax.tree.map(jnp.asarray, (PARAMS, optimizer.init(PARAMS)))
    keys = jnp.stack([jax.random.key(i) for i in range(3)])
    scan = jax.jit(lambda start, keys: jax.lax.scan(one, start, keys)[0], donate_argnums=0)
    found = jax.tree.map(np.asarray, scan(start, keys))
    assert_close(found, run(update, grad_fn, optimizer), roundings_of("adam"))


def test_every_step_draws_its_own_noise_and_models_have_their_own_keys(implementation):
    grad_fn, optimizer = make(), optimizers.sgd(0.1)
    update = private_update(grad_fn, optimizer)
    sums = {"w": np.zeros((2, 40), np.float32)}

    def step(sums, key):
        params = jax.tree.map(jnp.zeros_like, sums)
        return update(sums, optimizer.init(params), params, key=key)[0]["w"]

    keys = jax.random.split(jax.random.key(0), 2)
    rows = fresh_jit(jax.vmap(step))(sums, keys)
    assert not np.any(rows[0] == rows[1])
    for row, key in zip(rows, keys, strict=True):
        alone = fresh_jit(step)({"w": sums["w"][0]}, key)
        assert_within(row, alone, 8 * eps(np.float32) * np.abs(alone), "vmap")
    with pytest.raises(ValueError, match="shares one key between 2 models"):
        jax.vmap(step, (0, None))(sums, keys[0])


@pytest.mark.native
def test_donated_parameters_are_overwritten():
    """No array as large as the parameter beside the sum."""
    grad_fn, optimizer = make(), optimizers.adam(0.1)
    update = private_update(grad_fn, optimizer)
    params = {"w": np.zeros((400, 500), np.float32)}
    state = optimizer.init(params)
    step = jax.jit(
        lambda params, state, sums, key: update(sums, state, params, key=key), donate_argnums=(0, 1)
    )
    memory = step.lower(params, state, params, jax.random.key(0)).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 400 * 500 * 4
    assert memory.alias_size_in_bytes >= 3 * 400 * 500 * 4


@pytest.mark.native
def test_several_devices_and_shard_maps_go_in_steps(monkeypatch):
    monkeypatch.setattr("bk_jax.updates.is_cut", lambda: True)
    assert "bk_noisy_update" not in calls(make(), optimizers.sgd(0.1))


@pytest.mark.native
def test_large_sums_are_used_and_freed_one_by_one():
    """Eight layers: less than half of their sums exist at a time."""
    params = [np.full((300, 300), 0.01, np.float32) for _ in range(8)]
    x = np.ones((2, 300), np.float32)
    optimizer = optimizers.sgd(0.1)

    def deep_loss(params, x):
        return jnp.sum(functools.reduce(jnp.dot, params, x))

    grad_fn = bk_jax.dp_value_and_grad(deep_loss)
    update = private_update(grad_fn, optimizer)

    def step(params, state, x, key):
        return update(update.clipped_sums(params, x).sums, state, params, key=key)

    lowered = jax.jit(step, donate_argnums=0).lower(
        params, optimizer.init(params), x, jax.random.key(0)
    )
    assert lowered.compile().memory_analysis().temp_size_in_bytes < 4 * 300 * 300 * 4


def test_an_empty_tree(implementation):
    grad_fn, optimizer = make(), optimizers.adam(0.1)
    update = private_update(grad_fn, optimizer)
    params, state = update({}, optimizer.init({}), {}, key=jax.random.key(0))
    assert params == {}
    assert state[0].count == 1


def test_counts_end_at_the_largest_number():
    optimizer = optimizers.adam(schedule)
    state = optimizer.init(PARAMS)
    last = jnp.iinfo(jnp.int32).max
    full = (state[0]._replace(count=jnp.int32(last)), state[1]._replace(count=jnp.int32(last)))
    update = private_update(make(), optimizer)
    _, state = update(PARAMS, full, PARAMS, key=jax.random.key(0))
    assert state[0].count == last
    assert state[1].count == last


def test_errors():
    grad_fn, optimizer = make(), optimizers.sgd(0.1, 0.9)
    update = private_update(grad_fn, optimizer)
    state, key = optimizer.init(PARAMS), jax.random.key(0)
    with pytest.raises(
        TypeError, match=r"grad_fn to be what dp_value_and_grad returned, .*PjitFunc"
    ):
        private_update(jax.jit(grad_fn), optimizer)
    with pytest.raises(TypeError, match=r"optimizer to be one of bk_jax\.optimizers.*; got str"):
        private_update(grad_fn, "adam")
    with pytest.raises(ValueError, match="noise needs a key"):
        update(PARAMS, state, PARAMS)
    with pytest.raises(ValueError, match=r"a key was passed but noise_multiplier is 0\.0"):
        private_update(make(noise_multiplier=0.0), optimizer)(PARAMS, state, PARAMS, key=key)
    with pytest.raises(TypeError, match=r"pass found\.sums of found = update\.clipped_sums"):
        update(grad_fn.clipped_sums(PARAMS, X), state, PARAMS, key=key)
    with pytest.raises(
        ValueError, match=r"sums and params to be trees of one structure; got sums .*"
    ):
        update({"w": PARAMS["bias"]}, state, PARAMS, key=key)
    with pytest.raises(TypeError, match=r"opt_state must be that of the optimizer, .*'momentum'"):
        update(PARAMS, optax.sgd(0.1).init(PARAMS), PARAMS, key=key)
    other = {**PARAMS, "bias": PARAMS["bias"][:2]}
    with pytest.raises(ValueError, match="expects float32 arrays of one shape in each leaf"):
        update(other, state, PARAMS, key=key)
