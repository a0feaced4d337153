"""Exponents of figures: what grows with the square of a size is said to."""

import pytest
from support.results import PLAIN, made_up

from benchmarks.suite import document, exponents


def grown(size, **changes):
    """A result of that batch, whose plain step takes time in proportion and whose peak is its square."""
    result = made_up(f"grown-batch-{size}", "grown", plain=PLAIN, auto=PLAIN)
    result["comparison"]["sizes"] = {"batch": size}
    for step in result["steps"].values():
        step |= {
            "seconds": 3.0 * size,
            "peak": 5 * size**2,
            "trace": 1.0,
            "compile": 1.0,
            **changes,
        }
    return result


def test_powers_are_found():
    rows = [grown(2), grown(4), grown(16)]
    assert exponents.exponents(rows, "auto") == [1.0, 1.0, 2.0, 2.0, 0.0, 0.0]


def test_the_last_two_sizes_are_fitted_by_themselves():
    assert exponents.exponent([(1, 1), (2, 1), (4, 4)]) == pytest.approx(1.0)
    rows = [grown(1), grown(2), grown(4, seconds=24.0)]
    assert exponents.exponents(rows, "plain")[:2] == [1.5, 2.0]


def test_one_size_has_no_power():
    assert exponents.exponent([(1.0, 2.0)]) is None
    assert "| --- |" in exponents.growth_table([grown(2)])
    assert "grows with this power" not in document.compose([grown(2)])


def test_columns_that_nothing_fills_are_left_out():
    rows = [grown(size) for size in (2, 4)]
    for result in rows:
        for step in result["steps"].values():
            del step["seconds"], step["compile"]
    table = exponents.growth_table(rows).splitlines()
    assert table[0] == "| step | peak memory | last two |"
    assert table[2] == "| not private | 2.00 | 2.00 |"


def test_the_report_has_them_below_its_figures():
    text = document.compose([grown(2), grown(4)])
    assert "It grows with this power of batch, fitted to all sizes and to the last two:" in text
    assert "| `auto` | 1.00 | 1.00 | 2.00 | 2.00 | 0.00 | 0.00 |" in text
