"""Reports for a browser, and the message about a long compilation."""

from __future__ import annotations

import logging
import re

import jax
import jax.numpy as jnp
import pytest

import bk_jax
from bk_jax import first_call, palette
from bk_jax.overhead import Row, StepMemory, Tax, Timing
from bk_jax.webpage import Column, Table, bar, text

BLUE_SPOT = f'class="chip" style="background:{palette.BLUE}"'
SAME, SLOWER = Timing(0.1, 1.0, 0.99, 1.01, 9), Timing(0.11, 1.1, 1.09, 1.11, 9)


def report(**changes):
    rows = (
        Row("<b>/kernel", "parameter", "ghost", 1000, 0.05, 0.05, 0.06, 0.1),
        Row("a/bias", "parameter", "leaf", 10, 0.01, 0.02, 0.01, -0.05),
        Row("outside of operations", "outside", "", 0, 0.0, 0.01, 0.01, 0.0),
    )
    memory = StepMemory(100, 200), StepMemory(150, 250)
    made = Tax("auto", 8, "cpu", 1.0, 0.1, SLOWER, SLOWER, SAME, *memory, 1.1, 1.05, rows, 3, "")
    return made if not changes else Tax(**{**vars(made), **changes})


def test_the_tax_is_a_table_with_bars():
    html = report()._repr_html_()
    assert "&lt;b&gt;/kernel" in html
    assert "<b>/kernel" not in html
    assert html.count("<tr>") == 4  # a header and three rows
    assert html.count('<tr class="total"><td>total</td>') == 1
    legend = html.split('<p class="legend">')[1].split("</p>")[0]
    assert legend.index(BLUE_SPOT) < legend.index("added") < legend.index("saved")
    assert f"width:100%;background:{palette.BLUE}" in html  # the largest of the rows
    assert f"width:50%;background:{palette.ORANGE}" in html  # what is saved
    assert "1.500" in html  # temporary memory


def test_a_tax_that_measured_no_parameter_says_so():
    rows = (Row("w", "parameter", "ghost", 1000, 0.05, None, None, None),)
    assert "Nothing was measured for each parameter: why." in report(rows=rows, note="why").html()


def test_pages_are_whole_and_load_nothing():
    grad_fn = bk_jax.dp_value_and_grad(lambda w, x: jnp.sum(x @ w))
    for page in (grad_fn.explain(jnp.ones((3, 2)), jnp.ones((4, 3))).html(), report().html()):
        assert page.startswith("<!doctype html>")
        assert page.rstrip().endswith("</html>")
        assert "default-src 'none'" in page
        assert not re.search(r"\b(?:src|href)=", page)


def test_bars_of_nothing_and_of_nan():
    assert "width:0%" in bar(0.0, 0.0, "0")
    assert "width:0%" in bar(float("nan"), 1.0, "-")


def test_a_row_has_a_cell_for_each_column():
    table = Table("t", [Column("a"), Column("b")])
    table.add([text("1")])
    with pytest.raises(ValueError, match="zip"):
        table.fragment()


def test_every_route_has_a_colour_of_its_own():
    from bk_jax.planning.routes import ROUTES

    assert set(ROUTES) <= set(palette.ROUTES)
    assert len(set(palette.ROUTES.values())) == len(palette.ROUTES)


def test_a_long_compilation_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(first_call, "LONG", 0.0)
    monkeypatch.setattr(first_call._State, "has_told", False)
    with caplog.at_level(logging.WARNING, logger="bk_jax"):
        for size in (3, 4):
            grad_fn = bk_jax.clipped_value_and_grad(lambda w, x: jnp.sum(x @ w))
            jax.jit(grad_fn)(jnp.ones(size), jnp.ones((2, size)))
    told = [record.getMessage() for record in caplog.records if record.name == "bk_jax"]
    assert len(told) == 1
    assert "jax_compilation_cache_dir" in told[0]


def test_a_short_compilation_is_not_told(monkeypatch, caplog):
    monkeypatch.setattr(first_call._State, "has_told", False)
    with caplog.at_level(logging.WARNING, logger="bk_jax"):
        first_call._heard(first_call.EVENT, first_call.LONG - 1)
        first_call._heard("/jax/another/event", 10 * first_call.LONG)
    assert not caplog.records
