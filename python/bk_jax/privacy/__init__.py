"""Privacy: from a budget to a noise multiplier, and a record of what has been spent.

    plan = privacy.plan(target_epsilon=3, delta=1e-6, num_examples=50_000, batch_size=256, epochs=10)
    grad_fn = bk_jax.dp_value_and_grad(loss_fn, **plan.options())
    with privacy.open_ledger("run.ledger", plan) as ledger:
        for step in ledger: ...

All accounting is done by `dp_accounting` (`pip install "bk_jax[train]"`); bk_jax has no accountant.
"""

from bk_jax.privacy.calibration import plan, plan_correlated
from bk_jax.privacy.correlated_plan import CorrelatedPlan
from bk_jax.privacy.ledger import Ledger, Step, open_ledger
from bk_jax.privacy.privacy_plan import PrivacyPlan
from bk_jax.privacy.privatizer import GaussianState, gaussian_privatizer
from bk_jax.privacy.record import LedgerError
from bk_jax.privacy.shared import SharedLedger, open_shared_ledger

__all__ = [
    "CorrelatedPlan",
    "GaussianState",
    "Ledger",
    "LedgerError",
    "PrivacyPlan",
    "SharedLedger",
    "Step",
    "gaussian_privatizer",
    "open_ledger",
    "open_shared_ledger",
    "plan",
    "plan_correlated",
]
