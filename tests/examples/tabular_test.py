"""The tabular example: its data, its gradients, and the whole of it at small size."""

from __future__ import annotations

import numpy as np
import pytest
import study
import tabular
from support import studies

from bk_jax import sampling

CONFIG = """
[run]
epsilon = 2.0
delta = 1e-4
epochs = 0.3
batch_size = 60
physical_batch_size = 80
clip_norm = 1.0
seed = 0
rounds = 1

[model]
widths = [8, 8]
learning_rate = 1e-2
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tabular")
    return studies.run_small(tabular.main, directory, CONFIG), directory


def test_the_study_is_complete(small):
    outcomes, directory = small
    studies.assert_complete(outcomes, directory, epsilon=2.0)
    assert outcomes[1].points[-1].step == 2


def test_rows_are_scaled_by_printed_ranges_which_they_fill():
    data, held_out = tabular.load_data()
    assert data["x"].shape == (455, 30)
    assert held_out["x"].shape == (114, 30)
    every = np.concatenate([data["x"], held_out["x"]])
    np.testing.assert_allclose(every.min(axis=0), -1, atol=0.02)  # ranges are printed rounded
    np.testing.assert_allclose(every.max(axis=0), 1, atol=0.02)
    assert set(data["y"]) == {0.0, 1.0}


def test_clipped_sums_are_those_of_vmap():
    problem = tabular.make_problem({"widths": (8, 8), "learning_rate": 1e-2})
    rows = {name: values[:32] for name, values in problem.data.items()}
    batch = sampling.Batch(rows, np.arange(32) >= 29)
    studies.assert_clipped_as_by_vmap(problem, study.vmap_sum, batch)
