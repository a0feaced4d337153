"""What is made of results: losses, tables, pictures and the report."""

from pathlib import Path

import pytest
from support.results import PLAIN, TINY, made_up

from benchmarks.suite import child, document, losses, plots, readings, run
from benchmarks.suite.store import Store


def test_a_loss_is_found_when_it_is_beyond_doubt():
    slow = made_up(plain=PLAIN, bk=(1.1, 1.09, 1.11, 100), auto=(1.3, 1.25, 1.35, 110))
    assert losses.losses([slow]) == [
        "Tiny, B=2, width=4, depth=1: "
        "slower than not private (1.00 against 1.30), `bk` (1.10 against 1.30); "
        "more memory than `bk` (1.00 against 1.10), not private (1.00 against 1.10)."
    ]


@pytest.mark.parametrize(
    "auto",
    [(0.9, 0.8, 1.0, 100), (1.015, 1.01, 1.02, 100), (1.2, 0.99, 1.4, 101)],
    ids=["faster", "within A/A", "wide interval"],
)
def test_what_may_be_chance_is_no_loss(auto):
    assert losses.losses([made_up(plain=PLAIN, auto=auto)]) == []


def test_noise_is_compared_with_the_plain_step_alone():
    slow = made_up(plain=PLAIN, bk=PLAIN, auto=PLAIN, noise=(1.5, 1.4, 1.6, 200))
    assert losses.losses([slow]) == [
        "Tiny, B=2, width=4, depth=1: with noise slower than not private (1.00 against 1.50)."
    ]


def test_a_smaller_largest_batch_is_a_loss():
    result = made_up()
    result["comparison"]["limits"] = [8e9, 24e9]
    found = {"plain": [101, 300], "opacus": [9, 27], "auto": [98, 300]}
    result["steps"] = {name: {"batches": batches} for name, batches in found.items()}
    assert losses.losses([result]) == [
        "Tiny, B=2, width=4, depth=1: a smaller largest batch than not private (101 against 98 in 8 GB)."
    ]


def test_largest_batches_have_a_row_for_each_limit():
    result = made_up()
    result["comparison"] |= {"kind": "largest", "limits": [8e9, 24e9]}
    result["steps"] = {"plain": {"batches": [100, 300]}, "auto": {"batches": [99]}}
    text = document.compose([result | {"stopped": "after 60 minutes"}])
    assert "| Tiny | 8 GB | 100 | 99 |" in text
    assert "| Tiny | 24 GB | 300 |  |" in text


def test_a_comparison_that_was_stopped_says_so():
    result = made_up(plain=PLAIN, auto=PLAIN) | {"stopped": "after 60 minutes"}
    assert "\nStopped after 60 minutes.\n" in document.compose([result])


@pytest.mark.parametrize(("seconds", "lost"), [(3.0, 0), (5.0, 1)])
def test_far_longer_compilation_is_a_loss(seconds, lost):
    result = made_up(plain=PLAIN, auto=PLAIN)
    result["steps"]["plain"] |= {"trace": 0.5, "compile": 1.5}
    result["steps"]["auto"] |= {"trace": 0.5, "compile": seconds}
    found = losses.losses([result])
    assert len(found) == lost
    assert all("compile than not private (2.0 s against 5.5 s)" in line for line in found)


@pytest.mark.parametrize(
    ("plain", "ours", "lost"), [(1.0, 1.6, 1), (1.0, 1.4, 0), (0.1, 0.5, 0), (0.0, 0.0, 0)]
)
def test_tracing_that_takes_longer_is_a_loss_even_where_xla_hides_it(plain, ours, lost):
    result = made_up(plain=PLAIN, auto=PLAIN)
    result["steps"]["plain"] |= {"trace": plain, "compile": 100.0}
    result["steps"]["auto"] |= {"trace": ours, "compile": 100.0}
    found = losses.losses([result])
    assert len(found) == lost
    assert all("longer to trace than not private (1.0 s against 1.6 s)" in line for line in found)


@pytest.mark.parametrize(("kind", "lost"), [("memory", 1), ("time", 0)])
def test_memory_is_compared_in_figures_that_time_nothing(kind, lost):
    result = made_up("m", "f", plain=PLAIN, auto=(1.0, 0.98, 1.02, 110))
    result["comparison"]["kind"] = kind
    for step in result["steps"].values() if kind == "memory" else ():
        for name in ("ratio", "low", "high"):
            del step[name]
    found = losses.losses([result])
    assert len(found) == lost
    assert all("more memory than not private (1.00 against 1.10)" in line for line in found)


def test_predicted_losses_on_gpus_are_listed_as_predictions():
    lines = losses.predicted()
    assert [line.partition(",")[0] for line in lines] == ["A100", "H100", "B200"]
    assert all("never measured" in line for line in lines)
    assert "GPT2-small, T=100 (1." in lines[0]
    text = document.compose([made_up(plain=PLAIN, auto=PLAIN)])
    assert f"- {lines[0]}" in text


def test_the_best_other_step_is_another_program():
    result = made_up(plain=PLAIN, bk=PLAIN, auto=PLAIN, opacus=(2.0, 2.0, 2.0, 1))
    result["steps"]["auto"]["same_as"] = "bk"
    assert document.best_other(result) == "opacus"
    assert "| `auto` = `bk` | 1.00 |" in document.compose([result])


def test_the_same_program_is_one_curve():
    rows = [made_up(str(b), "f", plain=PLAIN, bk=PLAIN, auto=PLAIN) for b in (1, 2)]
    rows[1]["steps"]["plain"] = {**rows[1]["steps"]["plain"], "seconds": 7.0}
    assert list(plots.curves(rows, "throughput")) == [("plain",), ("bk", "auto")]


def test_every_comparison_names_its_run_when_there_are_several():
    first, second = made_up("a", plain=PLAIN, auto=PLAIN), made_up("b", plain=PLAIN, auto=PLAIN)
    assert "Run 1." not in document.compose([first, second])
    second["commit"] = "def"
    text = document.compose([first, second])
    assert (
        "2. A CPU, 2 cores, load 0.1, today; XLA's gemm; 8 GiB; commit def; flags: none. " in text
    )
    assert "1 comparisons in 1.5 minutes." in text
    assert text.index("Run 1.") < text.index('<a id="b"></a>') < text.index("Run 2.")


def test_peers_say_what_they_agree_on():
    result = made_up(plain=PLAIN, optax=(2.0, 1.9, 2.1, 100), bk_jax=PLAIN)
    result["comparison"]["kind"] = "jax"
    result |= {"versions": "optax 9", "losses": {"plain": 1.5}, "sums": {"optax": 0.25}}
    text = document.compose([result])
    assert "### JAX: Tiny, B=2, width=4, depth=1" in text
    assert "Mean loss: not private 1.50000. Norm of the clipped sum: `optax` 0.25000." in text
    assert "`bk_jax` **1.00**, best other `optax` 2.00" in text


def test_the_report_holds_every_number_and_every_picture(tmp_path):
    steps = {"plain": PLAIN, "auto": (0.876, 0.8, 0.9, 123e6), "opacus": (7.654, 7, 8, 100)}
    figure = [made_up(f"f-{b}", "f", **steps) for b in (1, 2)]
    for number, result in enumerate(figure):
        result["comparison"]["sizes"]["batch"] = 2**number
    failed = {"comparison": TINY.as_dict(), "error": "killed"}
    text = document.write([made_up(**steps), *figure, failed], tmp_path).read_text()
    assert "| `auto` | 0.88 | 2.28 | 0.876 | 0.800 .. 0.900 |" in text
    assert "best other `opacus` 7.65" in text
    assert "## Failed" in text
    assert "A CPU, 2 cores, load 0.1, today; XLA's gemm; 8 GiB; commit abc; flags: none." in text
    assert '- <a id="short-tiny"></a>[Tiny, B=2, width=4, depth=1](#tiny): `auto` **0.88**' in text
    assert '<a id="tiny"></a>' in text
    assert "Not measured here: `make bench-peers`" in text
    for name in ("overview.png", "f-throughput.png", "f-memory.png"):
        assert f"(report/{name})" in text
        assert (tmp_path / "report" / name).stat().st_size > 1000


def test_the_committed_report_is_what_its_results_make():
    folder = Path(child.WORKSPACE) / "benchmarks"
    results = Store(folder / "report" / "results").results(run.known())
    assert (folder / "REPORT.md").read_text() == document.compose(results)


def test_figures_are_sorted_by_what_varies():
    rows = [made_up(str(b), "f", plain=PLAIN) for b in (4, 1, 2)]
    for result in rows:
        result["comparison"]["sizes"]["batch"] = int(result["comparison"]["name"])
    assert [readings.x_of(r) for r in readings.figures(rows)["f"]] == [1, 2, 4]
