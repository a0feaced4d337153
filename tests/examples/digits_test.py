"""The demo: it runs, it shows what it promises, and its privacy statement is the accountant's."""

from __future__ import annotations

import io
import itertools
import re

import comparison
import digits
import digits_report
import dp_accounting
import jax
import numpy as np
import optax
import pytest
import rich.console

WIDTHS = (64, 24, 16, 10)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def params():
    return digits.init_params(jax.random.key(0), WIDTHS)


@pytest.fixture
def batch():
    train, _ = digits.load_data()
    return digits.poisson_batch(train, 16 / 1437, size=40, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A small run of the demo: what it printed, and where its plot is.

    The check for tracer leaks is off: it compiles every eager operation again at every step.
    """
    printed = io.StringIO()
    plot = tmp_path_factory.mktemp("demo") / "new folder" / "digits.png"
    small = ["--width=16", "--batch-size=64", "--epochs=0.2", "--rounds=1", "--seed=1"]
    with pytest.MonkeyPatch.context() as patch, jax.check_tracer_leaks(False):
        patch.setattr(digits_report, "console", rich.console.Console(file=printed, width=120))
        digits.main([*small, "--epsilon=2", "--delta=1e-4", f"--plot={plot}"])
    return printed.getvalue(), plot


def test_the_demo_prints_accuracy_and_privacy(demo):
    text, _ = demo
    private = re.search(r" private +\d+\.\d% +(\d+\.\d{3}) +0\.0001", text)
    assert private, text
    assert 1.99 < float(private[1]) <= 2.0
    assert re.search(r"not private +\d+\.\d% +∞", text), text


def test_the_demo_prints_times_and_ratios(demo):
    rows = re.findall(r"  (\w.*?) +\d+\.\d\d ms +(\d+\.\d\d)", demo[0])
    names = ["not private", "private", "private, before noise", "private, by vmap(grad)"]
    assert [name for name, _ in rows] == names
    assert rows[0][1] == "1.00"


def test_the_demo_saves_its_plot(demo):
    _, plot = demo
    assert plot.read_bytes().startswith(PNG)
    assert plot.stat().st_size > 10_000


@pytest.mark.native
def test_the_demo_names_its_custom_calls(demo):
    for target in ("bk_ghost_norm", "bk_clip_factor", "bk_clipped_gemm"):
        assert target in demo[0]


def test_epsilon_is_what_dp_accounting_says():
    mechanism = digits.Mechanism(probability=0.1, noise_multiplier=1.3)
    accountant = dp_accounting.pld.PLDAccountant()  # its finer default grid
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.3))
    exact = accountant.compose(step, 20).get_epsilon(1e-5)
    assert exact <= mechanism.epsilon(20, 1e-5) <= exact + 1e-3
    assert mechanism.epsilon(0, 1e-5) == 0


def test_calibrated_noise_spends_the_target_and_less_noise_spends_more():
    mechanism = digits.calibrate(0.2, steps=10, epsilon=1.5, delta=1e-5)
    assert 1.49 < mechanism.epsilon(10, 1e-5) <= 1.5
    weaker = digits.Mechanism(0.2, 0.99 * mechanism.noise_multiplier)
    assert weaker.epsilon(10, 1e-5) > 1.5


def test_without_noise_and_clipping_a_step_is_the_ordinary_one(params, batch):
    optimizer = optax.sgd(0.1)  # Adam would divide rounding errors by themselves
    state, key = (params, optimizer.init(params)), jax.random.key(0)
    private = digits.make_step(digits.private_grad(1e6, 0.0, 16), optimizer)
    plain = digits.make_step(digits.plain_grad(16), optimizer)
    ours, theirs = (jax.jit(step)(state, batch, key)[0] for step in (private, plain))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_private_step_is_the_one_by_vmap(params, batch):
    clip = {"clip_norm": 0.7, "noise_multiplier": 0.0, "normalize_by": 16}
    usual = jax.jit(lambda *args: comparison.vmap_grad(digits.mean_loss, *args, **clip))
    theirs = usual(params, *batch, jax.random.key(0))
    ours = jax.jit(digits.private_grad(0.7, 0.0, 16))(params, batch, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_no_array_of_per_example_weight_gradients(params, batch):
    step = digits.make_step(digits.private_grad(1.0, 1.0, 16), optax.adam(1e-3))
    state = (params, optax.adam(1e-3).init(params))
    text = jax.jit(step).lower(state, batch, jax.random.key(0)).compile().as_text()
    size = len(batch.is_padding)
    shapes = set(re.findall(r"\w+\[([\d,]+)\]", text))
    found = {tuple(int(n) for n in shape.split(",") if n != "1") for shape in shapes}
    for rows, columns in itertools.pairwise(WIDTHS):
        assert not found & {(size, rows, columns), (size, columns, rows), (size, rows * columns)}


def test_every_example_is_sampled_with_the_accounted_probability():
    train, _ = digits.load_data()
    rng = np.random.default_rng(0)
    counts = [
        np.sum(~digits.poisson_batch(train, 0.1, len(train.labels), rng).is_padding)
        for _ in range(200)
    ]
    mean, deviation = 0.1 * len(train.labels), np.sqrt(0.09 * len(train.labels))
    assert abs(np.mean(counts) - mean) < 4 * deviation / np.sqrt(len(counts))
    assert 0.8 < np.std(counts) / deviation < 1.2


def test_padding_is_zero_and_marked(batch):
    size = np.sum(~batch.is_padding)
    assert 0 < size < len(batch.is_padding)
    assert not np.any(batch.is_padding[:size])
    assert not np.any(batch.examples.images[size:])


def test_a_batch_that_does_not_fit_is_refused_and_not_cut():
    train, _ = digits.load_data()
    with pytest.raises(RuntimeError, match="examples where 3 fit"):
        digits.poisson_batch(train, 0.5, size=3, rng=np.random.default_rng(0))


@pytest.mark.parametrize("probability", [0.01, 0.178, 0.9, 1.0])
def test_the_padded_size_makes_that_practically_impossible(probability):
    size = digits.padded_size(1437, probability, steps=100)
    too_many = digits.scipy.stats.binom.sf(size, 1437, probability)
    assert too_many * 100 <= digits.OVERFULL_CHANCE
    assert size <= 1437
    assert size <= 1437 * probability + 12 * np.sqrt(1437 * probability) + 12


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        digits.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for option in ("--epsilon", "--delta", "--epochs", "--seed", "--plot", "--batch-size"):
        assert option in text
