"""`bk_jax.interop.jax_privacy` beside the package whose place it takes."""

import dataclasses
import inspect
import types
import warnings

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import pytest
from jax_privacy import clipping
from jax_privacy.experimental import execution_plan
from support.documents import ROOT, run_python

from bk_jax.interop import jax_privacy as interop

# jax_privacy calls it itself.
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated:DeprecationWarning")

B, D, P = 6, 4, 3
RNG = np.random.default_rng(0)
PARAMS = {
    "w": RNG.normal(size=(D, P)).astype(np.float32),
    "b": np.ones(P, np.float32),
}
X = (RNG.normal(size=(B, D)) * np.arange(1, B + 1)[:, None]).astype(np.float32)
Y = RNG.normal(size=(B, P)).astype(np.float32)
BATCH = {"x": X, "y": Y}


def loss_fn(params, batch):
    return jnp.mean((jnp.tanh(batch["x"] @ params["w"]) + params["b"] - batch["y"]) ** 2)


def loss_with_aux(params, batch):
    return loss_fn(params, batch), {"logits": batch["x"] @ params["w"], "mean": batch["x"].mean()}


def loss_of_two(params, x, y):
    return loss_fn(params, {"x": x, "y": y})


def loss_with_key(params, batch, key):
    mask = jax.random.bernoulli(key, 0.5, (D,))
    return loss_fn(params, {**batch, "x": batch["x"] * mask})


def loss_with_keywords(params, batch, *, weight):
    return weight["scale"] * loss_fn(params, batch)


def both(fun, *args, call=None, **options):
    """Ours and theirs, which must not have been used for ours."""
    options = {"l2_clip_norm": 0.7, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("error", interop.HandedOverWarning)
        ours = interop.clipped_grad(fun, **options)
        got = jax.jit(ours)(*args, **(call or {}))
    theirs = jax_privacy.clipped_grad(fun, **options)
    assert type(ours) is type(theirs)
    assert (ours.sensitivity(), ours.has_aux) == (theirs.sensitivity(), theirs.has_aux)
    return got, jax.jit(theirs)(*args, **(call or {}))


def assert_same(got, expected, rtol=1e-5):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


OPTIONS = {
    "plain": {},
    "loose": {"l2_clip_norm": 1e3},
    "inf": {"l2_clip_norm": np.inf},
    "unit norm": {"rescale_to_unit_norm": True},
    "unit norm of 0": {"rescale_to_unit_norm": True, "l2_clip_norm": 0.0},
    "unit norm of inf": {"rescale_to_unit_norm": True, "l2_clip_norm": np.inf},
    "divided": {"normalize_by": 8.0, "rescale_to_unit_norm": True},
    "microbatches": {"microbatch_size": 2, "return_values": True},
    "values": {"return_values": True},
    "norms": {"return_grad_norms": True},
    "both": {"return_values": True, "return_grad_norms": True},
    "float16": {"dtype": jnp.float16},
    "unsafe": {"nan_safe": False},
    "spmd": {"spmd_axis_name": "data"},
    "one leaf scaled": {"pre_clipping_transform": lambda g: {**g, "b": 3.0 * g["b"]}},
    "all leaves scaled": {"pre_clipping_transform": lambda g: jax.tree.map(lambda x: -x / 2, g)},
    "elements scaled": {"pre_clipping_transform": lambda g: {**g, "b": g["b"] * jnp.arange(3.0)}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_it_returns_what_jax_privacy_returns(name):
    rtol = 2e-3 if name == "float16" else 1e-5
    assert_same(*both(loss_fn, PARAMS, BATCH, **OPTIONS[name]), rtol=rtol)


def test_auxiliary_output():
    got, expected = both(loss_with_aux, PARAMS, BATCH, has_aux=True, return_values=True)
    assert isinstance(got[1], clipping.AuxiliaryOutput)
    assert got[1].aux["logits"].shape == (B, P)
    assert_same(got, expected)


def test_two_batch_arguments_and_two_trees_of_parameters():
    assert_same(*both(loss_of_two, PARAMS, X, Y, batch_argnums=(1, 2)))

    def of_parts(w, batch, b):
        return loss_fn({"w": w, "b": b}, batch)

    transform = lambda g: (g[0], g[1] * 2.0)  # noqa: E731
    options = {"argnums": (0, 2), "pre_clipping_transform": transform}
    assert_same(*both(of_parts, PARAMS["w"], BATCH, PARAMS["b"], **options))


def test_bare_examples():
    assert_same(*both(loss_fn, PARAMS, BATCH, keep_batch_dim=False))


def test_padding_counts_nothing():
    padding = {"is_padding_example": np.arange(B) >= 4}
    got, expected = both(loss_fn, PARAMS, BATCH, call=padding)
    assert_same(got, expected)
    few = jax.tree.map(lambda x: x[:4], BATCH)
    assert_same(got, interop.clipped_grad(loss_fn, l2_clip_norm=0.7)(PARAMS, few))


def test_each_example_has_the_same_key_as_there():
    assert_same(*both(loss_with_key, PARAMS, BATCH, jax.random.key(3), prng_argnum=2))


@pytest.mark.parametrize("keep", [True, False])
def test_keyword_arguments_have_a_row_for_each_example(keep):
    """As under `vmap`, which jax_privacy uses."""
    weight = {"scale": np.arange(B, dtype=np.float32)}
    got, expected = both(
        loss_with_keywords, PARAMS, BATCH, call={"weight": weight}, keep_batch_dim=keep
    )
    assert_same(got, expected)


def test_an_example_that_is_not_finite():
    """There the coordinates that are finite count; here the example counts 0. Both are bounded."""
    broken = {"x": X.copy(), "y": Y}
    broken["x"][1] = np.nan
    safe = interop.clipped_grad(loss_fn, l2_clip_norm=0.7)(PARAMS, broken)
    without = jax.tree.map(lambda x: np.delete(x, 1, 0), BATCH)
    assert_same(safe, interop.clipped_grad(loss_fn, l2_clip_norm=0.7)(PARAMS, without))
    unsafe, theirs = both(loss_fn, PARAMS, broken, nan_safe=False)
    assert all(np.isnan(x).all() for x in jax.tree.leaves(unsafe))
    assert all(np.isnan(x).any() for x in jax.tree.leaves(theirs))


# --- what is handed over ---


def test_a_transform_that_is_no_scale_is_handed_over():
    def sign(grads):
        return jax.tree.map(jnp.sign, grads)

    ours = interop.clipped_grad(loss_fn, l2_clip_norm=0.7, pre_clipping_transform=sign)
    with pytest.warns(
        interop.HandedOverWarning, match="does more than multiply the leaves"
    ) as seen:
        got = jax.jit(ours)(PARAMS, BATCH, is_padding_example=np.zeros(B, bool))
    assert [w.category for w in seen].count(interop.HandedOverWarning) == 1
    theirs = jax_privacy.clipped_grad(loss_fn, l2_clip_norm=0.7, pre_clipping_transform=sign)
    assert_same(got, jax.jit(theirs)(PARAMS, BATCH))


def test_norms_before_a_transform_are_handed_over():
    options = {"pre_clipping_transform": lambda g: jax.tree.map(jnp.negative, g)}
    options |= {"return_grad_norms": True, "l2_clip_norm": 0.7}
    with pytest.warns(interop.HandedOverWarning, match="are norms before pre_clipping_transform"):
        got = interop.clipped_grad(loss_fn, **options)(PARAMS, BATCH)
    assert_same(got, jax_privacy.clipped_grad(loss_fn, **options)(PARAMS, BATCH))


def test_a_tree_of_keys_is_handed_over():
    def loss(params, batch, keys):
        return loss_with_key(params, batch, keys["dropout"])

    args = (PARAMS, BATCH, {"dropout": jax.random.key(0)})
    options = {"l2_clip_norm": 0.7, "prng_argnum": 2}
    with pytest.warns(interop.HandedOverWarning, match="prng_argnum names a tree of keys"):
        got = interop.clipped_grad(loss, **options)(*args)
    assert_same(got, jax_privacy.clipped_grad(loss, **options)(*args))


def test_an_option_that_only_they_have_is_handed_over():
    with (
        pytest.warns(interop.HandedOverWarning, match="it has no option grid_scale"),
        pytest.raises(TypeError, match="grid_scale"),  # which came after the version that is tested
    ):
        interop.clipped_grad(loss_fn, l2_clip_norm=1.0, grid_scale=4)


def test_an_option_of_later_versions_that_asks_for_nothing_is_ours():
    """Their next version has `grid_scale=None` among its defaults."""
    assert_same(
        interop.clipped_grad(loss_fn, l2_clip_norm=0.7, grid_scale=None)(PARAMS, BATCH),
        interop.clipped_grad(loss_fn, l2_clip_norm=0.7)(PARAMS, BATCH),
    )


def test_clip_norms_by_group():
    by_group = {"l2_clip_norm": {"w": 3.0, "b": 4.0}}
    assert interop.clipped_grad(loss_fn, **by_group).sensitivity() == 5.0
    with (
        pytest.warns(interop.HandedOverWarning, match="of clip norms by group"),
        pytest.raises(TypeError),  # as it came after this version, too
    ):
        interop.clipped_grad(loss_fn, **by_group, return_grad_norms=True)(PARAMS, BATCH)


def test_options_of_bk_jax_are_taken():
    ours = interop.clipped_grad(loss_fn, l2_clip_norm=0.7, routes={"w": "store"})
    theirs = jax_privacy.clipped_grad(loss_fn, l2_clip_norm=0.7)
    assert_same(ours(PARAMS, BATCH), theirs(PARAMS, BATCH))


def test_no_batch_argument_is_an_error():
    with pytest.raises(ValueError, match=r"batch_argnums must name the argument\(s\) with a row"):
        interop.clipped_grad(loss_fn, l2_clip_norm=1.0, batch_argnums=())


# --- plans ---


CONFIG = execution_plan.BandMFExecutionPlanConfig(
    iterations=6, strategy=np.asarray([1.0, 0.5]), epsilon=None, delta=None, noise_multiplier=1.0,
    l2_clip_norm=0.7, normalize_by=4.0, sampling_prob=0.8, noise_seed=1,
)  # fmt: skip


def train(plan):
    """Six steps of a plan with correlated noise, with batches as the plan draws them."""
    grad_fn = jax.jit(plan.clipped_grad(loss_fn))
    params = jax.tree.map(jnp.asarray, PARAMS)
    noise = plan.noise_addition_transform
    state = noise.init(params)
    batches = plan.batch_selection_strategy.batch_iterator(B, rng=0)
    for indices in batches:
        padding = np.arange(B) >= len(indices)
        chosen = np.concatenate([indices, np.zeros(B - len(indices), int)]).astype(int)
        batch = jax.tree.map(lambda x, chosen=chosen: x[chosen], BATCH)
        noisy, state = noise.update(grad_fn(params, batch, is_padding_example=padding), state)
        params = jax.tree.map(lambda w, g: w - 0.1 * g, params, noisy)
    return params


def test_banded_matrix_factorization_runs_on_our_gradients():
    plan = interop.with_gradients_of_bk_jax(CONFIG.plan, CONFIG)
    assert plan.dp_event == CONFIG.plan.dp_event
    assert_same(train(plan), train(CONFIG.plan))


def test_a_plan_with_other_noise_is_refused():
    other = dataclasses.replace(CONFIG, normalize_by=2.0)
    with pytest.raises(ValueError, match=r"for a sensitivity of 0\.25, but gradients with .* 0\.5"):
        interop.with_gradients_of_bk_jax(CONFIG.plan, other)


# --- the trainer, of a later version (jax_privacy_trainer_test.py) ---


@dataclasses.dataclass(frozen=True)
class ConfigOfTheTrainer:
    """What its configurations have in common: `make` takes flags, and there is no seed."""

    l2_clip_norm: float = 0.7
    normalize_by: float = 4.0
    rescale_to_unit_norm: bool = True

    def make(self, flags):
        return dataclasses.replace(CONFIG, noise_seed=flags.noise_seed).plan


def flags(**changed):
    names = {"dtype": None, "microbatch_size": None, "spmd_axis_name": None, "noise_seed": 1}
    return types.SimpleNamespace(**{**names, "keep_batch_dim": True, **changed})


def test_a_configuration_for_the_trainer():
    plan = interop.GradientsOfBkJax(ConfigOfTheTrainer()).make(flags())
    assert plan.clipped_grad.func is interop.clipped_grad
    assert_same(train(plan), train(CONFIG.plan))


def test_flags_and_options_reach_the_gradient():
    config = interop.GradientsOfBkJax(ConfigOfTheTrainer(), {"method": "bk"})
    grad_fn = config.make(flags(microbatch_size=2, dtype=jnp.float16)).clipped_grad
    got = {name: grad_fn.keywords[name] for name in ("microbatch_size", "dtype", "method")}
    assert got == {"microbatch_size": 2, "dtype": jnp.float16, "method": "bk"}
    assert jax.tree.leaves(grad_fn(loss_fn)(PARAMS, BATCH))[0].dtype == jnp.float16


def test_a_configuration_with_other_noise_is_refused():
    config = interop.GradientsOfBkJax(ConfigOfTheTrainer(normalize_by=2.0))
    with pytest.raises(ValueError, match="the noise of this plan is for a sensitivity of"):
        config.make(flags())


# --- the public API that all of this rests on ---


def test_the_signature_is_theirs():
    ours, theirs = (
        inspect.signature(f).parameters for f in (interop.clipped_grad, jax_privacy.clipped_grad)
    )
    assert [*ours] == [*theirs, "options"]
    for name in theirs.keys() - {"pre_clipping_transform"}:
        assert (ours[name].default, ours[name].kind) == (theirs[name].default, theirs[name].kind)


def test_the_types_are_as_expected():
    assert jax_privacy.__version__ == "2.0.0"
    assert clipping.AuxiliaryOutput._fields == ("values", "grad_norms", "aux")
    fields = [f.name for f in dataclasses.fields(clipping.BoundedSensitivityCallable)]
    assert fields == ["fun", "l2_norm_bound", "has_aux"]
    fields = [f.name for f in dataclasses.fields(execution_plan.DPExecutionPlan)]
    assert fields[0] == "clipped_grad"


def test_the_lines_of_the_page_run():
    assert run_python(ROOT / "docs" / "jax_privacy.md") == 2
