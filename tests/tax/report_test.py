"""`bk_jax.tax` from a loss to a report: everything but the times themselves."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bk_jax
from bk_jax.overhead import report as reporting
from bk_jax.overhead import seconds as profiling
from bk_jax.overhead.attribution import CLIPPING, SHARED
from bk_jax.overhead.report import OUTSIDE, Row, shorten
from tax.losses import PROBLEMS, array, mlp

REPORTS = {}


def quick_report(name, **options):
    problem = PROBLEMS[name]()
    options = {"noise_multiplier": 0.0, **problem.options, **options}
    return bk_jax.tax(problem.loss, problem.params, problem.batch, rounds=1, budget=1e-3, **options)


def report_of(name):
    if name not in REPORTS:
        noise = 1.0 if name == "mlp" else 0.0  # one step less to compile
        REPORTS[name] = quick_report(name, noise_multiplier=noise)
    return REPORTS[name]


@pytest.fixture(params=PROBLEMS)
def name(request):
    return request.param


def test_every_parameter_has_a_row_with_the_route_that_explain_says(name):
    rows = report_of(name).rows
    assert {row.name: row.route for row in rows if row.kind == "parameter"} == (
        PROBLEMS[name]().routes
    )
    assert [row.name for row in rows if row.kind != "parameter"] == [SHARED, CLIPPING, OUTSIDE]


def test_rows_add_up_to_the_profiled_step(name):
    report = report_of(name)
    plain, private = (sum(getattr(row, n) for row in report.rows) for n in ("plain", "private"))
    np.testing.assert_allclose(report.profiled_ratio, private / plain, rtol=1e-9)
    measured = sum(row.measured for row in report.rows)
    np.testing.assert_allclose(measured, private / plain - 1, rtol=1e-9, atol=1e-12)
    predicted = sum(row.predicted for row in report.rows)
    np.testing.assert_allclose(report.predicted_ratio, 1 + predicted, rtol=1e-12)
    assert all(row.plain >= 0 and row.private >= 0 for row in report.rows)


def test_time_is_found_for_trained_parameters_in_both_steps(name):
    """The plain step makes the gradient of a product, the private one its norm and its sum."""
    products = [row for row in report_of(name).rows if row.route in ("ghost", "fused", "store")]
    assert products
    assert all(row.plain > 0 and row.private > 0 for row in products)


def test_memory_and_flops_are_those_of_xla_and_explain():
    problem, report = PROBLEMS["conv"](), report_of("conv")
    plain = jax.jit(jax.value_and_grad(problem.loss)).lower(problem.params, problem.batch).compile()
    temporary = plain.memory_analysis().temp_size_in_bytes
    assert report.plain_memory.temporary == temporary
    assert report.temporary_ratio == report.private_memory.temporary / temporary
    explanation = bk_jax.dp_value_and_grad(problem.loss).explain(problem.params, problem.batch)
    assert report.flops_ratio == explanation.flops_ratio
    flops = {row.path: row.extra_flops[row.route] for row in explanation.rows}
    assert {row.name: row.extra_flops for row in report.rows if row.kind == "parameter"} == flops


def test_without_noise_there_are_two_steps_only():
    report = report_of("aux")
    assert report.noise_multiplier == 0
    assert report.time_without_noise == report.time
    assert "private, no noise" not in str(report)
    assert "private, no noise" in str(report_of("mlp"))


def test_text_names_steps_parameters_and_totals():
    text = str(report_of("mlp"))
    for part in ("plain again (A/A)", "first/w", "ghost", SHARED, OUTSIDE, "total", "method auto"):
        assert part in text
    assert "(the parameter)" in str(report_of("aux"))


def test_json_holds_everything():
    report = report_of("mlp")
    table = json.loads(report.to_json())
    assert table["ratio"] == report.ratio == report.time.ratio
    assert table["plain_memory"]["temporary"] == report.plain_memory.temporary
    assert [row["name"] for row in table["rows"]] == [row.name for row in report.rows]


def test_grouping_adds_up_what_shares_a_prefix():
    report = report_of("mlp")
    rows = {row.name: row for row in report.rows}
    first = {row.name: row for row in report.grouped().rows}["first"]
    assert first.route == "leaf+ghost"
    assert first.measured == rows["first/b"].measured + rows["first/w"].measured
    assert first.extra_flops == rows["first/b"].extra_flops + rows["first/w"].extra_flops
    assert [r.name for r in report.grouped(2).rows] == list(rows)
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        report.grouped(0)


def row(name, measured, kind="parameter"):
    return Row(name, kind, "ghost", 1, 0.0, 0.0, measured, measured)


def test_long_tables_keep_what_matters_and_add_up_the_rest():
    rows = (row("a", 1.0), row("b", 4.0), row("c", -5.0), row("d", 2.0), row("rest", 9.0, "shared"))
    short = shorten(rows, 2)
    assert [(r.name, r.measured) for r in short] == [
        ("b", 4.0), ("c", -5.0), ("2 other parameters", 3.0), ("rest", 9.0),
    ]  # fmt: skip
    assert shorten(rows, 4) == list(rows)


def test_picture_shows_every_row(tmp_path):
    pytest.importorskip("matplotlib")
    report = report_of("mlp")
    figure = report.plot(tmp_path / "tax.png")
    assert (tmp_path / "tax.png").read_bytes().startswith(b"\x89PNG")
    steps, parameters = figure.axes
    labels = [text.get_text() for text in parameters.get_yticklabels()]
    assert labels == [reporting._label(row) for row in report.rows]
    widths = [bar.get_width() for bar in parameters.patches]
    np.testing.assert_allclose(widths, [100 * row.measured for row in report.rows])
    assert len(steps.get_yticks()) == 5


def test_missing_matplotlib_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'needs the package matplotlib: pip install "bk_jax\[tr'):
        report_of("mlp").plot()


def test_without_operations_in_the_profile_rows_are_predictions(monkeypatch):
    monkeypatch.setattr(profiling, "record", lambda runs, rounds: [])
    report = quick_report("mlp")
    assert report.profiled_ratio is None
    assert all(row.measured is None and row.plain is None for row in report.rows)
    assert "reports no operations on this device" in str(report)
    assert report.predicted_ratio > 1
    assert "predicted" in [t.get_text() for t in report.plot().axes[1].get_legend().get_texts()]


def test_a_profiler_that_is_in_use_is_named(tmp_path):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(tmp_path, profiler_options=options):
        report = quick_report("scan")
    assert "JAX's profiler did not start: " in str(report)
    assert report.ratio > 0


def test_profile_can_be_left_out():
    report = quick_report("scan", profile=False)
    assert (report.profiled_steps, report.note) == (0, "not profiled")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rounds": 0}, ValueError, "rounds must be a whole number, at least 1; got 0"),
        ({"rounds": 1.5}, ValueError, "rounds must be a whole number, at least 1; got 1.5"),
        ({"budget": 0}, ValueError, "budget must be a positive number of seconds, got 0"),
        ({"budget": "1"}, ValueError, "budget must be a positive number of seconds, got '1'"),
        ({"return_stats": True}, TypeError, "tax returns a report, .* takes no return_stats"),
        ({"method": "magic"}, ValueError, "method must be one of auto"),
        ({"l2_clip_norm": -1.0}, ValueError, "l2_clip_norm must be at least 0"),
        ({"colour": 1}, TypeError, "colour"),
    ],
)
def test_wrong_arguments_are_named(options, error, message):
    problem = mlp()
    with pytest.raises(error, match=message):
        bk_jax.tax(problem.loss, problem.params, problem.batch, **options)


def test_shapes_and_tracers_are_refused():
    problem = mlp()
    shapes = jax.ShapeDtypeStruct((4, 3, 8), jnp.float32)
    with pytest.raises(TypeError, match="tax runs the step, so it needs arrays; got Shape"):
        bk_jax.tax(problem.loss, problem.params, shapes)
    with pytest.raises(TypeError, match="Call it outside of jit"):
        jax.eval_shape(lambda x: bk_jax.tax(problem.loss, problem.params, x), shapes)


def test_a_loss_without_a_derivative_is_an_error():
    def loss(w, x):
        return jax.lax.while_loop(lambda v: v < 9, lambda v: v + jnp.sum(w * x) ** 2 + 1, 0.0)

    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        bk_jax.tax(loss, array(3), array(2, 3))
    with pytest.raises((TypeError, ValueError), match="loss"):
        bk_jax.tax(lambda w, x: x @ w, array(3, 3), array(2, 3))


def test_importing_bk_jax_does_not_import_the_report():
    code = (
        "import sys, bk_jax; names = ('bk_jax.overhead', 'bk_jax.hlo', 'matplotlib');"
        "assert not set(names) & set(sys.modules); assert callable(bk_jax.tax);"
        "import bk_jax.overhead; assert callable(bk_jax.tax)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(AttributeError, match="no attribute 'taxes'"):
        bk_jax.taxes  # noqa: B018
