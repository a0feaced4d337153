"""What is counted in compiled steps: one copy more is caught, noise is impossible."""

import copy
import dataclasses
import json

import jax
import pytest
from support.results import TINY

from benchmarks.steps import step_models
from benchmarks.steps.compiled import step_function
from benchmarks.suite import comparisons, counts, gate, worker

FOUND = {"copies": 3, "transposes": 1, "calls": {"bk_ghost_norm": 2}, "temporary": 1000}


def counted(fun, *args):
    program = jax.jit(fun).lower(*args).compile()
    return counts.count_program(program, program.memory_analysis().temp_size_in_bytes)


@pytest.fixture(scope="module")
def steps():
    """Counts of a private step, and of the same one that returns a gradient in another layout."""
    task = step_models.make("mlp", abstract=True, batch=4, width=48, depth=2)
    step, args = step_function(task, "auto")

    def with_a_copy(params, batch):
        value, grads = step(params, batch)
        return value, grads, grads[0]["w"].T

    return counted(step, *args), counted(with_a_copy, *args)


def test_a_step_with_an_extra_copy_is_caught(steps, capsys):
    usual, copied = steps
    assert counts.worse(usual, usual) == []
    assert counts.check("mlp", {"auto": usual}, {"auto": usual})
    assert not counts.check("mlp", {"auto": copied}, {"auto": usual})
    moved = [
        line for line in counts.worse(copied, usual) if "copies" in line or "transposes" in line
    ]
    assert len(moved) == 1
    assert f"more    mlp: auto: {moved[0]}" in capsys.readouterr().out


@pytest.mark.native
def test_our_calls_are_counted_by_name(steps):
    assert steps[0]["calls"]["bk_ghost_norm"] == 3


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"copies": 4}, ["4 copies, stored 3"]),
        ({"transposes": 2}, ["2 transposes, stored 1"]),
        ({"temporary": 1021}, ["1021 temporary bytes, stored 1000"]),
        ({"temporary": 1020}, []),
        ({"copies": 0, "transposes": 0, "temporary": 1}, []),
        ({"calls": {}}, ["0 bk_ghost_norm, stored 2"]),
        (
            {"calls": {"bk_ghost_norm": 3, "dot": 1}},
            ["3 bk_ghost_norm, stored 2", "1 dot, stored 0"],
        ),
    ],
)
def test_what_is_worse(change, lines):
    assert counts.worse({**FOUND, **change}, FOUND) == lines


def test_less_than_stored_passes_and_asks_to_be_kept(capsys):
    assert counts.check("a", {"auto": {**FOUND, "copies": 2}}, {"auto": FOUND})
    assert "less than stored in auto: --update keeps it so" in capsys.readouterr().out


def test_steps_that_are_missing_do_not_pass(capsys):
    assert not counts.check("a", {"auto": FOUND}, {"auto": FOUND, "noise": FOUND})
    assert "noise: only stored" in capsys.readouterr().out
    assert not counts.check("a", {"auto": FOUND}, {})
    assert "unknown a: no counts are stored" in capsys.readouterr().out


def test_counts_are_stored_by_what_they_depend_on(monkeypatch, tmp_path):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    usual = counts.key("avx2")
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert counts.key("avx2") == f"{usual}, XLA_FLAGS=--xla_cpu_multi_thread_eigen=false" != usual
    monkeypatch.setattr(gate, "COUNTS", tmp_path / "counts.json")
    monkeypatch.setattr(gate, "count", lambda one: {"auto": FOUND})
    counts.write(gate.COUNTS, {"neon": {"other": {}}})
    gate.update_counts([TINY], "avx2")
    table = json.loads(gate.COUNTS.read_text())
    assert table == {"neon": {"other": {}}, counts.key("avx2"): {"tiny": {"auto": FOUND}}}
    assert gate.check_counts([TINY], "avx2")
    assert not gate.check_counts([TINY], "avx512")
    worse = copy.deepcopy(FOUND)
    worse["copies"] += 1
    monkeypatch.setattr(gate, "count", lambda one: {"auto": worse})
    assert not gate.check_counts([TINY], "avx2")


def test_a_comparison_counts_every_step_by_itself():
    one = dataclasses.replace(TINY, kind="counts", steps=("bk", "auto"))
    found = worker.measure_counts(one)["steps"]
    assert list(found) == ["plain", "bk", "auto"]
    assert all(step.keys() == FOUND.keys() for step in found.values())


def test_counts_are_stored_for_every_comparison_of_the_gate():
    wanted = {one.name: {"plain", *one.steps} for one in comparisons.read("check")}
    table = counts.read(gate.COUNTS)
    assert table
    for stored in table.values():
        assert {name: set(steps) for name, steps in stored.items()} == wanted
