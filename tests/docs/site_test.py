"""The site, as far as it can be seen without building it: every page, name and error has its place."""

from __future__ import annotations

import re

import pytest
from support.documents import ROOT

import bk_jax
from docsite import elsewhere, errors, links, messages, offline, reach, reference, rooms
from docsite.markdown import to_markdown
from docsite.public_names import has_example, public_names
from docsite.reference import entry

# Of modules whose library is not in this environment: the code of their pages runs in `make test-peers`.
PEERS = ("bk_jax.interop.keras", "bk_jax.interop.jax_privacy")
GENERATED = {"reference/index", "errors"}


def in_toctrees() -> list[str]:
    text = (ROOT / "docs" / "index.md").read_text()
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if re.match(r"[a-z]", line)]


def test_every_page_is_in_one_place_of_the_navigation():
    pages = [links.page_of(path) for path in links._documents() if path.suffix == ".md"]
    names = {page.with_suffix("").as_posix() for page in pages} - {"index"}
    listed = in_toctrees()
    assert len(listed) == len(set(listed))
    assert set(listed) == names | GENERATED, "add new pages to a toctree of docs/index.md"


NAMES = list(public_names())


@pytest.mark.parametrize("public", NAMES, ids=lambda public: public.full)
def test_every_public_name_has_an_entry_with_an_example(public):
    text = entry(public)
    assert public.full in text.splitlines()[0]
    if callable(public.value) and public.module not in PEERS:
        assert has_example(public.value), f"add an example to the docstring of {public.full}"
        assert "```pycon" in text


def test_a_page_of_the_reference_begins_with_its_names():
    for module in {public.module for public in NAMES}:
        names = [public for public in NAMES if public.module == module]
        ordered = reference.in_order(names)
        assert set(ordered) == set(names)
        links = re.findall(r"^\| \{py:obj\}`(\w+) <(.*)>` \| .", reference.contents(ordered), re.M)
        assert links == [(public.name, public.full) for public in ordered]
    assert set(reference.FIRST) <= {public.name for public in NAMES}
    first = [p for p in NAMES if p.module == "bk_jax"]
    assert reference.in_order(first)[0].name == "dp_value_and_grad"


def test_every_error_has_a_cause_and_a_cure():
    assert len(errors.every_error()) > 250
    assert not errors.without_cure(), "say what to do in the message, or in tools/docsite/cures.py"


def test_no_cure_is_for_a_message_that_is_gone():
    texts = [error.text for error in errors.every_error()]
    assert not [start for start in errors.CURES if not any(t.startswith(start) for t in texts)]


def test_anchors_of_errors_are_unique():
    anchors = [error.anchor for error in errors.every_error()]
    assert len(anchors) == len(set(anchors))


def test_the_beginning_of_a_long_message_ends_with_a_word():
    text = "l2_clip_norm must be a scalar, " + "or a tree of scalars with one for each " * 3
    shown = errors.short(text).removesuffix(" …")
    assert errors.plain(text).startswith(shown + " ")
    assert errors.short("w is `3`.") == "w is 3."


def test_every_section_of_the_errors_has_a_title():
    assert {error.room for error in errors.every_error()} <= set(rooms.ROOMS)
    assert set(rooms.GUESTS.values()) <= set(rooms.ROOMS)


def test_links_to_the_errors_lead_somewhere(tmp_path, monkeypatch):
    there = set(re.findall(r"^\((.+)\)=$", errors.page(), flags=re.MULTILINE))
    monkeypatch.setattr("sys.argv", ["reference", str(tmp_path)])
    reference.main()
    pages = [path.read_text() for path in (tmp_path / "reference").glob("*.md")]
    wanted = {name for page in pages for name in re.findall(r"\(\.\./errors\.md#([^)]+)\)", page)}
    assert len(wanted) > 200
    assert wanted <= there


def test_placeholders_are_words():
    texts = [error.text for error in errors.every_error()]
    found = {word for text in texts for word in re.findall(r"\{([^'}]*)\}", text)}
    assert not [word for word in found if not re.fullmatch(r"[a-z1][\w ]*", word)]


def test_warnings_log_messages_and_causes_of_audits_are_listed():
    found = [error.exception for error in errors.every_error()]
    assert {"RuntimeWarning", "HloWarning", "HandedOverWarning", messages.LOGGED} <= set(found)
    assert "BatchSizedConstantWarning" in found
    assert found.count("AuditError") > 15


def test_few_cures_only_restate_the_message():
    cured = [errors.cause_and_cure(error)[1] for error in errors.every_error()]
    assert sum(cure.startswith("Give what it asks for") for cure in cured) < 30


def test_every_finding_and_every_expectation_of_a_custom_call_is_listed():
    assert all(other.cure for other in elsewhere.LINT)
    listed = " ".join(
        [*elsewhere.EXPECTED, *elsewhere.EXPECTED.values(), "none another whole streams"]
    )
    for path in (ROOT / "xla_plugin").rglob("*.cc"):
        for call in re.findall(r"return Mismatch\(([^;]*)\);", path.read_text()):
            words = re.findall(r'"((?:[^"\\]|\\.)*)"', call)
            longest = max(words, key=len, default="").replace('\\"', '"').strip()
            assert longest in listed, f"{path.name}: {longest}"


def test_the_errors_of_a_name_are_those_that_it_goes_through():
    texts = [error.text for error in reach.errors_of(bk_jax.dp_value_and_grad)]
    assert any(text.startswith("normalize_by must be") for text in texts)  # of validate.py
    assert "bk_jax.mechanisms.BandedInverse" in {
        public.full for public in NAMES if reach.errors_of(public.value)
    }
    longest = max((entry(public) for public in NAMES), key=lambda text: text.count("errors.md#e"))
    assert longest.count("errors.md#e") == reference.LISTED


def test_cause_and_cure_of_a_message_that_says_both():
    error = errors.Error("validate.py", 1, "ValueError", "x is 3. Pass 4 instead.")
    assert errors.cause_and_cure(error) == ("x is 3.", "Pass 4 instead.")
    asked = error._replace(text="x must be a number, got {x}.")
    assert errors.cause_and_cure(asked)[1] == "Give what it asks for: x must be a number."
    assert errors.cause_and_cure(error._replace(text="x is wrong"))[1] == ""


def test_links_stay_inside_the_site():
    origin = ROOT / "docs" / "tour.md"
    text, needed = links.rewritten(
        "[a](../python/bk_jax/noise.py) [b](privacy.md#sampling) [c](../CONTRIBUTING.md) [d](#x)\n"
        "```python\n[e](../README.md)\n```\n[f](../python/bk_jax)",
        origin,
        links.page_of(origin),
    )
    assert needed == [ROOT / "python" / "bk_jax" / "noise.py"]
    assert text.splitlines()[0] == (
        "[a](code/python/bk_jax/noise.py.md) [b](privacy.md#sampling) [c](contributing.md) [d](#x)"
    )
    assert "[e](../README.md)" in text  # code is left alone
    assert text.endswith("\nf")  # a folder has no page


def test_a_table_and_code_of_a_docstring_stay_what_they_are():
    doc = "Says.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n    x = 1\n\n    y = 2\n\nRaises:\n  E: why."
    assert to_markdown(doc) == (
        "Says.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n\ny = 2\n```\n\n"
        "**Raises**\n\n- **E**: why."
    )


def test_what_a_page_loads_from_another_host_is_found():
    page = '<link rel="stylesheet" href="//cdn.x/a.css"><img src="b.png"><a href="https://c.d">'
    assert offline.loaded_from_elsewhere(page, is_style=False) == ["//cdn.x/a.css"]
    style = "@import 'https://fonts.x/f.css'; a { background: url(b.png) }"
    assert offline.loaded_from_elsewhere(style, is_style=True) == ["https://fonts.x/f.css"]
