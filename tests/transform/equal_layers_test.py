"""Layers of equal shapes: on a GPU one call for their norms and one for their sums, the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import fake_cuda
from support.oracle import check_against_oracle
from support.tolerance import eps

import bk_jax
from bk_jax.planning import plan as plan_module
from bk_jax.planning.default_rates import AVX512, nominal_rates
from bk_jax.planning.equal import where_sharing_pays
from bk_jax.planning.plan import make_plan
from bk_jax.summing.blocks import equal

B, T, D, DEPTH = 6, 5, 16, 4
GHOST = {"*/up": "ghost", "*/down": "ghost", "*/qkv": "ghost"}


@pytest.fixture(autouse=True)
def _there_is_room(monkeypatch):
    """So few rows keep hardly more than the weights take: sums would be made one by one."""
    monkeypatch.setattr(equal, "PART", 3)


def arrays(*shapes, dtype=jnp.float32):
    return [x * 0.1 for x in fake_cuda.normal_arrays(*shapes, dtype=dtype)]


def stack(dtype=jnp.float32):
    """Two and two blocks: three weights each, of three shapes."""
    shapes = {"qkv": (D, 3 * D), "up": (D, 2 * D), "down": (2 * D, D), "bias": (D,)}
    found = iter(arrays(*[shape for _ in range(DEPTH) for shape in shapes.values()], dtype=dtype))
    blocks = [{name: next(found) for name in shapes} for _ in range(DEPTH)]
    return {"first": blocks[: DEPTH // 2], "last": blocks[DEPTH // 2 :]}


def loss(params, batch):
    h = batch
    for block in [*params["first"], *params["last"]]:
        q, k, v = jnp.split(h @ block["qkv"] + 0.1, 3, axis=-1)
        h = h + jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2)) @ v
        h = h + jnp.tanh(h @ block["up"]) @ block["down"] + block["bias"]
    return jnp.mean(jnp.square(h.astype(jnp.float32)))


def batch(dtype=jnp.float32):
    return np.asarray(jax.random.normal(jax.random.key(7), (B, T, D), dtype))


def grad_fn(device="A100", **options):
    return bk_jax.clipped_value_and_grad(loss, **{"device": device, "routes": GHOST} | options)


def targets(grad, *args, platform="cuda"):
    return fake_cuda.targets_of(fake_cuda.lowered(grad, *args, platform=platform))


def check(params=None, given=None, **options):
    options = {"device": "A100", "routes": GHOST, "l2_clip_norm": 0.5} | options
    params, given = stack() if params is None else params, batch() if given is None else given
    return check_against_oracle(loss, params, given, **options)


# --- the same results ---


def test_norms_of_float32_are_exact():
    """With rows of padding, an example that is not finite, and two clip groups."""
    given, is_padding = batch().copy(), np.arange(B) == 2
    given[2], given[4] = np.nan, np.inf
    check(given=given, is_padding_example=is_padding, l2_clip_norm={"first": 0.1, "last": 0.3})


def test_norms_and_sums_of_half_precision_are_exact():
    check(stack(jnp.bfloat16), batch(jnp.bfloat16))


@pytest.mark.parametrize(
    "options", [{"pre_clip_scale": {"first": [2.0, 1.0], "last": 0.5}}, {"microbatch_size": 4}]
)
def test_the_plan_for_a_cpu_has_the_same_results(options):
    given = stack(jnp.bfloat16), batch(jnp.bfloat16)
    options = {"l2_clip_norm": 0.2, "return_stats": True, "dtype": jnp.float32} | options
    one, other = (jax.jit(grad_fn(device, **options))(*given) for device in ("cpu", "A100"))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        scale = np.abs(a).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=4 * eps(jnp.bfloat16) * scale)


# --- one call for many ---


@pytest.fixture
def module(monkeypatch):
    return fake_cuda.register(monkeypatch)


def test_a_shape_has_one_call(module):
    """Twelve layers of three shapes."""
    found = targets(grad_fn(), stack(jnp.bfloat16), batch(jnp.bfloat16))
    assert found.count("bk_ghost_norms") == 3
    assert found.count("bk_clipped_gemms") == 3
    assert not {"bk_ghost_norm", "bk_clipped_gemm"} & set(found)


def test_sums_of_float32_are_products_of_a_library(module):
    found = targets(grad_fn(), stack(), batch())
    assert found.count("bk_ghost_norms") == 3
    assert found.count("bk_clipped_gemm") == 3 * DEPTH


CLIPPING = {
    "one norm": (0.5, 3),
    "a norm for each half": ({"first": 0.1, "last": 0.3}, 6),
    "a norm for each block": ({"first": [0.1, 0.2], "last": [0.3, 0.4]}, 0),
}


@pytest.mark.parametrize(("clip", "calls"), CLIPPING.values(), ids=CLIPPING)
def test_clip_groups_stay_apart(module, clip, calls):
    found = targets(grad_fn(l2_clip_norm=clip), stack(jnp.bfloat16), batch(jnp.bfloat16))
    assert found.count("bk_ghost_norms") == found.count("bk_clipped_gemms") == calls


def test_scales_stay_apart(module):
    for scale, calls in ((2.0, 3), ({"first": 2.0, "last": 0.5}, 6)):
        found = targets(grad_fn(pre_clip_scale=scale), stack(), batch())
        assert found.count("bk_ghost_norms") == calls


def test_sums_that_are_added_stay_in_place(module):
    found = targets(grad_fn(microbatch_size=2), stack(jnp.bfloat16), batch(jnp.bfloat16))
    assert found.count("bk_ghost_norms") == 3
    assert found.count("bk_clipped_gemm_add") == 3 * DEPTH
    assert "bk_clipped_gemms" not in found


def test_sums_of_a_call_are_a_part_of_what_is_kept(module, monkeypatch):
    """All operands are there when they are made. Here 38400 bytes, and a ninth is room for 4266."""
    monkeypatch.setattr(equal, "PART", 9)
    sums = {"qkv": 4 * D * 3 * D, "up": 4 * D * 2 * D, "down": 4 * D * 2 * D}
    assert sums == {"qkv": 3072, "up": 2048, "down": 2048}
    found = targets(grad_fn(), stack(jnp.bfloat16), batch(jnp.bfloat16))
    assert found.count("bk_clipped_gemm") == DEPTH  # one by one
    assert found.count("bk_clipped_gemms") == 2 * DEPTH / 2  # two by two


def test_a_cpu_and_the_methods_of_the_paper_have_a_call_for_each(module):
    for options in ({"device": "cpu"}, {"method": "bk", "routes": None}):
        found = targets(grad_fn(**options), stack(jnp.bfloat16), batch(jnp.bfloat16))
        assert found.count("bk_ghost_norm") == found.count("bk_clipped_gemm") == 3 * DEPTH


# --- the plan ---


def plan_of(rates, groups=None, params=None):
    plans = []

    def spy(*args):
        plans.append(make_plan(*args[:-1], rates))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bk_jax.grad_fn.make_plan", spy)
        grad_fn(l2_clip_norm=groups or 1.0).explain(
            params or stack(jnp.bfloat16), batch(jnp.bfloat16)
        )
    return plans[0]


def test_every_norm_and_every_sum_is_in_one_call():
    for rates in (AVX512, nominal_rates("A100")):
        plan = plan_of(rates)
        calls = [n for together in plan.equal_norms for n in together]
        assert sorted(calls) == list(range(len(plan.norm_calls)))
        assert sorted(n for call in plan.norm_calls for n in call) == list(range(3 * DEPTH))
        assert sorted(n for call in plan.equal_sums for n in call) == list(range(3 * DEPTH))


def test_the_plan_for_a_cpu_takes_nothing_together():
    plan = plan_of(AVX512)
    alone = tuple((n,) for n in range(3 * DEPTH))
    assert plan.norm_calls == plan.equal_norms == plan.equal_sums == alone


def test_explain_says_how_many_calls_there_are():
    params, given = stack(jnp.bfloat16), batch(jnp.bfloat16)
    said = grad_fn().explain(params, given)
    assert said.together == "calls for layers of one shape: 12 norms in 3, 12 sums in 3"
    assert said.together in str(said)
    assert grad_fn("cpu").explain(params, given).together == ""
    saved = plan_seconds(device="A100", method="bk") - plan_seconds(device="A100")
    launches = 2 * (3 * DEPTH - 3) * nominal_rates("A100").operation
    assert saved == pytest.approx(launches)


def plan_seconds(**options):
    grad = grad_fn(**options)
    return grad.explain(stack(jnp.bfloat16), batch(jnp.bfloat16)).private_seconds


# --- beside layers that share activations ---


def attention(params, x):
    q, k, v = (jnp.tanh(x @ params[name]) for name in "qkv")
    return jnp.sum(jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2)) @ v)


@pytest.mark.parametrize(("tokens", "shared"), [(512, 1), (4096, 3)])
def test_sharing_must_pay_for_its_copy(tokens, shared):
    """Query, key and value: together by their shape, or by their activations."""
    weight = jax.ShapeDtypeStruct((768, 768), jnp.bfloat16)
    given = jax.ShapeDtypeStruct((2, tokens, 768), jnp.bfloat16)
    plans = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bk_jax.grad_fn.make_plan", lambda *a: plans.append(make_plan(*a)) or plans[-1]
        )
        options = {"routes": dict.fromkeys("qkv", "ghost"), "device": "A100"}
        grad = bk_jax.clipped_value_and_grad(attention, **options)
        grad.explain(dict.fromkeys("qkv", weight), given)
    (plan,) = plans
    assert [len(call) for call in plan.norm_calls] == [shared] * (3 // shared)
    assert [len(call) for call in plan.equal_norms] == [3 // shared]


def test_layers_that_share_come_together_with_their_like(module, monkeypatch):
    """Two attentions: one wide layer each, both in one call."""
    monkeypatch.setattr(plan_module, "SHARED_POSITIONS", 2)
    monkeypatch.setattr(plan_module, "where_sharing_pays", lambda blocks, calls, device: calls)

    def twice(params, x):
        return attention(params[0], x) + attention(params[1], jnp.sin(x))

    params = [dict(zip("qkv", arrays(*[(D, D)] * 3), strict=True)) for _ in range(2)]
    options = {"routes": {"*": "ghost"}, "device": "A100"}
    text = fake_cuda.lowered(bk_jax.clipped_value_and_grad(twice, **options), params, batch())
    (call,) = fake_cuda.calls(text, "bk_ghost_norms")
    rows = B * T
    assert fake_cuda.shapes(call)[0] == [f"{rows}x{D}xf32", f"{rows}x{3 * D}xf32"] * 2
    check_against_oracle(twice, params, batch(), l2_clip_norm=0.5, **options)


def test_blocks_that_stay_apart_keep_their_order():
    assert where_sharing_pays([], ((0,), (2,)), nominal_rates("A100").device) == ((0,), (2,))
