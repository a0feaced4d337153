"""Pages that are wider than a phone are found, by a browser."""

from __future__ import annotations

import pytest

from docsite import widths

PAGE = '<!doctype html><meta name="viewport" content="width=device-width"><body>{}</body>'


@pytest.fixture
def site(tmp_path):
    """A page that fits, one with a long word, and pages that nobody reads as such."""
    (tmp_path / "reference").mkdir()
    (tmp_path / "code").mkdir()
    long = PAGE.format(f"<code>{'x' * 200}</code>")
    (tmp_path / "fits.html").write_text(
        PAGE.format(f'<div style="overflow-x: auto"><code>{"x" * 200}</code></div>')
    )
    (tmp_path / "reference" / "long name.html").write_text(long)
    (tmp_path / "code" / "source.html").write_text(long)
    return tmp_path


def test_a_page_that_scrolls_sideways_is_found(site):
    pages = widths.pages_of(site)
    assert [page.name for page in pages] == ["fits.html", "long name.html"]
    ((page, needed),) = widths.too_wide(pages).items()
    assert page.name == "long name.html"
    assert needed > 200 * 5


def test_the_command_names_it_and_fails(site, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["widths", str(site)])
    with pytest.raises(SystemExit) as stopped:
        widths.main()
    assert stopped.value.code
    assert "reference/long name.html is" in capsys.readouterr().out


def test_a_browser_that_did_not_look_is_an_error(site, monkeypatch):
    monkeypatch.setattr(widths, "_SCRIPT", "<pre></pre>%(width)d%(pages)s")
    with pytest.raises(RuntimeError, match="did not look at all 2 pages: try again"):
        widths.too_wide(widths.pages_of(site))
