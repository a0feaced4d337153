"""LoRA: the same function as the merged model, rank-r matrices alone are tapped, frozen weights rest."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import flow, mlp, stacked, transformers
from models.model import Model, cast, fill, images
from models.suite_test import QUICK, first_match
from support import oracle
from support.structure import equations, jaxpr_shapes
from support.tolerance import assert_within

import bk_jax
from bk_jax import peft
from bk_jax.planning.flops import count_flops

MODELS = [
    mlp.mlp_linen,
    mlp.mlp_nnx,
    mlp.mlp_equinox,
    mlp.mlp_haiku,
    transformers.bert_linen,  # kernels [d, heads, k] and [heads, k, d]
    stacked.nested_three_deep,
    flow.views_of_parameters,  # slices, reshapes, concatenations
]


@pytest.fixture
def no_leak_check():
    """JAX's caches are off while tracers are watched for leaks; other tests watch."""
    with jax.check_tracer_leaks(False):
        yield


def is_dense(model: Model) -> Any:
    return lambda path, leaf: first_match(model.kinds, path)[1] == "dense"


def one_example(model: Model, args: Any) -> list[Any]:
    keep = model.options.get("keep_batch_dim", True)
    return [args[0], jax.tree.map(lambda x: x[:1] if keep else x[0], args[1]), *args[2:]]


def random_like(tree: Any, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: (0.3 * rng.normal(size=x.shape)).astype(dtype), tree)


def many_uses() -> Model:
    args = (fill(MANY_USES), images(1, 3, 5, 4))
    return Model(many_uses_loss, args, {"*": "dense"})


@pytest.mark.parametrize("make", [*MODELS, many_uses], ids=lambda make: make.__name__)
def test_a_model_with_adapters_is_the_merged_model(x64, no_leak_check, make):
    model = make()
    args = cast(model.args, np.float64)
    params, *rest = one_example(model, args)
    lora = peft.lora(model.loss, params, *rest, rank=2, alpha=3, match=is_dense(model))
    adapters = random_like(lora.adapters)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def losses(params, adapters, *rest):
        return (
            model.loss(params, *rest),
            lora.loss_fn(lora.adapters, *rest, frozen=params),
            lora.loss_fn(adapters, *rest, frozen=params),
            model.loss(lora.merge(params, adapters), *rest),
        )

    original, untrained, adapted, merged = losses(params, adapters, *rest)
    assert_within(untrained, original, 1e-13, "B is zero")
    assert_within(adapted, merged, 1e-12, "merged")
    assert abs(adapted - original) > 1e-4
    grad_fn = bk_jax.dp_value_and_grad(lora.loss_fn, **model.options)
    rows = grad_fn.explain(adapters, *args[1:], frozen=args[0]).rows
    assert {row.kind for row in rows} == {"dense"}
    assert all(2 in (row.d, row.p) for row in rows)
    assert {row.path for row in rows} == {f"{w.name}/{m}" for w in lora.weights for m in "ab"}


def many_uses_loss(params, x):
    """Layers in a scan, rematerialised; one weight in all steps and transposed; experts."""
    layer = jax.checkpoint(lambda h, w: (jnp.tanh(h @ w), None))
    x, _ = jax.lax.scan(layer, x, params["stack"])
    x, _ = jax.lax.scan(lambda h, _: (jnp.sin(h @ params["shared"]), None), x, None, length=2)
    x = jnp.cos(x @ params["shared"].T)
    return jnp.sum(jnp.tanh(jnp.einsum("btd,ndp->bntp", x, params["experts"])))


MANY_USES = {"stack": (3, 4, 4), "shared": (4, 4), "experts": (2, 4, 3)}


def test_private_gradients_of_adapters_are_exact():
    params, batch = fill(MANY_USES), images(1, 3, 5, 4)
    lora = peft.lora(many_uses_loss, params, batch[:1], rank=2, match="*")
    adapters = random_like(lora.adapters, np.float32)

    def loss(adapters, batch, frozen):
        return lora.loss_fn(adapters, batch, frozen=frozen)

    args = (adapters, batch, params)
    truth = oracle.per_example(loss, args, oracle.Arguments())
    norms = np.sqrt(oracle.squared_norms(list(truth.gradients.values()), len(truth.losses)))
    clip_norm = float(np.float32(np.median(norms)))
    grad_fn = bk_jax.clipped_value_and_grad(
        loss, l2_clip_norm=clip_norm, return_stats=True, shared_argnames="frozen"
    )
    _, grads, stats = jax.jit(grad_fn, compiler_options=QUICK)(*args)
    assert_within(stats.norms, norms, 1e-5 * norms, "norms")
    factors = np.asarray(stats.clip_factors, np.float64)
    for path, gradient in oracle.named_leaves(grads).items():
        expected = np.tensordot(factors, truth.gradients[path], axes=1)
        assert_within(gradient, expected, 2e-5 * np.sum(factors * norms), path)


# --- what is computed ---

SIZES = (5, 7, 11, 13, 3)  # no two layers are alike
TOKENS, EXAMPLES = 17, 2


def layers_loss(params, x):
    for name in sorted(params):
        x = jnp.tanh(x @ params[name])
    return jnp.sum(x)


def layers(sizes=SIZES):
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(sizes)
    return {f"w{i}": rng.normal(size=pair).astype(np.float32) for i, pair in enumerate(pairs)}


def data(width=SIZES[0]):
    return np.random.default_rng(1).normal(size=(EXAMPLES, TOKENS, width)).astype(np.float32)


def step_jaxpr(lora, params, batch, **options):
    grad_fn = bk_jax.clipped_value_and_grad(lora.loss_fn, **options)

    def step(adapters, batch, frozen):
        return grad_fn(adapters, batch, frozen=frozen)

    return jax.make_jaxpr(step)(lora.adapters, batch, params)


def large_products(jaxpr, params):
    """The products with a frozen weight or of its gradient, by the size of that weight."""
    sizes = {2 * EXAMPLES * TOKENS * w.size: name for name, w in params.items()}
    dots = [eqn for eqn in equations(jaxpr) if str(eqn.primitive) == "dot_general"]
    flops = [count_flops(_Single(eqn)) for eqn in dots]
    return sorted(sizes[f] for f in flops if f in sizes)


class _Single:
    """One equation as a program."""

    def __init__(self, eqn):
        self.eqns = [eqn]


def test_back_propagation_ends_at_the_first_adapted_layer():
    params, batch = layers(), data()
    lora = peft.lora(layers_loss, params, batch, rank=2, match=["w2", "w3"])
    jaxpr = step_jaxpr(lora, params, batch)
    # Forward through all layers; back through w3 alone, to the adapter of w2.
    assert large_products(jaxpr, params) == ["w0", "w1", "w2", "w3", "w3"]


def test_no_gradient_of_a_frozen_weight_is_formed():
    params, batch = layers(), data()
    lora = peft.lora(layers_loss, params, batch, rank=2, match="*")
    shapes = jaxpr_shapes(step_jaxpr(lora, params, batch))
    for weight in params.values():
        assert not any(
            shape[-2:] in (weight.shape, weight.shape[::-1])
            and shape[:-2] in ((), (EXAMPLES,), (EXAMPLES, 1), (1,))
            for shape in shapes
        )


def test_compiled_flops_are_those_of_forward_and_input_gradients():
    sizes = (64,) * 7
    params, batch = layers(sizes), data(64)
    lora = peft.lora(layers_loss, params, batch, rank=2, match="w5")
    grad_fn = bk_jax.clipped_value_and_grad(lora.loss_fn, method="bk")
    compiled = jax.jit(grad_fn).lower(lora.adapters, batch, frozen=params).compile()
    forward = 6 * 2 * EXAMPLES * TOKENS * 64 * 64
    assert compiled.cost_analysis()["flops"] < 1.5 * forward  # training everything takes 3


def test_stacked_layers_have_an_adapter_each():
    stacked_params = {"w": np.stack([np.eye(4, dtype=np.float32)] * 3)}

    def loss(params, x):
        return jnp.sum(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["w"])[0])

    lora = peft.lora(loss, stacked_params, data(4), rank=2, match="w")
    assert jax.tree.map(jnp.shape, lora.adapters) == {"w": {"a": (3, 4, 2), "b": (3, 2, 4)}}
    shapes = jaxpr_shapes(step_jaxpr(lora, stacked_params, data(4)))
    assert (EXAMPLES, 3, 4, 4) not in shapes


def test_parts_of_a_leaf_have_adapters_of_their_own():
    def loss(params, x):
        q, k = jnp.split(params["qk"], 2, axis=1)
        return jnp.sum((x @ q) * (x @ k))

    params = {"qk": np.ones((5, 8), np.float32)}
    lora = peft.lora(loss, params, data(), rank=1, match="qk")
    assert jax.tree.map(jnp.shape, lora.adapters) == {
        "qk[0]": {"a": (5, 1), "b": (1, 4)},
        "qk[1]": {"a": (5, 1), "b": (1, 4)},
    }


def test_merged_parameters_are_exact_for_small_integers():
    params = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    lora = peft.lora(lambda p, x: jnp.sum(x @ p["w"]), params, data(2), rank=1, alpha=2, match="w")
    adapters = {"w": {"a": np.float32([[1], [2]]), "b": np.float32([[3, 4, 5]])}}
    np.testing.assert_array_equal(
        lora.merge(params, adapters)["w"], params["w"] + 2 * np.float32([[3, 4, 5], [6, 8, 10]])
    )
    transposed = peft.lora(lambda p, x: jnp.sum(x @ p["w"].T), params, data(3), rank=1, match="w")
    adapters = {"w": {"a": np.float32([[3], [4], [5]]), "b": np.float32([[1, 2]])}}
    np.testing.assert_array_equal(
        transposed.merge(params, adapters)["w"], params["w"] + np.float32([[3, 4, 5], [6, 8, 10]])
    )


def test_first_values_are_random_and_zero_and_come_from_the_key():
    params, batch = layers((5, 7, 3)), data()
    make = functools.partial(peft.lora, layers_loss, params, batch, rank=4, match="*")
    one, two, three = make(), make(), make(key=jax.random.key(1), dtype=jnp.bfloat16)
    assert not any(np.any(x["b"]) for x in one.adapters.values())
    for name in params:
        np.testing.assert_array_equal(one.adapters[name]["a"], two.adapters[name]["a"])
        assert three.adapters[name]["a"].dtype == jnp.bfloat16
        assert np.any(np.asarray(one.adapters[name]["a"]) != three.adapters[name]["a"])
    assert one.num_parameters() == 4 * sum(sum(w.shape) for w in params.values())


def test_shapes_are_enough_to_make_adapters():
    params, batch = jax.eval_shape(lambda: (layers(), data()))
    lora = peft.lora(layers_loss, params, batch, rank=2, match="w0")
    assert lora.adapters["w0"]["a"].shape == (5, 2)


def test_it_is_a_function_like_any_other():
    params, batch = layers(), data()
    lora = peft.lora(layers_loss, params, batch, rank=2, match="w1")
    adapters = random_like(lora.adapters, np.float32)
    many = jax.tree.map(lambda x: np.stack([x, 2 * x]), adapters)
    loss = functools.partial(lora.loss_fn, frozen=params)
    both = jax.jit(jax.vmap(loss, in_axes=(0, None)))(many, batch)
    value, grads = jax.jit(jax.value_and_grad(loss))(adapters, batch)
    np.testing.assert_allclose(both[0], value, rtol=1e-5)
    assert jax.tree.map(jnp.shape, grads) == jax.tree.map(jnp.shape, adapters)


def test_other_frozen_values_do_not_compile_again():
    params, batch = layers(), data()
    lora = peft.lora(layers_loss, params, batch, rank=2, match="w1")
    grad_fn = bk_jax.clipped_value_and_grad(lora.loss_fn)
    traces = []

    @jax.jit
    def step(adapters, batch, frozen):
        traces.append(1)
        return grad_fn(adapters, batch, frozen=frozen)

    step(lora.adapters, batch, params)
    step(lora.adapters, 2 * batch, jax.tree.map(lambda w: 2 * w, params))
    assert len(traces) == 1


def test_a_program_in_low_precision_stays_so():
    def product(params, x):
        return x.astype(jnp.bfloat16) @ params["w"].astype(jnp.bfloat16)

    params = {"w": np.ones((5, 2), np.float32)}
    lora = peft.lora(product, params, data(), rank=1, match="w")
    assert lora.adapters["w"]["a"].dtype == jnp.float32
    jaxpr = jax.make_jaxpr(lora.loss_fn)(lora.adapters, data(), frozen=params)
    dots = [eqn for eqn in equations(jaxpr) if str(eqn.primitive) == "dot_general"]
    assert [eqn.invars[1].aval.dtype for eqn in dots] == [jnp.bfloat16] * 3
    assert [out.dtype for out in jaxpr.out_avals] == [jnp.bfloat16]


def test_aux_outputs_are_adapted_too():
    def logits_and_loss(params, x):
        return jnp.sum(x), x @ params["w"]  # the loss does not use the weight

    params = {"w": np.eye(2, dtype=np.float32)}
    lora = peft.lora(logits_and_loss, params, np.ones((1, 2), np.float32), rank=1, match="w")
    adapters = {"w": {"a": np.ones((2, 1), np.float32), "b": np.float32([[1, 2]])}}
    _, logits = lora.loss_fn(adapters, np.float32([[1, 10]]), frozen=params)
    np.testing.assert_array_equal(logits, [[1 + 11, 10 + 22]])
