"""Audit: does a private gradient keep its promises?

| function | finds |
|---|---|
| `assert_sensitivity` | an example that moves the result too far, padding that counts, wrong noise |
| `empirical_epsilon` | a lower bound of epsilon, by telling runs with a canary from runs without |
| `one_run_epsilon` | the same from one run with many canaries, each in or out by a coin flip |
| `one_run_mu` | the same as Gaussian privacy, from one run (f-DP) |
| `mu_lower_bound`, `estimated_mu` | the same as Gaussian privacy, by a bound or by the bootstrap |

A passed audit is not a proof: it sees only the data, keys and trials that it was given.
"""

from bk_jax.audit.empirical import canary_statistic, empirical_epsilon, epsilon_lower_bound
from bk_jax.audit.gaussian import estimated_mu, gaussian_epsilon, mu_lower_bound
from bk_jax.audit.one_run import guesses_epsilon, one_run_epsilon
from bk_jax.audit.one_run_gaussian import one_run_mu
from bk_jax.audit.sensitivity import Report, assert_sensitivity
from bk_jax.audit.subject import AuditError

__all__ = [
    "AuditError",
    "Report",
    "assert_sensitivity",
    "canary_statistic",
    "empirical_epsilon",
    "epsilon_lower_bound",
    "estimated_mu",
    "gaussian_epsilon",
    "guesses_epsilon",
    "mu_lower_bound",
    "one_run_epsilon",
    "one_run_mu",
]
