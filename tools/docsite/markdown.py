"""Docstrings as Markdown: sections become lists, examples and indented code become fenced blocks."""

from __future__ import annotations

import re

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


def to_markdown(doc: str) -> str:
    r"""The docstring of a public name, for a page.

    >>> print(to_markdown("Doubles.\n\nArgs:\n  x: a number,\n    or two.\n\n>>> 1 + 1\n2"))
    Doubles.
    <BLANKLINE>
    **Arguments**
    <BLANKLINE>
    - **x**: a number, or two.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_block(block) for block in _blocks(doc))


def _blocks(doc: str) -> list[list[str]]:
    """Lines between empty lines; indented blocks that follow each other are one."""
    blocks: list[list[str]] = []
    for text in re.split(r"\n(?:[ \t]*\n)+", doc.strip("\n")) if doc.strip() else []:
        lines = text.splitlines()
        continues = blocks and _is_code(blocks[-1]) and _is_code(lines)
        example = blocks and _is_example(blocks[-1]) and _is_example(lines)
        if continues or example:
            blocks[-1] += ["", *lines]
        else:
            blocks.append(lines)
    return blocks


def _is_code(lines: list[str]) -> bool:
    return all(line.startswith("    ") for line in lines if line.strip())


def _is_example(lines: list[str]) -> bool:
    return lines[0].startswith(">>> ")


def _block(lines: list[str]) -> str:
    section = re.fullmatch(rf"({'|'.join(SECTIONS)}):", lines[0])
    if section:
        return _section(section[1], lines[1:])
    if _is_example(lines):
        return "\n".join(["```pycon", *lines, "```"])
    if _is_code(lines):
        return "\n".join(["```python", *(line[4:] for line in lines), "```"])
    return "\n".join(lines)


def _section(name: str, lines: list[str]) -> str:
    """Arguments and the like as a list; what is returned as a paragraph."""
    title = f"**{'Arguments' if name == 'Args' else name}**"
    least = min(len(line) - len(line.lstrip()) for line in lines)
    text = [line[least:] for line in lines]
    if name in ("Returns", "Yields"):
        return f"{title}: " + " ".join(line.strip() for line in text)
    items: list[str] = []
    for line in text:
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        else:
            key, _, rest = line.partition(":")
            items.append(f"- **{key}**:{rest}")
    return "\n".join([title, "", *items])
