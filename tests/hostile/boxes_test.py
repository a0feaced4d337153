"""What Flax puts around an array is no part of its path, and what is no parameter is not trained."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import bk_jax
from bk_jax import peft
from bk_jax.paths import leaf_names

X = np.ones((3, 4), np.float32)


class Network(nnx.Module):
    """Two layers of nnx, one of them in a list."""

    def __init__(self, rngs: nnx.Rngs):
        self.up = nnx.Linear(4, 5, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(5, 2, rngs=rngs)])

    def __call__(self, x):
        return self.layers[0](self.up(x))


GRAPH, STATE = nnx.split(Network(nnx.Rngs(0)), nnx.Param)
PATHS = ["layers/0/bias", "layers/0/kernel", "up/bias", "up/kernel"]


def loss_fn(params, x):
    model = nnx.merge(GRAPH, params) if isinstance(params, nnx.State) else params
    return jnp.sum(model(x))


@pytest.mark.parametrize("params", [STATE, Network(nnx.Rngs(0))], ids=["state", "module"])
def test_paths_of_nnx_end_where_people_expect_them_to(params):
    assert leaf_names(params) == PATHS
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, routes={"*/kernel": "fused"})
    routes = grad_fn.explain(params, X).routes()
    assert routes == {path: "fused" if "kernel" in path else "leaf" for path in PATHS}


def test_selection_and_adapters_of_nnx_have_the_same_paths():
    trainable, _ = peft.partition(STATE, "*/bias")
    assert leaf_names(trainable) == ["layers/0/bias", "up/bias"]
    by_function, _ = peft.partition(STATE, peft.biases)
    assert leaf_names(by_function) == ["layers/0/bias", "up/bias"]
    lora = peft.lora(loss_fn, STATE, X, rank=1, match="*/kernel")
    assert sorted(lora.adapters) == ["layers/0/kernel", "up/kernel"]


def test_a_variable_that_holds_a_tree_keeps_the_rest_of_its_path():
    assert leaf_names({"w": nnx.Param({"value": X, "x": X})}) == ["w/value", "w/x"]
    assert leaf_names(nnx.Param(X)) == [""]


def test_linens_boxes_are_no_part_of_a_path():
    boxed = {"dense": {"kernel": linen.Partitioned(X, names=(None, "model"))}}
    assert leaf_names(boxed) == ["dense/kernel"]


def test_a_parameter_that_is_called_value_keeps_its_name():
    class Attention(eqx.Module):
        query: jax.Array
        value: jax.Array

    class Alone(eqx.Module):
        value: jax.Array

    tree = {"a": Attention(X, X), "b": Alone(X), "c": {"value": X}}
    assert leaf_names(tree) == ["a/query", "a/value", "b/value", "c/value"]


def test_flax_is_not_imported():
    code = (
        "import sys, numpy, bk_jax.api; from bk_jax.paths import leaf_names; "
        "assert leaf_names({'w': numpy.ones(1)}) == ['w']; "
        "assert not [name for name in sys.modules if name.startswith('flax')]"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


# --- what is no parameter ---


class Normalised(nnx.Module):
    """A layer of nnx with running statistics, a counter and a key."""

    def __init__(self, rngs: nnx.Rngs):
        self.dense = nnx.Linear(4, 2, rngs=rngs)
        self.norm = nnx.BatchNorm(2, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.dense(x)))


def refusal(params, **options):
    grad_fn = bk_jax.clipped_value_and_grad(lambda params, x: jnp.sum(x), **options)
    with pytest.raises(ValueError, match="no parameter") as info:
        grad_fn(params, X)
    return str(info.value)


WAY_OUT = (
    "graphdef, params, state = nnx.split(model, nnx.Param, ...), and in loss_fn "
    "model = nnx.merge(graphdef, params, state)."
)


@pytest.mark.parametrize("whole", [lambda model: model, nnx.state], ids=["module", "state"])
def test_statistics_of_nnx_are_not_noised_as_gradients(whole):
    text = refusal(whole(Normalised(nnx.Rngs(0))))
    assert "'norm/mean' (BatchStat), 'norm/var' (BatchStat)" in text
    assert text.endswith(WAY_OUT)
    assert "dropout" not in text  # whole numbers and keys have no gradient


def test_the_way_out_is_one():
    graphdef, params, state = nnx.split(Normalised(nnx.Rngs(0)), nnx.Param, ...)

    def loss_fn(params, x):
        model = nnx.merge(graphdef, params, state)
        model.eval()
        return jnp.sum(model(x))

    _, grads = jax.jit(bk_jax.dp_value_and_grad(loss_fn))(params, X, key=jax.random.key(0))
    assert leaf_names(grads) == ["dense/bias", "dense/kernel", "norm/bias", "norm/scale"]


def test_a_variable_of_ones_own_is_state_and_a_parameter_of_ones_own_is_not():
    class Average(nnx.Variable):
        pass

    class Weight(nnx.Param):
        pass

    assert "'1/average' (Average)" in refusal(
        (X, {"average": Average(X), "weight": Weight(X)}), argnums=0
    )
    grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(x @ w["w"][...]))
    assert grad_fn.explain({"w": Weight(X.T)}, X).routes() == {"w": "ghost"}


def test_state_is_found_in_every_differentiated_argument():
    model = Normalised(nnx.Rngs(0))
    grad_fn = bk_jax.clipped_value_and_grad(
        lambda params, model, x: jnp.sum(x), argnums=(0, 1), batch_argnums=2
    )
    with pytest.raises(ValueError, match="'1/norm/mean'"):
        grad_fn(X, model, X)
    with pytest.raises(ValueError, match="'1/norm/mean'"):
        grad_fn.explain(X, model, X)


def test_frozen_state_is_fine():
    trainable, frozen = peft.partition(nnx.state(Normalised(nnx.Rngs(0))), "dense/*")
    loss = peft.with_frozen(lambda state, x: jnp.sum(x @ state["dense"]["kernel"][...]))
    _, grads = jax.jit(bk_jax.clipped_value_and_grad(loss))(trainable, X, frozen=frozen)
    assert leaf_names(grads) == ["dense/bias", "dense/kernel"]


def test_statistics_of_linen_are_not_noised_as_gradients():
    class Model(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.BatchNorm(use_running_average=True)(linen.Dense(2)(x))

    variables = Model().init(jax.random.key(0), X)
    text = refusal(variables)
    assert "'batch_stats/BatchNorm_0/mean' (batch_stats)" in text
    assert text.endswith("variables['params'], and the other collections as another argument.")

    def loss_fn(params, x, others):
        return jnp.sum(Model().apply({"params": params, **others}, x))

    others = {"batch_stats": variables["batch_stats"]}
    explanation = bk_jax.clipped_value_and_grad(loss_fn).explain(variables["params"], X, others)
    assert explanation.routes()["Dense_0/kernel"] == "ghost"


def test_a_dictionary_with_one_of_linens_words_is_no_state_of_linen():
    for params in ({"params": X}, {"batch_stats": X, "w": X}):
        explanation = bk_jax.clipped_value_and_grad(lambda params, x: jnp.sum(x)).explain(params, X)
        assert set(explanation.routes().values()) == {"none"}


def test_training_refuses_before_a_step_is_paid_for(tmp_path):
    from bk_jax import privacy, training

    plan = privacy.PrivacyPlan(
        num_examples=3, batch_size=1, steps=1, delta=1e-3, noise_multiplier=1.0, max_batch_size=3
    )
    model = nnx.state(Normalised(nnx.Rngs(0)), (nnx.Param, nnx.BatchStat))
    with pytest.raises(ValueError, match="no parameter"):
        training.fit(
            lambda params, x: jnp.sum(x), model, X,
            plan=plan, optimizer=optax.sgd(0.1), directory=tmp_path, plot=False,
        )  # fmt: skip
    with privacy.open_ledger(tmp_path / "run.ledger", plan) as ledger:
        assert ledger.steps == 0


def test_bk_hlo_knows_which_argument_a_layer_of_nnx_is():
    """The program's argument is `params['up']['kernel'].value`, the layer `up/kernel`."""
    from bk_jax.hlo.arguments import _is_named
    from bk_jax.hlo.loading import load

    lowered = jax.jit(bk_jax.clipped_value_and_grad(loss_fn)).lower(STATE, X)
    (module, *_) = load(lowered.compile())
    names = [a.op_name for a in module.parameters if _is_named(a, "up/kernel")]
    assert [name.endswith("['up']['kernel'].value") for name in names] == [True]
