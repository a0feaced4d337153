"""The whole report of the day with a GPU, from made-up results."""

import dataclasses
import json

import pytest
from support.gpu_day import MEMCHECK, SWEEP, probed

from benchmarks.gpu.day import plots, report, run, sanitizer, sections, sweep, tables
from benchmarks.gpu.day.day import rehearsal


@pytest.fixture
def day(tmp_path):
    return rehearsal(tmp_path / "day")


def test_a_report_with_everything_in_it(day):
    """Every section and every picture, from made-up results."""
    found = json.loads(probed("no"))
    rows = sweep.parse(SWEEP)
    job = tables.jobs(day)[0]._asdict()
    table_row = {**job, "batch": 2, "throughput": 4.0, "peak_bytes": 9, "error": ""}
    data = {
        "probe": {"types": found["types"], "broken": found["types"]},
        "sweep": {**rows, "ratios": sweep.ratios(rows["rows"])},
        "tables": {"rows": tables.beside([table_row, {**table_row, "method": "auto"}])},
        "sanitizer": {"rows": [{"tool": "memcheck", "ok": False, "problem": "2 errors",
                                "seconds": 1.0, **sanitizer.parse(MEMCHECK)}]},
    }  # fmt: skip
    for name, one in data.items():
        stored = {"status": "passed", "line": "", "key": day.key(), "seconds": 1.0, "data": one}
        day.store.save(name, stored)
    text = report.write(day, run.STEPS, None).read_text()
    for picture in ("probe.png", "ratios.png", "predicted.png", "tables.png"):
        assert f"![{picture}]({picture})" in text
        assert (day.folder / picture).stat().st_size > 1000
    assert "1 x Invalid __global__ read of size 4 bytes" in text
    assert "| bf16 | HMMA.16816 | truncation | 24 | 8 | kept | 30 | 96 | no |" in text
    word = "REHEARSAL"
    assert f"| ghost_norm | bf16 | 2x4x6x8 | {' | '.join([word] * 5)} | - | - |" in text
    real = dataclasses.replace(day, is_rehearsal=False)
    text = report.write(real, run.STEPS, None).read_text()
    assert "| ghost_norm | bf16 | 2x4x6x8 | 30 | 2 | 100 | 20 | 1.5 | - | - | 1.93 |" in text
    assert word not in text
    assert text.count("From another kind of day") == len(data)


def test_every_step_has_a_section():
    assert set(sections.SECTIONS) == set(run.NAMES)


def test_methods_have_the_colors_of_the_benchmark_report():
    from benchmarks.suite.plots import STYLE

    assert STYLE["auto"][0] == plots.OURS
    assert {name: STYLE[name][0] for name in ("auto", "ghost_clip", "opacus")} == {
        name: plots.METHODS[name] for name in ("auto", "ghost_clip", "opacus")
    }
