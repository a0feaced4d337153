"""Fixed size, cyclic Poisson, balls in bins, least distance: who is drawn, and what it costs."""

import re

import dp_accounting
import jax
import numpy as np
import pytest

from bk_jax import mechanisms, privacy, sampling, training
from bk_jax.sampling.dealt import refuse_amplification

KEYS = list(jax.random.split(jax.random.key(0), 400))


def test_fixed_size_draws_every_subset_alike():
    sampler = sampling.FixedSizeSampler(6, 2)
    drawn = [tuple(sampler.indices(key)) for key in KEYS]
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(found) == 15
    assert all(a < b for a, b in drawn)
    chi_squared = np.sum((counts - 400 / 15) ** 2) / (400 / 15)
    assert chi_squared < 36  # 14 degrees of freedom: one in a thousand


def test_the_event_of_fixed_size_counts_a_replaced_record_twice():
    """With the whole data set in every batch it is a Gaussian whose sum moves by two clip norms."""

    def epsilon(event):
        relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        rdp = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
        return rdp.compose(event).get_epsilon(1e-5)

    whole = epsilon(sampling.FixedSizeSampler(10, 10).event(4.0, 3))
    pld = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    gaussians = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(4.0), 3)
    tight = pld.compose(gaussians).get_epsilon(1e-5)
    assert tight < whole < 1.15 * tight
    assert epsilon(sampling.FixedSizeSampler(100, 10).event(4.0, 3)) < whole / 2


def test_cyclic_poisson_stays_in_the_group_of_the_step():
    sampler = sampling.CyclicPoissonSampler(2000, 4, jax.random.key(3), 0.25)
    drawn = [sampler.at(step).indices(key) for step, key in enumerate(KEYS[:80])]
    for step, indices in enumerate(drawn):
        assert set(sampler.group[indices]) == {step % 4}
    assert abs(np.mean([len(d) for d in drawn]) - 125) < 5 * np.sqrt(125 / 80)
    assert not np.array_equal(drawn[0], drawn[4])
    again = sampling.CyclicPoissonSampler(2000, 4, jax.random.key(3), 0.25)
    np.testing.assert_array_equal(again.group, sampler.group)
    assert np.all(np.abs(np.bincount(sampler.group) - 500) < 5 * np.sqrt(500))
    assert sampler.participation(80) == mechanisms.CyclicPoisson(80, 4, 0.25)


def test_the_deal_shares_nothing_with_batches_of_the_same_key():
    """Otherwise a chance of 1/4 would be all of group 0."""
    sampler = sampling.CyclicPoissonSampler(2000, 4, KEYS[0], 0.25)
    assert abs(len(sampler.at(0).indices(KEYS[0])) - 125) < 5 * np.sqrt(125)


def test_balls_in_bins_takes_everybody_once_in_an_epoch():
    sampler = sampling.BallsInBins(300, 5, jax.random.key(1))
    for epoch in range(2):
        steps = range(5 * epoch, 5 * epoch + 5)
        drawn = np.concatenate([sampler.at(step).indices(KEYS[step]) for step in steps])
        np.testing.assert_array_equal(np.sort(drawn), np.arange(300))
    assert sampler.participation(10) == mechanisms.FixedEpochs(10, 5)


def test_who_took_part_rests():
    sampler = sampling.MinSeparationSampler(200, 3, 0.5)
    last, batches = sampler.init(), []
    for step, key in enumerate(KEYS[:30]):
        indices, last = sampler.indices(key, step, last)
        batches.append(set(indices.tolist()))
    for step in range(30):
        for gap in (1, 2):
            assert not batches[step] & (batches[step - gap] if step >= gap else set())
    assert any(batches[step] & batches[step - 3] for step in range(3, 30))
    assert sampler.participation(30) == mechanisms.MinSeparation(30, 3)


def test_the_loader_takes_them():
    data = np.arange(100)
    fixed = sampling.Loader(data, sampling.FixedSizeSampler(100, 8))
    batch = fixed.batch(KEYS[0])
    assert batch.examples.shape == (8,)
    assert not batch.is_padding_example.any()
    cyclic = sampling.CyclicPoissonSampler(100, 4, KEYS[1], 0.5)
    loader = sampling.Loader(data, cyclic.at(2), physical_batch_size=16)
    parts = list(loader.physical_batches(KEYS[2]))
    rows = np.concatenate([part.examples[~part.is_padding_example] for part in parts])
    np.testing.assert_array_equal(rows, cyclic.at(2).indices(KEYS[2]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sampling.FixedSizeSampler(5, 6), "batch_size 6 exceeds num_examples 5"),
        (
            lambda: sampling.FixedSizeSampler(5, 2).event(1.0, 3, "add_or_remove_one"),
            "accounted for with neighboring_relation='replace_one' alone",
        ),
        (
            lambda: sampling.BallsInBins(5, 2, KEYS[0]).participation(4, amplified=True),
            "no event of dp_accounting covers amplification by balls in bins",
        ),
        (
            lambda: sampling.MinSeparationSampler(5, 2, 0.5).participation(4, amplified=True),
            "amplification by sampling with a least distance",
        ),
        (lambda: sampling.MinSeparationSampler(5, 2, 1.5), "must be at most 1, got 1.5"),
        (
            lambda: sampling.BallsInBins(5, 0, KEYS[0]),
            "groups must be a whole number of at least 1",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_correlated_noise_has_no_plain_poisson_sampler():
    plan = privacy.CorrelatedPlan(
        noise=mechanisms.BandedInverse((1.0,)),
        participation=mechanisms.SingleParticipation(3),
        num_examples=10,
        batch_size=2,
        delta=1e-3,
        noise_multiplier=1.0,
    )
    with pytest.raises(TypeError, match="expects a PrivacyPlan, got CorrelatedPlan"):
        sampling.PoissonSampler.of(plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            sampling.FixedSizeSampler(10, 2),
            "no plan, and so no ledger, for FixedSizeSampler: it is",
        ),
        (
            sampling.MinSeparationSampler(10, 2, 0.5),
            "Use its participation(steps) in a CorrelatedPlan",
        ),
        (None, "a NoneType is no plan: pass a bk_jax.privacy.PrivacyPlan or CorrelatedPlan"),
    ],
)
def test_samplers_without_a_plan_say_what_to_use(tmp_path, plan, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        sampling.sampler_of(plan, KEYS[0])
    with pytest.raises(TypeError, match=re.escape(message)):
        training.fit(np.sum, 0.0, np.zeros(10), plan=plan, optimizer=None, directory=tmp_path)


def test_a_plan_by_hand_for_batches_with_a_least_distance(tmp_path):
    """Its ledger counts the steps; batches are the sampler's."""
    sampler, counted = sampling.MinSeparationSampler(40, 3, 0.5), 0
    plan = privacy.CorrelatedPlan(
        noise=mechanisms.BandedInverse((1.0,)), participation=sampler.participation(6),
        num_examples=40, batch_size=10, delta=1e-3, noise_multiplier=2.0,
    )  # fmt: skip
    last = sampler.init()
    with privacy.open_ledger(tmp_path / "run.ledger", plan) as ledger:
        for step in ledger:
            indices, last = sampler.indices(step.sampling_key, step.number, last)
            counted += len(indices)
        assert (ledger.steps, ledger.epsilon()) == (6, plan.epsilon())
    assert 0 < counted <= 80


def test_nothing_is_refused_that_needs_no_amplification():
    refuse_amplification("anything", amplified=False)
