"""Every event that bk_jax hands to an accountant, against a computation of epsilon of its own.

`CHECKS` has a line for every function of the package that makes an event; a new one without a line
fails. The computations use no event of dp_accounting: closed forms, moments by hand, and integrals.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from scipy import integrate, optimize, special

import bk_jax
from bk_jax import mechanisms, privacy, sampling

PACKAGE = Path(bk_jax.__file__).parent
DELTA = 1e-5
Z = 1.7  # the noise multiplier
STEPS, CHANCE = 12, 0.2


def of_event(event, relation="ADD_OR_REMOVE_ONE"):
    relation = dp_accounting.NeighboringRelation[relation]
    accountant = dp_accounting.pld.PLDAccountant(relation, value_discretization_interval=1e-3)
    return accountant.compose(event).get_epsilon(DELTA)


def gaussian_epsilon(mu):
    """Closed form: delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)."""

    def gap(epsilon):
        tail = math.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu))
        return special.ndtr(mu / 2 - epsilon / mu) - tail - DELTA

    return optimize.brentq(gap, 0, 200)


def sampled_moments(order, multiplier, chance):
    """The Renyi divergence of one sampled Gaussian, from its whole moments."""
    terms = [
        math.log(math.comb(order, k)) + (order - k) * math.log1p(-chance) + k * math.log(chance)
        + (k * k - k) / (2 * multiplier**2)
        for k in range(order + 1)
    ]  # fmt: skip
    return special.logsumexp(terms) / (order - 1)


def renyi_epsilon(multiplier, chance, steps, orders=range(2, 129)):
    """Whole orders, converted by Canonne, Kamath and Steinke's bound."""
    return min(
        steps * sampled_moments(a, multiplier, chance)
        + math.log1p(-1 / a)
        - math.log(DELTA * a) / (a - 1)
        for a in orders
    )


def sampled_epsilon(multiplier, chance, steps):
    """An integral: the privacy loss of one step on a fine grid, convolved `steps` times."""
    width, half = 2e-3, 1 << 13
    losses = (np.arange(2 * half) - half) * width

    def pmf(other_way):
        x = np.linspace(-14 * multiplier, 14 * multiplier + 1, 400_001)
        without = np.exp(-(x**2) / (2 * multiplier**2))
        ratio = chance * np.exp((2 * x - 1) / (2 * multiplier**2)) + 1 - chance
        density, loss = without * ratio, np.log(ratio)
        if other_way:
            density, loss = without, -loss
        place = np.clip(np.ceil(loss / width).astype(int) + half, 0, 2 * half - 1)
        return np.bincount(
            place, density / integrate.trapezoid(without, x) * (x[1] - x[0]), 2 * half
        )

    def epsilon(found):
        spectrum = np.fft.fft(np.roll(found, -half)) ** steps
        total = np.roll(np.maximum(np.fft.ifft(spectrum).real, 0), half)
        gap = lambda e: np.sum(np.where(losses > e, total * -np.expm1(e - losses), 0)) - DELTA  # noqa: E731
        return optimize.brentq(gap, 0, 10)

    return max(epsilon(pmf(way)) for way in (False, True))


def plan(**options):
    fields = {"num_examples": 1000, "batch_size": 1000 * CHANCE, "steps": STEPS, "delta": DELTA}
    fields |= {"noise_multiplier": Z, "pld_interval": 1e-3}
    return privacy.PrivacyPlan(**fields | options)


def correlated(participation):
    noise = mechanisms.BandedToeplitz.square_root(3)
    batch = 1000 * CHANCE if isinstance(participation, mechanisms.CyclicPoisson) else 250
    return privacy.CorrelatedPlan(
        noise=noise, participation=participation, num_examples=1000, batch_size=batch, delta=DELTA,
        noise_multiplier=Z, pld_interval=1e-3,
    )  # fmt: skip


def same(found, expected, rel=2e-3):
    assert found == pytest.approx(expected, rel=rel)


def check_poisson_plan():
    same(plan().epsilon(), sampled_epsilon(Z, CHANCE, STEPS), 1e-2)
    same(plan(accountant="rdp_whole").epsilon(), renyi_epsilon(Z, CHANCE, STEPS), 1e-6)
    assert (
        plan().epsilon()
        < plan(accountant="rdp").epsilon()
        <= renyi_epsilon(Z, CHANCE, STEPS) + 1e-9
    )


def check_truncated_plan():
    """Rows that are hardly ever cut cost what plain Poisson costs, or a little more."""
    cut = plan(max_batch_size=400).epsilon()
    plain = sampled_epsilon(Z, CHANCE, STEPS)
    assert plain * 0.99 < cut < plain * 1.05


def check_group_of_a_plan():
    """Two records of a full batch move the sum twice as far."""
    full = plan(batch_size=1000, steps=1, pld_interval=1e-2)
    same(full.epsilon(group_size=2), gaussian_epsilon(2 / Z), 1e-2)
    same(full.epsilon(group_size=1), gaussian_epsilon(1 / Z), 1e-2)


def check_correlated_plan():
    """The whole run is one Gaussian; its first steps have a smaller sensitivity."""
    for who in (mechanisms.SingleParticipation(STEPS), mechanisms.MinSeparation(STEPS, 4)):
        made = correlated(who)
        same(made.epsilon(), gaussian_epsilon(1 / Z))
        matrix = np.tril(np.asarray([[c(i - j) for j in range(STEPS)] for i in range(STEPS)]))
        taken = [0] if isinstance(who, mechanisms.SingleParticipation) else [0, 4, 8]
        whole = np.linalg.norm(matrix[:, taken].sum(axis=1))
        first = np.linalg.norm(matrix[:5, [j for j in taken if j < 5]].sum(axis=1))
        same(made.epsilon(5), gaussian_epsilon(first / whole / Z))


def c(distance):
    return (1.0, 0.5, 0.375)[distance] if 0 <= distance < 3 else 0.0


def check_release():
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: 0.0, noise_multiplier=Z)
    who = mechanisms.FixedEpochs(STEPS, 4)
    private = mechanisms.correlated(grad_fn, mechanisms.BandedInverse.square_root(3), who)
    same(of_event(private.event()), gaussian_epsilon(1 / Z))


def check_whole_run():
    for who in (
        mechanisms.SingleParticipation(9),
        mechanisms.MinSeparation(9, 3),
        mechanisms.FixedEpochs(9, 3),
    ):
        same(of_event(who.event(Z)), gaussian_epsilon(1 / Z))


def check_cyclic_poisson():
    """BandMF amplified: `ceil(steps / groups)` steps of a sampled Gaussian."""
    who = mechanisms.CyclicPoisson(steps=STEPS * 3 - 1, groups=3, sampling_probability=CHANCE)
    same(of_event(who.event(Z)), sampled_epsilon(Z, CHANCE, STEPS), 1e-2)
    sampler = sampling.CyclicPoissonSampler(1000, 3, bk_jax.random.key(0), CHANCE)
    assert sampler.participation(STEPS * 3 - 1) == who


def check_adaptive_clipping():
    """Gradient and count as one vector, in units of their own noise."""
    clip = mechanisms.AdaptiveClipping(batch_size=100, count_stddev=3.0, groups=2)
    mu = math.sqrt((1 / Z) ** 2 + 2 * (0.5 / 3.0) ** 2)
    same(of_event(clip.event(Z)), gaussian_epsilon(mu))


def check_grid():
    """Moments of the discrete Gaussian are summed in tests/mechanisms/grid_test.py."""
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: 0.0, noise_multiplier=Z)
    private = mechanisms.on_grid(grad_fn)
    epsilon = private.accountant().compose(private.event()).get_epsilon(DELTA)
    by_hand = min(
        a / (2 * Z**2) + math.log1p(-1 / a) - math.log(DELTA * a) / (a - 1) for a in range(2, 129)
    )
    same(epsilon, by_hand, 1e-9)
    assert epsilon > gaussian_epsilon(1 / Z)


def check_fixed_size():
    """Of whole batches nothing is sampled: replacing a record moves the sum by 2 clip norms."""
    whole = sampling.FixedSizeSampler(50, 50).event(Z, 1)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(range(2, 65), neighboring_relation=relation)
    epsilon = accountant.compose(whole).get_epsilon(DELTA)
    assert epsilon >= gaussian_epsilon(2 / Z)
    assert epsilon < 1.5 * gaussian_epsilon(2 / Z)


CHECKS = {
    "privacy/privacy_plan.py PrivacyPlan.event": check_poisson_plan,
    "privacy/accounting.py event": check_truncated_plan,
    "privacy/accounting.py _group_event": check_group_of_a_plan,
    "privacy/correlated_plan.py CorrelatedPlan.event": check_correlated_plan,
    "mechanisms/release.py CorrelatedRelease.event": check_release,
    "mechanisms/participation.py SingleParticipation.event": check_whole_run,
    "mechanisms/participation.py MinSeparation.event": check_whole_run,
    "mechanisms/participation.py CyclicPoisson.event": check_cyclic_poisson,
    "mechanisms/adaptive_clipping.py AdaptiveClipping.event": check_adaptive_clipping,
    "mechanisms/grid.py GridRelease.event": check_grid,
    "sampling/fixed_size.py FixedSizeSampler.event": check_fixed_size,
}


def makers():
    """Functions of the package whose name says that they make an event."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            inside = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            for each in inside:
                if isinstance(each, ast.FunctionDef) and each.name.rstrip("s").endswith("event"):
                    found.add(f"{path.relative_to(PACKAGE)} {prefix}{each.name}")
    return found


def uses():
    """Files that name an event of dp_accounting."""
    names = [path for path in PACKAGE.rglob("*.py") if "DpEvent(" in path.read_text()]
    return {str(path.relative_to(PACKAGE)) for path in names}


def test_every_event_has_a_check():
    assert makers() == set(CHECKS)


def test_no_event_is_made_elsewhere():
    assert uses() <= {name.split()[0] for name in CHECKS}


@pytest.mark.parametrize("check", dict.fromkeys(CHECKS.values()), ids=lambda check: check.__name__)
def test_epsilon_is_that_of_an_independent_computation(check):
    check()


def test_amplification_that_nobody_can_account_for_is_no_event():
    """What these samplings do have is `FixedEpochs` and `MinSeparation`, checked above."""
    key = bk_jax.random.key(0)
    dealt = sampling.BallsInBins(1000, 4, key)
    assert dealt.participation(STEPS) == mechanisms.FixedEpochs(STEPS, 4)
    with pytest.raises(ValueError, match="Leave amplified out"):
        dealt.participation(STEPS, amplified=True)
