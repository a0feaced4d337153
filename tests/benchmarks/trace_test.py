"""What it takes to trace a private step is proportional to the number of parameters. No clocks.

Counted are the lines that our own code executes, by file: twice as many parameters take twice as
many, and a step that looks at all the others for each of them takes four times as many.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

import bk_jax
from benchmarks.trace import many_leaves, trace_benchmark

PACKAGE = str(Path(bk_jax.__file__).parent)
FEW = 60  # lines that a file may take more, whatever the number of parameters


def lines(function: Callable[[], Any]) -> collections.Counter[str]:
    """The lines of the package that a function executes, by file; every turn of a loop is one."""
    count: collections.Counter[str] = collections.Counter()

    def inside(frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            count[frame.f_code.co_filename] += 1
        return inside

    def entered(frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        return inside

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def assert_proportional(run: Callable[[int], Any], first: int) -> None:
    """Growth from `first` to twice and to four times as many: 2 is proportional, 4 is quadratic."""
    run(first)  # what is done once
    once, twice, four = (lines(lambda n=n: run(n)) for n in (first, 2 * first, 4 * first))
    assert once
    slow = {
        Path(file).name: (once[file], twice[file], four[file])
        for file in four
        if four[file] - twice[file] > 2.2 * (twice[file] - once[file]) + FEW
    }
    assert not slow


@pytest.mark.parametrize("name", many_leaves.MODELS)
def test_tracing_is_proportional_to_the_number_of_parameters(name):
    def run(leaves):
        function, args = trace_benchmark.private(many_leaves.make(name, leaves))
        jax.jit(function).trace(*args)

    assert_proportional(run, 28)


@pytest.mark.parametrize("name", many_leaves.MODELS)
def test_explaining_is_proportional_to_the_number_of_parameters(name):
    def run(leaves):
        task = many_leaves.make(name, leaves)
        bk_jax.dp_value_and_grad(task.loss).explain(*task.args)

    assert_proportional(run, 28)


def one_leaf_in_parts(parts):
    """A stack of weights of which each layer takes its own."""

    def loss(stack, x):
        for layer in range(parts):
            x = x @ stack[layer]
        return x.sum()

    return loss, (many_leaves.array(parts, 2, 2), many_leaves.array(3, 2))


def one_weight_of_many_leaves(parts):
    def loss(columns, x):
        return (x @ jax.numpy.concatenate(columns, axis=1)).sum()

    return loss, ([many_leaves.array(2, 1)] * parts, many_leaves.array(3, 2))


def one_weight_used_often(times):
    def loss(weight, x):
        for _ in range(times):
            x = x @ weight
        return x.sum()

    return loss, (many_leaves.array(2, 2), many_leaves.array(3, 2))


@pytest.mark.parametrize(
    "make", [one_leaf_in_parts, one_weight_of_many_leaves, one_weight_used_often]
)
def test_planning_is_proportional_to_the_number_of_uses(make):
    def run(count):
        loss, args = make(count)
        bk_jax.dp_value_and_grad(loss).explain(*args)

    assert_proportional(run, 30)


def test_a_quadratic_step_is_found():
    def run(count):
        paths = {(i,): None for i in range(count)}
        for i in range(count):
            bk_jax.program.replay._by_equation({(i, *p): None for p in paths}, 0)

    with pytest.raises(AssertionError, match="replay"):
        assert_proportional(run, 20)


def test_the_benchmark_prints_a_row_for_each_number_of_parameters(capsys):
    trace_benchmark.table("mlp", [2, 4], repeats=1, lowers=True)
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [["mlp", "2"], ["mlp", "4"]]


def test_errors_of_the_models_say_what_there_is():
    with pytest.raises(ValueError, match=r"no model 'gru'; models are mlp, tied"):
        many_leaves.make("gru", 10)
    with pytest.raises(ValueError, match="at least 2 leaves, got 1"):
        many_leaves.make("mlp", 1)
