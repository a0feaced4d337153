"""The table of mechanisms: what is computed for it, who takes turns, and how it is written."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.mechanisms import exactness, noise_table, ours, rows, turns
from benchmarks.mechanisms.rows import Row, Spent
from benchmarks.mechanisms.turns import Here, There, Times
from benchmarks.suite import child

SIZE = 100_000
PAGE = Path(__file__).parents[2] / "docs" / "mechanisms.md"
ROW = Row("theirs", "noise", 2e-7, 0.5, 4.387, 4.377, 0.0012)
# Speaks as benchmarks/peers/torch_noise.py does; the third turn is its last.
FAKE = f"""
import json, sys
print(json.dumps([{rows.as_dict(ROW)!r}]), flush=True)
for turn in range(3):
    if not sys.stdin.readline():
        sys.exit(0)
    print(json.dumps([[1.0 + turn, 2.0]]), flush=True)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def candidates():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "VALUES", 5000)
        yield ours.candidates(SIZE)


def rounding(inverse, largest=5.5):
    """How far float32 may be off: each step rounds at most `BANDS + 2` terms, none above 2 draws.

    What a recursive step is off by is multiplied like its draw.
    """
    return 2.0**-24 * (rows.BANDS + 2) * 2 * largest * np.abs(inverse).sum(axis=1).max()


def test_our_noise_is_its_matrix_times_its_draws(candidates):
    found = {each.row.mechanism: each.row for each in candidates}
    for name, noise in ours.NOISES.items():
        assert 0 < found[name].off < rounding(ours.inverse_of(noise))
    assert found["independent"].off == found["independent, on a grid"].off == 0
    assert found[rows.ADAPTIVE].off < rounding(np.eye(1))
    assert all(row.normal < 1.95 for row in found.values())


def test_both_epsilons_agree_and_what_is_kept_is_counted(candidates):
    kept = [round(each.row.kept, 2) for each in candidates]
    assert kept == [0, 0, rows.BANDS - 1, len(rows.DECAYS), 0, 0]
    for each in candidates:
        assert each.row.theirs == pytest.approx(each.row.here, abs=1e-5)


def test_other_draws_and_another_deviation_are_found():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4, 20_000))
    inverse = np.tril(np.ones((4, 4)))
    noise = np.cumsum(z, axis=0)
    assert exactness.off(inverse, z, noise) < 1e-14
    assert exactness.off(inverse, z[::-1], noise) > 1
    right = exactness.deviation(inverse, 3)
    assert exactness.normal(noise[3], right) < 1.63
    assert exactness.normal(noise[3], 1.1 * right) > 1.95  # 0.24 x 0.1 x the root of 20,000 is 3.4
    assert exactness.normal(np.sign(noise[3]), 1.0) > 10


@pytest.mark.parametrize("name", ours.NOISES)
def test_runs_are_as_far_apart_as_the_sensitivity_says(name):
    noise = ours.NOISES[name]
    sensitivity = ours.WHO.sensitivity(noise.strategy(rows.STEPS))
    found = exactness.distance_of_runs(ours.inverse_of(noise), 2 * sensitivity)
    assert found == pytest.approx(0.5, rel=1e-12)


def test_epsilons_are_those_of_dp_accounting():
    dp = pytest.importorskip("dp_accounting")
    for multiplier in (0.5, 1.0, 3.0):
        event = dp.GaussianDpEvent(multiplier)
        tight = dp.pld.PLDAccountant().compose(event).get_epsilon(1e-5)
        assert exactness.gaussian(1 / multiplier, 1e-5) == pytest.approx(tight, abs=1e-4)
        orders = tuple(range(2, 200))
        bound = dp.rdp.RdpAccountant(orders=orders).compose(event).get_epsilon(1e-5)
        assert exactness.renyi(multiplier, orders, 1e-5) == pytest.approx(bound, rel=1e-9)


def test_a_number_beside_the_gradient_adds_its_distance():
    """Of equal deviations both are one Gaussian; others are compared with a sum over a plane."""
    near, far = exactness.Number(0.0, 2.0), exactness.Number(0.6, 2.0)
    for epsilon in (0.1, 1.0, 4.0):
        one = exactness.gaussian_delta(float(np.hypot(0.9, 0.3)), epsilon)
        assert exactness._delta(0.9, near, far, epsilon) == pytest.approx(one, rel=1e-9)
    p, q = exactness.Number(0.3, 1.0), exactness.Number(0.1, 1.1)
    assert exactness._delta(0.9, p, q, 1.0) == pytest.approx(on_a_plane(0.9, p, q, 1.0), rel=1e-4)


def on_a_plane(mu, p, q, epsilon):
    grid = np.linspace(-12, 12, 2401)

    def density(mean, stddev):
        return np.exp(-(((grid - mean) / stddev) ** 2) / 2) / (stddev * np.sqrt(2 * np.pi))

    first = np.outer(density(mu, 1), density(*p))
    second = np.outer(density(0, 1), density(*q))
    return np.maximum(first - np.exp(epsilon) * second, 0).sum() * (grid[1] - grid[0]) ** 2


def test_a_count_over_the_batch_moves_by_a_whole_example():
    """Not by the half that a count shifted by 1/2, over a number that is fixed, moves by."""
    found = exactness.divided_count(0.9, 5.0, 100, 1e-5)
    half, whole = (exactness.gaussian(float(np.hypot(0.9, x / 5)), 1e-5) for x in (0.5, 1.0))
    assert half < whole < found < whole + 0.02  # the deviation changes by one part in 100, too


def test_candidates_take_two_steps_in_a_turn_and_the_state_goes_on():
    def step(sums, state, number):
        return sums + number, state + 1

    here = Here([ours.Candidate(ROW, step, np.float32(0))] * 2, 10)
    for turn in range(3):
        spent = here.turn()
        assert [float(state) for state in here.states] == [2.0 * (turn + 1)] * 2
        assert all(each.cpu >= 0 < each.wall for each in spent)
    assert here.rows == [ROW, ROW]


def test_another_process_takes_turns_until_it_is_told_to_end():
    with There([sys.executable, "-c", FAKE], dict(os.environ), 10) as there:
        assert there.rows == [ROW]
        assert there.turn() == [Spent(1.0, 2.0)]
    assert there.process.returncode == 0


def test_another_process_that_ends_is_an_error():
    with There([sys.executable, "-c", FAKE], dict(os.environ), 10) as there:
        for _ in range(3):
            there.turn()
        with pytest.raises(RuntimeError, match="ended with exit code 7"):
            there.turn()
    with pytest.raises(RuntimeError, match="ended with exit code 3"):
        There([sys.executable, "-c", "raise SystemExit(3)"], dict(os.environ), 10)


def test_ratios_are_of_the_same_turn_and_the_first_turns_do_not_count():
    slow = [[Spent(99, 99), Spent(99, 99)]] * turns.FIRST
    found = turns.measured([*slow, *([Spent(t, 1), Spent(3 * t, 2)] for t in (1, 5, 2))])
    assert found == [Times(Spent(2, 1), 1), Times(Spent(6, 2), 3)]


def test_what_is_not_installed_is_left_out_and_said(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(noise_table.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ours, "candidates", lambda size: [])
    assert noise_table.here(10).rows == []
    assert noise_table.others(tmp_path, 10) == []
    said = capsys.readouterr().err
    assert "jax_privacy is not there, its rows are left out; run tools/peers.py" in said
    assert ".venv-peers-torch is not there" in said


class Fake:
    """Takes turns without a clock."""

    def __init__(self, row, seconds):
        self.rows, self.seconds = [row], seconds

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def turn(self):
        return [Spent(self.seconds, 2 * self.seconds)]


def test_the_table_has_a_line_for_each_row_of_both_processes(monkeypatch, capsys):
    first = Row("ours", "independent", 0.0, 0.7, 4.3772, 4.3771, 8e-6)
    monkeypatch.setattr(noise_table, "here", lambda size: Fake(first, 1e-6))
    monkeypatch.setattr(noise_table, "others", lambda workspace, size: [Fake(ROW, 4e-6)])
    monkeypatch.setattr(sys, "argv", ["noise_table", "--size", "1000", "--rounds", "3"])
    noise_table.main()
    lines = capsys.readouterr().out.splitlines()
    assert ", 1,000 parameters, 3 rounds" in lines[0]
    assert "\n".join(lines[2:4]) == rows.HEAD
    assert lines[4:] == [
        "| ours | independent | 0e+00 | 0.70 | 4.377 | 4.377 | 0 | 1.00 | 2.00 | 1.00 |",
        "| theirs | noise | 2e-07 | 0.50 | 4.387 | 4.377 | 0.001 | 4.00 | 8.00 | 4.00 |",
    ]
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_the_page_has_every_row_and_every_number():
    text = PAGE.read_text()
    assert "not measured" not in text
    lines = text.split(rows.HEAD)[1].split("\n\n")[0].strip().splitlines()
    table = [line.strip("| ").split(" | ") for line in lines]
    named = {library: {cells[1] for cells in table if cells[0] == library} for library, *_ in table}
    own = {"independent", "independent, on a grid", rows.ADAPTIVE, *ours.NOISES}
    assert own == named["bk_jax"]
    assert {library: len(names) for library, names in named.items()} == {
        "bk_jax": len(own), "jax_privacy": len(ours.NOISES) + 1, "Opacus": 3,
    }  # fmt: skip
    columns = rows.HEAD.splitlines()[0].count("|") - 1
    for cells in table:
        assert len(cells) == columns
        assert all(float(cell.strip("*")) >= 0 for cell in cells[2:])


TORCH = child.peer("torch", "torch_noise", child.WORKSPACE)


@pytest.mark.skipif(not Path(TORCH[0]).exists(), reason="needs tools/peers.py torch")
def test_opacus_takes_turns_too():
    with There(TORCH, child.environment("torch"), 1000) as there:
        found = {row.mechanism: row for row in there.rows}
        spent = there.turn()
    assert len(spent) == len(found) == 3
    assert found["independent"].off == 0
    assert all(row.off < 2.0**-24 * 8 * 5.5 and row.normal < 1.95 for row in found.values())
    # Its accountant adds 0.01; what adaptive clipping shows costs more than it says.
    assert found["independent"].theirs == pytest.approx(found["independent"].here + 0.01, abs=2e-3)
    assert found[rows.ADAPTIVE].here > found[rows.ADAPTIVE].theirs + 0.05
    assert json.dumps([rows.as_dict(row) for row in there.rows])
