"""The suite of comparisons: what is read, stored, found and written. No time is asserted."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import run_python

from benchmarks.ops.resident import peak_while
from benchmarks.steps import step_models
from benchmarks.suite import (
    child,
    comparisons,
    document,
    gate,
    largest,
    losses,
    plots,
    readings,
    run,
    worker,
)
from benchmarks.suite.comparisons import Comparison
from benchmarks.suite.store import Store
from bk_jax.overhead import timing
from bk_jax.planning.methods import METHODS

TINY = Comparison("tiny", "time", "mlp", {"batch": 2, "width": 4, "depth": 1}, ("auto",))


# --- comparisons ---


@pytest.mark.parametrize("profile", ["quick", "full", "peers", "check", "tiny"])
def test_every_comparison_of_a_profile_can_be_made(profile):
    peers = {
        "jax_privacy",
        "jax_privacy, loop",
        "optax",
        "bk_jax",
        "opacus, hooks",
        "opacus, ghost",
    }
    for one in comparisons.read(profile):
        assert set(one.steps) <= {*METHODS, "noise"} | peers
        assert step_models.make(one.model, abstract=True, **one.sizes)
        assert (one.kind == "largest") == (one.limit > 0)
        assert comparisons.from_dict(json.loads(json.dumps(one.as_dict()))) == one


def test_profiles_share_no_name_so_that_results_do_not_overwrite_each_other():
    names = [
        one.name for profile in ("quick", "full", "peers") for one in comparisons.read(profile)
    ]
    assert len(names) == len(set(names))


def test_the_full_profile_times_every_method_on_every_model_that_the_paper_trains():
    full = [one for one in comparisons.read("full") if one.kind == "time" and not one.figure]
    assert {one.model for one in full} == step_models.MODELS.keys() - {"mlp", "mlp_shallow"}
    assert all({*METHODS, "noise"} == set(one.steps) for one in full)
    assert any(set(one.steps) > set(METHODS) for one in comparisons.read("quick"))


def test_what_varies_becomes_a_figure():
    rows = [one for one in comparisons.read("tiny") if one.figure]
    assert [(one.name, one.x, one.sizes["batch"]) for one in rows] == [
        ("tiny-memory-batch-2", "batch", 2),
        ("tiny-memory-batch-4", "batch", 4),
    ]


def test_scaling_makes_sizes_smaller_and_another_result():
    one = dataclasses.replace(TINY, sizes={"batch": 8, "length": 100, "size": 224, "words": 50})
    half = comparisons.scaled(one, 0.5)
    assert half.sizes == {"batch": 4, "length": 50, "size": 128, "words": 50}
    assert (half.name, half.title) == ("tiny-scale-0.5", "mlp, scaled by 0.5")
    assert comparisons.scaled(one, 0.01).sizes == {"batch": 1, "length": 1, "size": 32, "words": 50}
    assert comparisons.scaled(one, 1.0) is one


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="no profile 'slow'; profiles are check, full, peers"):
        comparisons.read("slow")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\nkind = "speed"', "a has the kind 'speed'; kinds are time, memory"),
        (
            'name = "a"\nkind = "time"\n[[comparison]]\nname = "a"\nkind = "time"',
            "more than one.* a",
        ),
    ],
)
def test_a_wrong_profile_is_refused(tmp_path, monkeypatch, text, message):
    rest = '\nmodel = "mlp"\nsizes = {}\nsteps = []'
    text = "[[comparison]]\n" + text.replace("\n[[comp", rest + "\n[[comp") + rest
    (tmp_path / "wrong.toml").write_text(text)
    monkeypatch.setattr(comparisons, "CONFIGS", tmp_path)
    with pytest.raises(ValueError, match=message):
        comparisons.read("wrong")


# --- timing ---


def test_every_candidate_runs_between_two_baselines():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    timed = timing.compare_all(lambda: calls.append("p"), runs, budget=0.0, least=2)
    assert {name: found.pairs for name, found in timed.items()} == {"a": 2, "b": 2}
    order = [name for i, name in enumerate(calls) if i == 0 or name != calls[i - 1]]
    assert "".join(order) == "pab" + "papbp" + "bpap"


def test_the_baseline_among_the_candidates_has_no_timer_of_its_own(monkeypatch):
    made = []

    class Counted(timing.Timer):
        def __init__(self, run, wait):
            made.append(run)
            super().__init__(run, wait)

    def plain():
        return sum(range(1000))

    def other():
        return sum(range(2000))

    monkeypatch.setattr(timing, "Timer", Counted)
    runs = {"plain": plain, "other": other}
    assert list(timing.compare_all(plain, runs, budget=0.0)) == ["plain", "other"]
    assert made == [plain, other]


def test_ratios_are_medians_over_turns():
    found = timing.summarize([(1.0, 2.0), (1.0, 3.0), (1.0, 10.0)])
    assert comparisons.as_result(found) == {
        "seconds": 3.0, "ratio": 3.0, "low": 2.0, "high": 10.0, "turns": 3,
    }  # fmt: skip
    assert found.baseline == 1.0


def test_programs_of_other_frameworks_are_timed_without_jax():
    run_python("""
        import sys
        from bk_jax.overhead.timing import compare_all
        timed = compare_all(int, {"plain": int}, budget=0.0, wait=lambda out: out)
        assert timed["plain"].pairs == 4 and "jax" not in sys.modules
    """)


def test_resident_memory_sees_an_array():
    size = 64 << 20
    small, large = peak_while(lambda: None), peak_while(lambda: bytearray(size).count(1))
    if small is None:
        pytest.skip("this kernel does not say")
    assert large - small > size // 2


# --- the largest batch ---


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
@pytest.mark.parametrize(
    ("memory", "limit", "expected"),
    [
        (lambda b: 10 + 3 * b, 9, 0),
        (lambda b: 10 + 3 * b, 13, 1),
        (lambda b: 10 + 3 * b, 100, 30),
        (lambda b: 10 + 3 * b, 3_000_010, 1_000_000),
        (lambda b: b * b, 10_000, 100),
        (lambda b: 64 * ((b + 63) // 64), 1000, 960),
    ],
)
def test_the_largest_batch_fits_and_the_next_does_not(memory, limit, expected, tolerance):
    found = largest.largest_batch(memory, limit, tolerance)
    assert expected * (1 - tolerance) - 1 < found <= expected
    if tolerance == 0:
        assert found == expected


def test_few_batches_are_compiled():
    asked = []
    largest.largest_batch(lambda b: asked.append(b) or 1000 + 7 * b, 1_000_000)
    assert len(asked) <= 5


# --- worker ---


@pytest.fixture(scope="module")
def timed_result():
    one = dataclasses.replace(TINY, steps=("auto", "noise"), budget=0.0, least=1)
    return {"comparison": one.as_dict(), **worker.measure_time(one)}


def test_a_timed_comparison_says_what_a_step_needs(timed_result):
    assert list(timed_result["steps"]) == ["plain", "auto", "noise"]
    for step in timed_result["steps"].values():
        assert {"seconds", "ratio", "low", "high", "turns", "trace", "compile"} < step.keys()
        parameters = 4 * (4 * 4 + 4 + 4 * 10 + 10)
        assert step["peak"] >= 2 * parameters + step["temporary"]


class FakeTraced:
    """Stands for a traced step; steps of one `program` are the same."""

    def __init__(self, program, peak):
        self.program, self.peak = program, peak

    def fingerprint(self):
        return self.program

    def compile(self):
        return worker.Compiled(lambda: 0, 0.0, 0.0, 0, self.peak)


def test_what_does_not_fit_into_memory_is_not_run(monkeypatch):
    one = dataclasses.replace(TINY, steps=("opacus",), budget=0.0, least=1)
    peaks = {"plain": 1, "opacus": 10**15}
    monkeypatch.setattr(worker, "trace_step", lambda task, name: FakeTraced(name, peaks[name]))
    steps = worker.measure_time(one)["steps"]
    assert steps["opacus"]["skipped"] == "needs 1000000.0 GB"
    assert "ratio" not in steps["opacus"]
    assert "ratio" in steps["plain"]


def test_steps_that_are_the_same_program_are_measured_once(monkeypatch):
    asked = []

    def trace_step(task, name):
        traced = FakeTraced({"auto": "bk"}.get(name, name), len(name))
        traced.compile = lambda: asked.append(name) or FakeTraced.compile(traced)
        return traced

    monkeypatch.setattr(worker, "trace_step", trace_step)
    one = dataclasses.replace(TINY, steps=("bk", "auto", "opacus"), budget=0.0, least=1)
    steps = worker.measure_time(one)["steps"]
    assert asked == ["plain", "bk", "opacus"]
    assert list(steps) == ["plain", "bk", "auto", "opacus"]
    assert steps["auto"] == {**steps["bk"], "same_as": "bk"}
    assert "same_as" not in steps["opacus"]


def test_methods_that_choose_alike_are_the_same_program():
    one = dataclasses.replace(TINY, steps=("bk", "bk_mix_opt", "opacus"), kind="memory")
    steps = worker.measure_memory(one)["steps"]
    assert {name: step.get("same_as") for name, step in steps.items()} == {
        "plain": None, "bk": None, "bk_mix_opt": "bk", "opacus": None,
    }  # fmt: skip


def test_the_largest_batch_of_a_step_comes_from_its_peak(monkeypatch):
    def trace_step(task, name):
        batch = task.batch[0].shape[0]
        factor = {"plain": 1, "opacus": 10, "auto": 10}[name]
        return FakeTraced((factor, batch), 100 + batch * factor)

    monkeypatch.setattr(worker, "trace_step", trace_step)
    one = dataclasses.replace(TINY, steps=("opacus", "auto"), limit=600.0)
    batches = {name: step["batch"] for name, step in worker.measure_largest(one)["steps"].items()}
    assert list(batches) == ["plain", "opacus", "auto"]
    assert 495 <= batches["plain"] <= 500
    assert 49 <= batches["opacus"] == batches["auto"] <= 50


# --- processes and files ---


def test_a_comparison_runs_in_a_process_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = child.run(dataclasses.replace(TINY, kind="memory"), tmp_path)
    assert list(result["steps"]) == ["plain", "auto"]


def test_programs_of_other_frameworks_find_what_they_share(tmp_path):
    environment = child.environment(dataclasses.replace(TINY, kind="torch"))
    shared = "import benchmarks.ops.resident, benchmarks.suite.comparisons, bk_jax.overhead.timing"
    subprocess.run([sys.executable, "-c", shared], env=environment, cwd=tmp_path, check=True)


def test_a_process_that_fails_is_a_result_with_its_last_words(monkeypatch, tmp_path):
    monkeypatch.setattr(
        child, "command", lambda *_: [sys.executable, "-c", "raise SystemExit('no')"]
    )
    assert child.run(TINY, tmp_path) == {"error": "exit code 1: no"}


def test_a_missing_environment_says_what_to_run(tmp_path):
    one = dataclasses.replace(TINY, kind="torch")
    assert child.run(one, tmp_path)["error"].endswith("is not there; run tools/peers.py")


def test_only_whole_results_of_the_same_comparison_are_done(tmp_path):
    store = Store(tmp_path)
    assert not store.done(TINY)
    store.save(TINY, {"error": "killed"})
    assert not store.done(TINY)
    store.save(TINY, {"steps": {}})
    assert store.done(TINY)
    assert not store.done(dataclasses.replace(TINY, sizes={"batch": 3}))
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.json"]


# --- what is made of results ---


def made_up(name="tiny", figure="", **steps):
    """A result; a step is (ratio, low, high, peak)."""
    one = dataclasses.replace(
        TINY, name=name, title="Tiny", figure=figure, x="batch" if figure else ""
    )
    keys = ("ratio", "low", "high", "peak")
    filled = {
        step: {**dict(zip(keys, numbers, strict=True)), "seconds": numbers[0], "turns": 3}
        for step, numbers in steps.items()
    }
    origin = {
        "machine": "A CPU, 2 cores, load 0.1, today\nXLA's gemm",
        "memory": "8 GiB",
        "flags": "none",
        "commit": "abc",
        "took": 90.0,
    }
    return {"comparison": one.as_dict(), "steps": filled, **origin}


PLAIN = (1.0, 0.98, 1.02, 100)


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
    result["steps"] = {
        name: {"batch": n} for name, n in {"plain": 101, "opacus": 9, "auto": 98}.items()
    }
    assert losses.losses([result]) == [
        "Tiny, B=2, width=4, depth=1: a smaller largest batch than not private (101 against 98)."
    ]


@pytest.mark.parametrize(("seconds", "lost"), [(3.0, 0), (5.0, 1)])
def test_far_longer_compilation_is_a_loss(seconds, lost):
    result = made_up(plain=PLAIN, auto=PLAIN)
    result["steps"]["plain"] |= {"trace": 0.5, "compile": 1.5}
    result["steps"]["auto"] |= {"trace": 0.5, "compile": seconds}
    found = losses.losses([result])
    assert len(found) == lost
    assert all("compile than not private (2.0 s against 5.5 s)" in line for line in found)


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
    folder = Path(run.WORKSPACE) / "benchmarks"
    results = Store(folder / "report" / "results").results(run.known())
    assert (folder / "REPORT.md").read_text() == document.compose(results)


def test_figures_are_sorted_by_what_varies():
    rows = [made_up(str(b), "f", plain=PLAIN) for b in (4, 1, 2)]
    for result in rows:
        result["comparison"]["sizes"]["batch"] = int(result["comparison"]["name"])
    assert [readings.x_of(r) for r in readings.figures(rows)["f"]] == [1, 2, 4]


# --- the gate ---


def test_a_step_fails_when_its_interval_is_above_the_stored_ratio():
    result = made_up(plain=PLAIN, auto=(1.2, 1.15, 1.3, 1), bk=(1.2, 1.05, 1.3, 1))
    stored = {"auto": 1.0, "bk": 1.0, "gone": 1.0}
    assert gate.too_high(result, stored, 0.1) == [
        "auto: 1.200 (1.150 .. 1.300), stored 1.000",
        "gone: not measured, stored 1.000",
    ]
    assert gate.too_high(result, {"auto": 1.05}, 0.1) == []


def test_one_good_try_is_enough(monkeypatch, capsys):
    slow, fast = (made_up(plain=PLAIN, auto=(r, r, r, 1)) for r in (2.0, 1.0))
    tries = iter([slow, fast])
    monkeypatch.setattr(gate, "measure", lambda one: next(tries))
    assert gate.check(TINY, {"auto": 1.0}, 0.1, 3)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "ok      tiny: auto: 1.000 (1.000 .. 1.000), stored 1.000"
    monkeypatch.setattr(gate, "measure", lambda one: slow)
    assert not gate.check(TINY, {"auto": 1.0}, 0.1, 2)


def test_what_is_not_stored_does_not_pass(monkeypatch, capsys):
    monkeypatch.setattr(gate, "measure", None)  # is not asked for
    assert not gate.check(TINY, {}, 0.1, 3)
    assert "unknown tiny: nothing is stored" in capsys.readouterr().out


def test_an_update_keeps_other_instruction_sets_and_known_comparisons(monkeypatch, tmp_path):
    result = made_up(plain=PLAIN, auto=(1.23456, 1, 2, 1))
    monkeypatch.setattr(gate, "measure", lambda one: result)
    monkeypatch.setattr(gate, "TABLE", tmp_path / "ratios.json")
    known = comparisons.read("check")[1]
    table = {"avx2": {"a": {}}, "neon": {known.name: {"auto": 1.0}, "forgotten": {"auto": 1.0}}}
    gate.update([TINY], "neon", table)
    assert json.loads((tmp_path / "ratios.json").read_text()) == {
        "avx2": {"a": {}},
        "neon": {known.name: {"auto": 1.0}, "tiny": {"auto": 1.235}},
    }


def test_ratios_are_stored_for_every_comparison_of_the_gate():
    wanted = {one.name: set(one.steps) for one in comparisons.read("check")}
    table = json.loads(gate.TABLE.read_text())
    assert "avx2" in table
    for stored in table.values():
        assert {name: set(ratios) for name, ratios in stored.items()} == wanted
