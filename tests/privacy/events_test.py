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
from scipy import optimize, special, stats

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
    """Poisson sampling: the Renyi divergence of one sampled Gaussian, from its whole moments."""
    terms = [
        math.log(math.comb(order, k)) + (order - k) * math.log1p(-chance) + k * math.log(chance)
        + (k * k - k) / (2 * multiplier**2)
        for k in range(order + 1)
    ]  # fmt: skip
    return special.logsumexp(terms) / (order - 1)


def renyi_epsilon(multiplier, chance, steps, orders=range(2, 129), moments=sampled_moments):
    """Whole orders, converted by Canonne, Kamath and Steinke's bound."""
    return min(
        steps * moments(a, multiplier, chance) + math.log1p(-1 / a) - math.log(DELTA * a) / (a - 1)
        for a in orders
    )


WIDTH, HALF = 2e-3, 1 << 14  # of the grid of privacy losses


def log_density(x, multiplier, moves):
    """Of a Gaussian that is moved by k with the probability `moves[k]`; not normalized."""
    parts = [math.log(chance) - (x - k) ** 2 / (2 * multiplier**2) for k, chance in moves.items()]
    return special.logsumexp(parts, axis=0)


def losses(multiplier, moves, others):
    """The privacy loss of one step on a grid, rounded up, where the sum is moved by `moves`."""
    reach = 14 * multiplier + max(map(abs, [*moves, *others]))
    x = np.linspace(-reach, reach, 400_001)
    density = log_density(x, multiplier, moves)
    loss = density - log_density(x, multiplier, others)
    place = np.clip(np.ceil(loss / WIDTH).astype(int) + HALF, 0, 2 * HALF - 1)
    chance = (x[1] - x[0]) / (multiplier * math.sqrt(2 * math.pi)) * np.exp(density)
    return np.bincount(place, chance, 2 * HALF)


def composed_epsilon(found, steps):
    """Losses of one step convolved `steps` times, and where their excess is delta."""
    grid = (np.arange(2 * HALF) - HALF) * WIDTH
    spectrum = np.fft.fft(np.roll(found, -HALF)) ** steps
    total = np.roll(np.maximum(np.fft.ifft(spectrum).real, 0), HALF)
    return optimize.brentq(
        lambda e: np.sum(np.where(grid > e, total * -np.expm1(e - grid), 0)) - DELTA, 0, 20
    )


def moved_epsilon(multiplier, moves, steps, others=None):
    """Both ways: with a record or group of records, and without it, or with another one."""
    ways = [(moves, others or {0: 1.0}), (others or {0: 1.0}, moves)]
    return max(composed_epsilon(losses(multiplier, *way), steps) for way in ways)


def sampled_epsilon(multiplier, chance, steps):
    """Poisson sampling: a record moves the sum by 1, or not at all."""
    return moved_epsilon(multiplier, {0: 1 - chance, 1: chance}, steps)


def subset_moments(order, multiplier, chance):
    """Wang, Balle and Kasiviswanathan 2019, theorem 27: fixed-size subsets, one record replaced.

    For even `l`, their ternary divergences are the moments `E (p / q - 1)^l` under `q`, here integrals.
    """
    x = np.linspace(-12 * multiplier, order + 12 * multiplier, 40_001)
    step = math.log(x[1] - x[0]) - math.log(multiplier * math.sqrt(2 * math.pi))
    ratio = (2 * x - 1) / (2 * multiplier**2)
    excess = np.maximum(ratio, 0) + np.log(-np.expm1(-np.abs(ratio)) + 1e-300)

    def even(power):
        return special.logsumexp(step - x**2 / (2 * multiplier**2) + power * excess)

    terms = [0.0]
    for k in range(2, order + 1):
        twice = math.log(2) + (k * k - k) / (2 * multiplier**2)
        least = math.log(4) + (even(k // 2 * 2) + even((k + 1) // 2 * 2)) / 2
        terms.append(k * math.log(chance) + math.log(math.comb(order, k)) + min(least, twice))
    return special.logsumexp(terms) / (order - 1)


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


def check_plan_that_cuts():
    """A batch is full without the record in one step of six; then the record takes another's place.

    Who sees which steps those are has the loss of a sampled Gaussian in the others. In these the sum
    moves by 2, with the chance that the record is taken; dp_accounting counts both the record and
    the one in its place as if they moved it so.
    """
    others, limit = 999, 213
    chances = stats.binom.pmf(np.arange(others + 1), others, CHANCE)
    full = chances[limit:].sum()
    kept = CHANCE * limit / np.arange(limit + 1, others + 2)  # with so many in the sample, and it
    taken = np.sum(chances[limit:] * kept) / full
    assert 0.1 < full < 0.2
    sampled, nothing = {0: 1 - CHANCE, 1: CHANCE}, {0: 1.0}
    there, elsewhere = {0: 1 - taken, 2: taken}, {0: 1 - taken, -2: taken}

    def epsilon(cut):
        ways = [(0, 1), (1, 0)]
        plain = [losses(Z, *((sampled, nothing)[i] for i in way)) for way in ways]
        moved = [losses(Z, *(cut[i] for i in way)) for way in ways]
        mixed = [(1 - full) * a + full * b for a, b in zip(plain, moved, strict=True)]
        return max(composed_epsilon(each, STEPS) for each in mixed)

    found = plan(max_batch_size=limit).epsilon()
    same(found, epsilon((there, elsewhere)), 1e-2)
    assert found > epsilon((there, nothing)) > 1.05 * sampled_epsilon(Z, CHANCE, STEPS)


def check_group_of_a_plan():
    """Two records of a full batch move the sum twice as far."""
    full = plan(batch_size=1000, steps=1, pld_interval=1e-2)
    same(full.epsilon(group_size=2), gaussian_epsilon(2 / Z), 1e-2)
    same(full.epsilon(group_size=1), gaussian_epsilon(1 / Z), 1e-2)


def check_sampled_group():
    """Of two records, each sampled or not, so many are in a batch."""
    moves = {0: (1 - CHANCE) ** 2, 1: 2 * CHANCE * (1 - CHANCE), 2: CHANCE**2}
    expected = moved_epsilon(Z, moves, STEPS)
    same(plan(pld_interval=5e-3).epsilon(group_size=2), expected, 1e-2)
    assert expected > 1.5 * sampled_epsilon(Z, CHANCE, STEPS)


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


def check_sampled_subsets():
    """The event is the known bound, and no less than what one pair of records costs exactly.

    Theorem 27 has noise in units of how far the sum moves, which is 2 clip norms.
    """
    orders = range(2, 33)
    event = sampling.FixedSizeSampler(50, 10).event(Z, STEPS)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(orders, neighboring_relation=relation)
    epsilon = accountant.compose(event).get_epsilon(DELTA)
    same(epsilon, renyi_epsilon(Z / 2, 10 / 50, STEPS, orders, subset_moments), 1e-4)
    pair = {0: 1 - 10 / 50, 1: 10 / 50}, {0: 1 - 10 / 50, -1: 10 / 50}
    exact = moved_epsilon(Z, pair[0], STEPS, pair[1])
    assert exact < epsilon
    whole = sampling.FixedSizeSampler(50, 50).event(Z, STEPS)
    unsampled = dp_accounting.rdp.RdpAccountant(orders, neighboring_relation=relation)
    assert epsilon < unsampled.compose(whole).get_epsilon(DELTA)


CHECKS = {
    "privacy/privacy_plan.py PrivacyPlan.event": check_poisson_plan,
    "privacy/accounting.py event": (check_truncated_plan, check_plan_that_cuts),
    "privacy/accounting.py _group_event": (check_group_of_a_plan, check_sampled_group),
    "privacy/correlated_plan.py CorrelatedPlan.event": check_correlated_plan,
    "mechanisms/release.py CorrelatedRelease.event": check_release,
    "mechanisms/participation.py SingleParticipation.event": check_whole_run,
    "mechanisms/participation.py MinSeparation.event": check_whole_run,
    "mechanisms/participation.py CyclicPoisson.event": check_cyclic_poisson,
    "mechanisms/adaptive_clipping.py AdaptiveClipping.event": check_adaptive_clipping,
    "mechanisms/grid.py GridRelease.event": check_grid,
    "sampling/fixed_size.py FixedSizeSampler.event": (check_fixed_size, check_sampled_subsets),
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


def every_check():
    """Each once."""
    lists = [checks if isinstance(checks, tuple) else (checks,) for checks in CHECKS.values()]
    return dict.fromkeys(check for checks in lists for check in checks)


@pytest.mark.parametrize("check", every_check(), ids=lambda check: check.__name__)
def test_epsilon_is_that_of_an_independent_computation(check):
    check()


def test_amplification_that_nobody_can_account_for_is_no_event():
    """What these samplings do have is `FixedEpochs` and `MinSeparation`, checked above."""
    key = bk_jax.random.key(0)
    dealt = sampling.BallsInBins(1000, 4, key)
    assert dealt.participation(STEPS) == mechanisms.FixedEpochs(STEPS, 4)
    with pytest.raises(ValueError, match="Leave amplified out"):
        dealt.participation(STEPS, amplified=True)
