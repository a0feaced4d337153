"""Staging: every page of the site in one folder, with links that stay inside it.

Pages of `docs/` keep their place. Documents of other folders that a site should have (`ELSEWHERE`) get a
page, and so does every source file that a page links to: the site works without the repository.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from docsite.colab import with_buttons

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "docs"
SOURCE = OUT / "source"

# Documents outside of docs/, and the page of the site that each becomes.
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/REPORT.md": "benchmarks.md",
    "configs/README.md": "configs.md",
    "examples/README.md": "examples/index.md",
    "examples/images.md": "examples/images.md",
    "examples/language_model.md": "examples/language_model.md",
    "examples/tabular.md": "examples/tabular.md",
    "examples/text.md": "examples/text.md",
}
LANGUAGES = {".py": "python", ".cc": "c++", ".h": "c++", ".cu": "c++", ".toml": "toml"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'^<a id="([^"]+)"></a>$', re.MULTILINE)
_INLINE_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*[ \t]*$", re.MULTILINE | re.DOTALL)


def stage_pages() -> None:
    """Writes the folder anew; what did not change keeps its time, so that Sphinx reads only the rest."""
    wanted: dict[Path, bytes] = {}
    for path in _documents():
        page = page_of(path)
        if path.suffix == ".md":
            text, needed = rewritten(with_buttons(path), path, page)
            wanted[page] = text.encode()
            for file in needed:
                wanted[page_of(file)] = _staged(file)
        else:
            wanted[page] = path.read_bytes()
    kept = {SOURCE / page for page in wanted}
    for old in [p for p in SOURCE.rglob("*") if p.is_file() and p not in kept]:
        if "reference" not in old.parts and old.name != "errors.md":
            old.unlink()
    for page, data in wanted.items():
        write(SOURCE / page, data)


def write(path: Path, data: bytes) -> None:
    """Writes a file if that changes it."""
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _documents() -> Iterator[Path]:
    for path in sorted((ROOT / "docs").rglob("*")):
        hidden = any(part.startswith((".", "__pycache__")) for part in path.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            yield path
    yield from (ROOT / name for name in ELSEWHERE if (ROOT / name).exists())


def page_of(path: Path) -> Path:
    """Where a file of the repository stands in the site."""
    name = path.relative_to(ROOT)
    if name.as_posix() in ELSEWHERE:
        return Path(ELSEWHERE[name.as_posix()])
    if name.as_posix() == "README.md":
        return Path("index.md")
    if path.suffix == ".ipynb":
        return Path("_static", "notebooks", path.name)
    if name.parts[0] == "docs":
        return name.relative_to("docs")
    if path.suffix in (".png", ".svg"):
        return Path("pictures", *name.parts)
    return Path("code", *name.parts[:-1], name.name + ".md")


def _staged(path: Path) -> bytes:
    """A picture as it is; a source file as a page."""
    if path.suffix in (".png", ".svg"):
        return path.read_bytes()
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    fence = "`" * 6
    language = LANGUAGES.get(path.suffix, "text")
    return (f"---\norphan: true\n---\n\n# {name}\n\n{fence}{language}\n{text}\n{fence}\n").encode()


def rewritten(text: str, origin: Path, page: Path) -> tuple[str, list[Path]]:
    """A document for the site, and the files that must be there for its links."""
    needed: list[Path] = []

    def change(match: re.Match[str]) -> str:
        return _changed(match, origin, page, needed)

    def prose(piece: str) -> str:
        targets = _ANCHOR.sub(r"(\1)=", _LINK.sub(change, piece))
        return _INLINE_ANCHOR.sub(r"[]{#\1}", targets)

    return outside_fences(text, prose), needed


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Applies a function to what is not inside a fenced block."""
    out, at = [], 0
    for fence in _FENCE.finditer(text):
        out += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*out, change(text[at:])])


def _changed(match: re.Match[str], origin: Path, page: Path, needed: list[Path]) -> str:
    """One link."""
    picture, label, target = match.groups()
    if re.match(r"[a-z]+:|#|<", target):
        return match[0]
    name, _, anchor = target.partition("#")
    file = Path(os.path.normpath(origin.parent / name))
    if not file.is_relative_to(ROOT) or not file.is_file():
        return match[0] if not file.exists() else label  # Sphinx complains; a folder has no page
    there = page_of(file)
    is_document = file.is_relative_to(ROOT / "docs") or there.as_posix() in ELSEWHERE.values()
    if not is_document and file.name != "README.md":
        needed.append(file)
    way = Path(os.path.relpath(there, page.parent)).as_posix()
    return f"{picture}[{label}]({way}{'#' + anchor if anchor else ''})"


def clean() -> None:
    """Removes what was staged and built; executed notebooks stay."""
    for folder in ("source", "html", "doctrees"):
        shutil.rmtree(OUT / folder, ignore_errors=True)
