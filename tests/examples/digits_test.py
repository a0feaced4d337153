"""The demo: it runs, it shows what it promises, and its privacy statement is the accountant's."""

from __future__ import annotations

import dataclasses
import io
import itertools
import re

import digits
import digits_report
import dp_accounting
import jax
import numpy as np
import optax
import pytest
import rich.console
import scipy.stats

from bk_jax import random, sampling

WIDTHS = (64, 24, 16, 10)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def params():
    return digits.init_params(jax.random.key(0), WIDTHS)


@pytest.fixture
def batch():
    train, _ = digits.load_data()
    sampler = sampling.PoissonSampler(1437, batch_size=16, max_batch_size=40)
    return sampling.Loader(train, sampler).batch(random.key(0))


def options(clip_norm, noise_multiplier):
    return {"l2_clip_norm": clip_norm, "noise_multiplier": noise_multiplier, "normalize_by": 16}


def task_for(*options):
    return digits.make_task(digits.parse_args(options), random.key(1))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A small run of the demo: what it printed, and where its plot is."""
    printed = io.StringIO()
    plot = tmp_path_factory.mktemp("demo") / "new folder" / "digits.png"
    small = ["--width=16", "--batch-size=64", "--epochs=0.2", "--rounds=1", "--seed=1"]
    with pytest.MonkeyPatch.context() as patch:
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


def test_epsilon_is_what_dp_accounting_says_of_the_demos_batches():
    plan = task_for("--epsilon=2", "--epochs=4", "--batch-size=144").plan
    step = dp_accounting.TruncatedSubsampledGaussianDpEvent(
        dataset_size=1437,
        sampling_probability=144 / 1437,
        truncated_batch_size=plan.max_batch_size,
        noise_multiplier=plan.noise_multiplier,
    )
    accountant = dp_accounting.pld.PLDAccountant()  # on its own grid, which is finer
    exact = accountant.compose(step, 40).get_epsilon(1e-5)
    assert plan.steps == 40
    assert exact <= plan.epsilon() <= exact * (1 + 1e-3)
    assert plan.epsilon(0) == 0


def test_calibrated_noise_spends_the_target_and_less_noise_spends_more():
    plan = task_for("--epsilon=1.5", "--epochs=2").plan
    assert 1.49 < plan.epsilon() <= 1.5
    weaker = dataclasses.replace(plan, noise_multiplier=0.99 * plan.noise_multiplier)
    assert weaker.epsilon() > 1.5


def test_the_options_reach_the_plan():
    plan = task_for("--clip-norm=0.5", "--delta=1e-4", "--batch-size=479", "--epochs=7").plan
    found = (plan.num_examples, plan.batch_size, plan.steps, plan.delta, plan.l2_clip_norm)
    assert found == (1437, 479, 21, 1e-4, 0.5)


def test_both_runs_take_every_step_of_the_plan_on_the_same_batches():
    task = task_for("--epochs=0.5")
    state = (digits.init_params(random.key(0), (64, 10)), None)

    def record(seen):
        def step(state, batch, key):
            seen.append((batch.examples.labels.tolist(), jax.random.key_data(key).tolist()))
            return state

        return step

    runs = [], []
    for seen in runs:
        points = list(digits.fit(task, record(seen), state, float))
        assert [point.epsilon for point in points] == list(range(task.plan.steps + 1))
    assert runs[0] == runs[1]
    for column in zip(*runs[0], strict=True):  # no batch and no key comes twice
        assert len({tuple(values) for values in column}) == task.plan.steps == 3


def test_without_noise_and_clipping_a_step_is_the_ordinary_one(params, batch):
    optimizer = optax.sgd(0.1)  # Adam would divide rounding errors by themselves
    state, key = (params, optimizer.init(params)), jax.random.key(0)
    private = digits.make_step(digits.private_grad(**options(1e6, 0.0)), optimizer)
    plain = digits.make_step(digits.plain_grad(16), optimizer)
    ours, theirs = (jax.jit(step)(state, batch, key)[0] for step in (private, plain))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_private_step_is_the_one_by_vmap(params, batch):
    theirs = jax.jit(digits.vmap_grad(**options(0.7, 0.0)))(params, batch, jax.random.key(0))
    ours = jax.jit(digits.private_grad(**options(0.7, 0.0)))(params, batch, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_no_array_of_per_example_weight_gradients(params, batch):
    step = digits.make_step(digits.private_grad(**options(1.0, 1.0)), optax.adam(1e-3))
    state = (params, optax.adam(1e-3).init(params))
    text = jax.jit(step).lower(state, batch, jax.random.key(0)).compile().as_text()
    size = len(batch.is_padding_example)
    shapes = set(re.findall(r"\w+\[([\d,]+)\]", text))
    found = {tuple(int(n) for n in shape.split(",") if n != "1") for shape in shapes}
    for rows, columns in itertools.pairwise(WIDTHS):
        assert not found & {(size, rows, columns), (size, columns, rows), (size, rows * columns)}


def test_every_example_is_sampled_with_the_accounted_probability():
    task = task_for("--batch-size=144", "--epochs=1")
    batches = [task.loader.batch(random.key(seed)) for seed in range(200)]
    counts = [np.sum(~batch.is_padding_example) for batch in batches]
    chance = task.plan.sampling_probability
    assert chance == 144 / 1437
    mean, deviation = 1437 * chance, np.sqrt(1437 * chance * (1 - chance))
    assert abs(np.mean(counts) - mean) < 4 * deviation / np.sqrt(len(counts))
    assert 0.8 < np.std(counts) / deviation < 1.2


def test_padding_is_zero_and_marked(batch):
    size = np.sum(~batch.is_padding_example)
    assert 0 < size < len(batch.is_padding_example)
    assert not np.any(batch.is_padding_example[:size])
    assert not np.any(batch.examples.images[size:])


def test_the_padded_size_is_part_of_what_is_accounted_for():
    task = task_for("--batch-size=16", "--epochs=0.1")
    size = task.plan.max_batch_size
    assert task.plan.sampling == "truncated poisson"
    assert task.loader.batch(random.key(0)).examples.images.shape == (size, 64)


@pytest.mark.parametrize("batch_size", [14, 256, 1293, 1437])
def test_the_padded_size_makes_a_cut_batch_practically_impossible(batch_size):
    probability = batch_size / 1437
    plan = task_for(f"--batch-size={batch_size}", f"--epochs={100 * probability}").plan
    too_many = scipy.stats.binom.sf(plan.max_batch_size, 1437, probability)
    assert plan.steps == 100
    assert too_many * 100 <= 1e-3 * plan.delta
    assert plan.max_batch_size <= 1437
    assert plan.max_batch_size <= batch_size + 12 * np.sqrt(batch_size) + 12


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        digits.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for option in ("--epsilon", "--delta", "--epochs", "--seed", "--plot", "--batch-size"):
        assert option in text
