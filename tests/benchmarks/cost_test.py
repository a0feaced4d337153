"""Formulas against flops that are counted in traced programs, and layers against traced models."""

from collections import Counter
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from benchmarks.paper.complexity import from_explain, layers, modules
from benchmarks.paper.complexity.layers import Layer, Model
from benchmarks.paper.complexity.package_cost import choose, layer_cost, model_cost
from benchmarks.steps.step_models.beit import relative_positions
from bk_jax import _native
from bk_jax.planning.flops import count_flops
from bk_jax.planning.methods import METHODS

B, WIDTHS = 2, (5, 7, 11)


def shapes(*dimensions):
    return [jax.ShapeDtypeStruct(d, np.float32) for d in dimensions]


def flops(fun, *dimensions):
    return count_flops(jax.make_jaxpr(fun)(*shapes(*dimensions)))


@pytest.mark.parametrize(("T", "d", "p"), [(1, 1, 1), (3, 5, 7), (8, 2, 3), (1, 4, 9)])
def test_modules_are_the_flops_of_their_products(T, d, p):
    a, g, w = (B, T, d), (B, T, p), (d, p)

    def gram(x):
        return jnp.einsum("btd,bsd->bts", x, x)

    counted = {
        "1": flops(jnp.matmul, a, w),
        "2a": flops(lambda g, w: g @ w.T, g, w),
        "2b": flops(lambda a, g: jnp.einsum("btd,btp->dp", a, g), a, g),
        "3": flops(lambda a, g: jnp.sum(gram(a) * gram(g)), a, g),
        "4": flops(lambda a, g: jnp.einsum("btd,btp->bdp", a, g), a, g),
        "5": flops(lambda c, grads: jnp.einsum("b,bdp->dp", c, grads), (B,), (B, d, p)),
    }
    for key, module in modules.MODULES.items():
        assert modules.value(module.time, B, T, d, p) == counted[key], key


def loss(params, x):
    first, second = params
    return jnp.sum(jnp.tanh(jnp.tanh(x @ first) @ second) ** 2)


def traced_flops(fun, T):
    d, m, p = WIDTHS
    x, *params = shapes((B, T, d), (d, m), (m, p))
    return count_flops(jax.make_jaxpr(fun)(params, x))


def module_flops(method, T):
    """Modules of both layers; nothing asks for the gradient of the input, 2a of the first layer.

    The weighted sum of stored gradients is not a product of matrices, and is not counted.
    """
    total = 0
    for number, (d, p) in enumerate(pairwise(WIDTHS)):
        ghost = p * d > 2 * T**2
        parts = modules.modules_of(method, ghost, by=modules.BY_THE_PACKAGE)
        counted = [x for x in parts if x != "5" and (number > 0 or x != "2a")]
        total += modules.value(modules.total_time(counted), B, T, d, p)
    return total


@pytest.mark.parametrize("T", [2, 3, 5, 20])  # T = 1 has a shorter form
@pytest.mark.parametrize("method", modules.BY_THE_PACKAGE)
def test_methods_run_the_modules_that_they_say(monkeypatch, method, T):
    monkeypatch.setattr(_native, "available", lambda target: False)
    fun = jax.value_and_grad(loss)
    if method != "non_private":
        fun = bk_jax.clipped_value_and_grad(loss, method=method)
    assert traced_flops(fun, T) == module_flops(method, T)


def test_every_method_is_described():
    assert modules.BY_THE_PAPER.keys() - {"non_private"} == METHODS.keys() - {"auto", "tf_privacy"}


@pytest.mark.parametrize(("T", "d", "p"), [(1, 1, 1), (2, 3, 5), (7, 4, 3), (16, 2, 9)])
def test_the_ghost_norm_of_the_package_is_a_triangle_of_pairs(T, d, p):
    pairs = sum(1 for i in range(T) for j in range(T) if j >= i)
    cost = layer_cost(Layer("one", "dense", p=p, d=d, t=T))
    assert cost.extra_flops("ghost") == pairs * (2 * d + 2 * p)


def test_costs_of_a_model_add_up():
    one = Layer("one", "dense", p=5, d=3, t=2)
    tied = Layer("head", "dense", p=11, d=5, t=2, count=3, tied=True)
    table = Layer("table", "embedding", p=5, d=11, t=2)
    model = Model("tiny", "Tiny", (table, one, tied))
    plain = 6 * 2 * (15 + 3 * 55)
    ghost = 2 * 3 * ((5 + 3) + 3 * (11 + 5))
    lookup = 4 * 2 * 5
    assert model_cost(model, "bk").non_private == plain
    assert model_cost(model, "bk").private == plain + ghost + lookup
    assert model_cost(model, "ghost_clip").private == plain + plain * 2 // 3 + ghost + lookup
    assert model_cost(model, "bk").routes == {"ghost": 4, "sparse": 1}
    weights = 55 + 15  # the head's is the table
    assert model_cost(model, "opacus").private == plain + 4 * weights
    assert model_cost(model, "opacus").extra_bytes == 4 * weights


# --- traced models ---


def table_sizes(name):
    sizes = Counter()
    for layer in layers.read(name).multiplied():
        t = layer.t - layer.tied  # GPT2's head: the last token predicts nothing
        sizes[t, layer.d, layer.p, choose(METHODS["auto"], layer)] += layer.count
    return sizes


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet50", "vgg11", "vit_base_patch16_224", "gpt2", "mlp_deep"]
)
def test_layers_and_routes_are_those_of_the_traced_model(name):
    rows = from_explain.explanation(from_explain.NAMES[name]).rows
    assert table_sizes(name) == Counter(
        (row.t, row.d, row.p, row.route) for row in rows if row.kind in ("dense", "conv", "tied")
    )


HEAD = {"roberta-base": 768 * 2, "roberta-large": 1024 * 2}  # of two classes; the tables have none
RELATIVE = 24 * 732 * 16  # BEiT's tables of relative positions: lookups, which the paper leaves out


@pytest.mark.parametrize("table", from_explain.NAMES)
def test_explain_finds_what_the_tables_count(table):
    counts = layers.count_parameters(layers.read(table))
    weights, total = from_explain.applicable(from_explain.NAMES[table])
    lookups = RELATIVE if table.startswith("beit") else 0
    assert weights == counts.weights + HEAD.get(table, 0) + lookups
    share = 100 * (weights - lookups) / total
    assert share == pytest.approx(100 * counts.weights / counts.total, abs=0.01)


def test_positions_of_patches_are_counted_once_each():
    index = relative_positions(2)
    assert index.shape == (5, 5)
    assert index[0].tolist() == [11, 9, 9, 9, 9]
    assert index[1:, 0].tolist() == [10] * 4
    assert index[1:, 1:].tolist() == [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]


def test_perceptrons_are_all_weights_and_biases():
    weights, total = from_explain.applicable("mlp", width=30, depth=3)
    assert (weights, total) == (3 * 900 + 300, 3 * 930 + 310)
