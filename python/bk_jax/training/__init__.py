"""Training: a loop that people may ignore, made of the public pieces alone.

    result = training.fit(loss_fn, params, data, plan=plan, optimizer=optax.adam(1e-3), directory="run")

Plan and ledger are `bk_jax.privacy`'s, batches `bk_jax.sampling`'s, gradients `dp_value_and_grad`'s, and
the optimizer is optax's. `docs/training.md` has the same loop by hand. Needs `bk_jax[train]`.
"""

from bk_jax.training.history import Point
from bk_jax.training.loop import Result, fit

__all__ = ["Point", "Result", "fit"]
