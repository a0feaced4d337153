"""Training: an optional training loop, made only of the public pieces.

    result = training.fit(loss_fn, params, data, plan=plan, optimizer=optax.adam(1e-3), directory="run")

The plan and ledger come from `bk_jax.privacy`, batches from `bk_jax.sampling`, gradients from
`dp_value_and_grad`, and the optimizer from optax. `docs/training.md` has the same loop by hand.
Needs `bk_jax[train]`.
"""

from bk_jax.training.averaging import average_of, averaged
from bk_jax.training.canaries import Audit, Canaries
from bk_jax.training.history import Point
from bk_jax.training.loop import Result, fit

__all__ = ["Audit", "Canaries", "Point", "Result", "average_of", "averaged", "fit"]
