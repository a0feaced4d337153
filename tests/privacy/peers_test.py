"""The noise multiplier is the one that jax_privacy and Opacus find for the same setting, to 1 %.

The numbers were made with jax_privacy 2.0.0 and Opacus 1.6.0 (torch 2.15.0, dp-accounting 0.6.0):

    jax_privacy.accounting.calibrate.calibrate_noise_multiplier(
        target_epsilon=epsilon, accountant=DpsgdTrainingAccountant(dp_accountant_config=config),
        batch_sizes=batch_size, num_updates=steps, num_samples=num_examples, target_delta=delta,
        truncated_batch_size=max_batch_size, initial_min_noise=0.4, tol=1e-3)
    opacus.accountants.utils.get_noise_multiplier(
        target_epsilon=epsilon, target_delta=delta, sample_rate=batch_size / num_examples,
        steps=steps, accountant=accountant, epsilon_tolerance=0.001)

with PldAccountantConfig() or RdpAccountantConfig(), and with "prv" or "rdp". Opacus has no truncation.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from bk_jax import privacy


class Setting(NamedTuple):
    num_examples: int
    batch_size: int
    steps: int
    epsilon: float
    delta: float
    max_batch_size: int | None = None

    def plan(self, noise_multiplier, accountant):
        return privacy.PrivacyPlan(
            num_examples=self.num_examples,
            batch_size=self.batch_size,
            steps=self.steps,
            delta=self.delta,
            noise_multiplier=noise_multiplier,
            max_batch_size=self.max_batch_size,
            accountant=accountant,
            pld_interval=5e-4,
        )

    def calibrated(self, accountant):
        return privacy.plan(
            target_epsilon=self.epsilon,
            delta=self.delta,
            num_examples=self.num_examples,
            batch_size=self.batch_size,
            steps=self.steps,
            max_batch_size=self.max_batch_size,
            accountant=accountant,
        )


MNIST = Setting(60_000, 256, 1000, 1.0, 1e-5)
CIFAR = Setting(50_000, 1024, 500, 3.0, 1e-6)
TABLE = Setting(1000, 100, 100, 8.0, 1e-4)
WHOLE = Setting(2000, 2000, 50, 2.0, 1e-5)
CUT = Setting(1000, 50, 200, 2.0, 1e-4, 64)

# setting: jax_privacy with PLD, with RDP, Opacus with PRV, with RDP
PEERS = {
    MNIST: (0.88328, 1.03954, 0.88562, 1.04187),
    CIFAR: (1.04701, 1.10351, 1.04782, 1.10275),
    TABLE: (0.86238, 0.92491, 0.86216, 0.92178),
    WHOLE: (14.09840, 15.20073, 14.16504, 15.20020),
    CUT: (1.78524, None, None, None),
}


@pytest.mark.parametrize("setting", [CIFAR, TABLE, WHOLE, CUT])
def test_calibrated_noise_is_that_of_the_peers(setting):
    jax_privacy, _, opacus, _ = PEERS[setting]
    ours = setting.calibrated("pld").noise_multiplier
    assert ours == pytest.approx(jax_privacy, rel=0.01)
    assert opacus is None or ours == pytest.approx(opacus, rel=0.01)


def within_one_percent(setting, noise_multiplier, accountant):
    """Epsilon falls with the noise, so a target in between puts our noise within 1 % of theirs."""
    more, less = (setting.plan(noise_multiplier * c, accountant).epsilon() for c in (1.01, 0.99))
    return more <= setting.epsilon <= less


@pytest.mark.parametrize("peer", [0, 2], ids=["jax_privacy", "opacus"])
def test_the_slow_setting_brackets_the_noise_of_the_peers(peer):
    assert within_one_percent(MNIST, PEERS[MNIST][peer], "pld")


@pytest.mark.parametrize("peer", [1, 3], ids=["jax_privacy", "opacus"])
@pytest.mark.parametrize("setting", [MNIST, WHOLE])
def test_renyi_accounting_brackets_the_noise_of_the_peers(setting, peer):
    assert within_one_percent(setting, PEERS[setting][peer], "rdp")
