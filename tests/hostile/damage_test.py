"""Damaged ledgers: one error that says what is safe, or one step more on record, and nothing else."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
import tempfile
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

from bk_jax import privacy
from bk_jax.privacy import durable, ledger_file
from bk_jax.privacy.pages import newest
from hostile.runs import PLAN, new_run

pytestmark = pytest.mark.usefixtures("visible_keys")

PAGE = 4096
ERROR = "cannot be relied on as a ledger"


@pytest.fixture
def no_attributes(monkeypatch):
    """The file's content has to do without the extended attribute, as on some file systems."""
    monkeypatch.setattr(ledger_file, "marked_steps", lambda _: 0)


def with_content(change):
    """A run of its own, whose ledger's content was changed while it was closed."""
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(Path(folder, "run"))
        run.path.write_bytes(change(run.path.read_bytes()))
        return run.try_everything(run.path)


def damaged(content, where, what, length):
    """The content with some of its bytes changed, cut out or put in."""
    before, middle, after = (
        content[:where],
        content[where : where + length],
        content[where + length :],
    )
    return {
        "flip": before + bytes(byte ^ length % 255 + 1 for byte in middle) + after,
        "zero": before + bytes(len(middle)) + after,
        "cut": before + after,
        "insert": before + middle + middle + after,
        "end": before,
    }[what]


DAMAGE = st.tuples(
    st.integers(0, 2 * PAGE - 1),
    st.sampled_from(["flip", "zero", "cut", "insert", "end"]),
    st.one_of(st.just(1), st.integers(1, 2 * PAGE)),
)


@hypothesis.given(st.lists(DAMAGE, min_size=1, max_size=3))
@hypothesis.settings(max_examples=100)
@pytest.mark.usefixtures("no_attributes")
def test_any_damage_is_refused_or_costs_a_step(damages):
    with_content(lambda content: functools.reduce(lambda c, d: damaged(c, *d), damages, content))


@pytest.mark.usefixtures("no_attributes")
@pytest.mark.parametrize(("page", "steps"), [(0, 3), (1, 2)], ids=["older page", "newer page"])
def test_one_damaged_page_may_have_been_a_step(page, steps):
    errors = with_content(lambda content: damaged(content, page * PAGE + 100, "flip", 1))
    assert f"{steps} steps on record" in errors[0]
    assert len(errors) == 1, "with forfeit=True it goes on"


def test_a_damaged_page_of_a_spent_ledger_changes_nothing(run):
    with privacy.open_ledger(run.path, forfeit=True) as ledger:
        list(ledger)
    run.path.write_bytes(damaged(run.path.read_bytes(), PAGE + 100, "flip", 1))
    with privacy.open_ledger(run.path, forfeit=True) as ledger:
        assert ledger.steps == PLAN.steps


def contents(run):
    """The content of the file after 2, 3, 4, 5 and 6 steps; records 3 to 7 are the last ones."""
    yield run.path.read_bytes()
    with privacy.open_ledger(run.path, forfeit=True) as ledger:
        for _ in range(4):
            ledger.take()
            yield run.path.read_bytes()


def test_pages_of_different_times_are_not_put_together(run):
    """Records 3 and 2, 3 and 4, 5 and 4, 5 and 6, 7 and 6: pages 0 hold even ones."""
    two, three, _, _, six = contents(run)
    for first, second, steps in ((two, two, 2), (three, two, 3), (three, three, 3)):
        assert newest(run.path, first[:PAGE] + second[PAGE:]).steps == steps
    for first, second in ((two, six), (six, two)):
        with pytest.raises(privacy.LedgerError, match="two records that do not follow one another"):
            newest(run.path, first[:PAGE] + second[PAGE:])
    with pytest.raises(privacy.LedgerError, match="a record in the other one's page"):
        newest(run.path, six[PAGE:] + six[:PAGE])
    assert newest(run.path, six[PAGE:] * 2).steps == 7, "one of the two may have been a step"


@pytest.mark.usefixtures("no_attributes")
def test_a_changed_plan_is_not_believed():
    errors = with_content(lambda content: content.replace(b"4.0", b"0.1"))
    assert len(errors) == 4
    assert all(f"{ERROR} (a checksum that does not fit)" in error for error in errors)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"{}" + bytes(2 * PAGE - 2),
        b"[" * 2 * PAGE,
        b"{" * 2 * PAGE,
        b'{"a":' * 1600,
        b'{"format": 1}',
        b'{"format": 3}',
        b'{"format": 1, "steps": 1}',
        bytes(2 * PAGE),
    ],
)
def test_what_is_no_ledger_gives_one_error_that_says_what_is_safe(content):
    for error in with_content(lambda _: content):
        assert ERROR in error
        assert "What is safe: put the newest good copy of the file back and pass fork=True" in error


def signed(fields):
    """A page with a checksum that fits, as only somebody who means it can write one."""
    body = b" " + json.dumps(fields).encode().ljust(PAGE - 66) + b"\n"
    return hashlib.sha256(body).hexdigest().encode() + body


def places(value, path=()):
    """All places in a tree of JSON, the whole first."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def put(tree, path, value):
    if not path:
        return value
    tree = copy.copy(tree)
    tree[path[0]] = put(tree[path[0]], path[1:], value)
    return tree


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"100.0", b"100"),
        (b": []", b":[]"),
        (b'"steps": 2', b'"steps": 0, "steps": 2'),
        (b"[]", b"{}"),
    ],
)
def test_what_bk_jax_would_write_in_another_way_is_refused(old, new):
    def change(content):
        body = content[PAGE + 64 :].replace(old, new, 1).ljust(PAGE)[: PAGE - 64]
        return (hashlib.sha256(body).hexdigest().encode() + body) * 2

    errors = with_content(change)
    assert len(errors) == 4
    assert all("a record that bk_jax did not write" in error for error in errors[:1])


@pytest.mark.parametrize("word", [0.5, 7.0, "7", None, True, -1, 2**32])
def test_the_secret_is_not_shown_by_errors_or_by_printing(word):
    secret = []

    def change(content):
        fields = json.loads(content[64:PAGE])
        secret[:] = fields["key"]
        return signed(fields | {"key": [word, *secret[1:]]}) * 2

    errors = with_content(change)
    assert all("key must be 8 words of 32 bits" in error for error in errors)
    assert not any(str(word) in error for error in errors for word in secret)


def value_at(tree, path):
    return functools.reduce(lambda branch, key: branch[key], path, tree)


OTHERS = [None, True, 0.5, 7.0, -1, float("nan"), "7", "", [], {}, [[[[1]]]], {"a": 7}]


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=100)
def test_a_value_of_another_type_is_refused_even_if_the_checksum_fits(data):
    def change(content):
        pages = [json.loads(page[64:]) for page in (content[:PAGE], content[PAGE:])]
        path = data.draw(st.sampled_from(list(places(pages[0]))))
        others = [x for x in OTHERS if type(x) is not type(value_at(pages[0], path))]
        other = data.draw(st.sampled_from(others))
        return b"".join(signed(put(page, path, other)) for page in pages)

    errors = with_content(change)
    assert len(errors) == 4
    assert all(ERROR in error for error in errors)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_becomes_a_device_after_the_first_look_is_not_read_either(tmp_path, monkeypatch, make):
    looks_good = os.stat(__file__)
    make(tmp_path / "changed")
    monkeypatch.setattr(os, "stat", lambda _: looks_good)
    with pytest.raises(ValueError, match=r"it is no regular file, but [pdc]rw"):
        durable.read_regular(tmp_path / "changed", 2**20)
