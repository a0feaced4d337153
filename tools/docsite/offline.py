"""Offline: the built pages load nothing from another host."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|embed)\b[^>]*\bsrc=["']((?:https?:)?//[^"']+)"""
    r"""|<link\b(?=[^>]*\brel=["'](?:stylesheet|preload|icon))[^>]*\bhref=["']((?:https?:)?//[^"']+)"""
)
_STYLES = re.compile(r"""(?:@import\s+|url\()["']?((?:https?:)?//[^"')]+)""")


def loaded_from_elsewhere(text: str, is_style: bool) -> list[str]:
    """Addresses of other hosts that a page or style sheet loads from.

    >>> loaded_from_elsewhere('<script src="https://a.b/c.js"></script><a href="https://d.e">', False)
    ['https://a.b/c.js']
    """
    pattern = _STYLES if is_style else _LOADED
    return [next(filter(None, match.groups())) for match in pattern.finditer(text)]


def check_offline(folder: Path) -> None:
    """Ends the program if a page of the folder would not be whole without a network."""
    found = [
        f"{path.relative_to(folder)} loads {address}"
        for suffix in ("html", "css")
        for path in sorted(folder.rglob(f"*.{suffix}"))
        for address in loaded_from_elsewhere(path.read_text(), suffix == "css")
    ]
    if found:
        sys.exit("the site needs a network:\n" + "\n".join(found[:20]))
