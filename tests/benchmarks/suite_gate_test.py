"""The gate: ratios of today against the stored ones."""

import json

from support.results import PLAIN, TINY, made_up

from benchmarks.suite import comparisons, gate


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
