"""The transform against per-example gradients by `vmap` of `grad` in float64."""

from support.models import mlp, mlp_batch, mlp_loss
from support.oracle import check_against_oracle


def test_mlp(real):
    check_against_oracle(mlp_loss, mlp(real), mlp_batch(8, real))


def test_tokens(real):
    check_against_oracle(mlp_loss, mlp(real), mlp_batch(4, real, tokens=(6,)))
