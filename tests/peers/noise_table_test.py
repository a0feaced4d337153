"""jax_privacy's rows in the table of mechanisms: its own noise beside its own draws."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.mechanisms import exactness, ours, rows, theirs
from bk_jax import mechanisms

SIZE = 100_000


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(rows, "VALUES", 2000)


def rounding(inverse):
    """Each step rounds at most `BANDS + 2` terms, none above 2 draws; errors go on as draws do."""
    return 2.0**-24 * (rows.BANDS + 2) * 2 * 5.5 * np.abs(inverse).sum(axis=1).max()


def test_its_noise_is_the_matrix_times_its_draws(few):
    found = [each.row for each in theirs.candidates(SIZE)]
    names = ["independent", *ours.NOISES]
    assert [row.mechanism.removesuffix(", streaming") for row in found] == [
        names[0], f"{names[1]}, as a dense matrix", *names[2:],
    ]  # fmt: skip
    assert found[0].off == 0
    for row, noise in zip(found[1:], ours.NOISES.values(), strict=True):
        assert 0 < row.off < rounding(ours.inverse_of(noise))
    assert all(row.normal < 1.95 for row in found)
    for row in found:
        assert row.theirs == pytest.approx(row.here, abs=1e-4)
    matrix = rows.STEPS**2 / SIZE  # of the dense one, in copies
    expected = [0, matrix, rows.BANDS - 1, len(rows.DECAYS)]
    assert [row.kept for row in found] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", ours.NOISES)
def test_draws_of_another_kind_are_found(few, name):
    """A dense matrix folds the number of a step into the key, a streaming one splits the key."""
    noise = ours.NOISES[name]
    matrix = theirs.matrix_of(noise)
    private = theirs.privatizer(matrix, 1.0)
    found = ours.noise_of(theirs.step_of(private), private.init(jnp.zeros(rows.VALUES)))
    other = jnp.eye(rows.STEPS) if not isinstance(noise, mechanisms.BandedInverse) else None
    right, wrong = (
        exactness.off(ours.inverse_of(noise), theirs.draws(x), found) for x in (matrix, other)
    )
    assert right < 1e-5
    assert wrong > 1
