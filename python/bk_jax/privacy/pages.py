"""The two pages of a ledger's file, and the record that they yield.

Records are numbered and written to the pages in turn, so of two intact pages the later one counts.
If one page is damaged, say because the machine lost power during the write, the other is at most
one step behind: the record is read as if that step had been taken. Anything else is an error.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bk_jax.privacy.record import PAGE, LedgerError, Record

SIZE = 2 * PAGE


def first_pages(record: Record) -> bytes:
    """The content of a file that begins with this record."""
    first, second = (dataclasses.replace(record, serial=serial) for serial in (0, 1))
    return first.to_page() + second.to_page()


def offset_of(record: Record) -> int:
    """The offset of a record's page."""
    return PAGE * (record.serial % 2)


def newest(path: Path, content: bytes) -> Record:
    """The record in the content of a file; `LedgerError` if there is none to rely on."""
    try:
        if content.startswith(b"{"):
            return Record.from_first_format(content)
        if len(content) != SIZE:
            raise ValueError(f"it has {len(content)} bytes instead of {SIZE}")
        return _newest_of_two(content)
    except ValueError as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, why: str) -> LedgerError:
    """What is wrong with a file, and what to do about it."""
    return LedgerError(
        f"{path} cannot be relied on as a ledger ({why}): nobody knows what has been spent. What is "
        "safe: put the newest good copy of the file back and pass fork=True, and add what was spent "
        "after that copy; or count the whole plan as spent, and start a new ledger under another path. "
        "Starting over as if nothing had been spent is not."
    )


def _newest_of_two(content: bytes) -> Record:
    records, problems = [], []
    for offset in (0, PAGE):
        try:
            record = Record.from_page(content[offset : offset + PAGE])
            if offset_of(record) != offset:
                raise ValueError("a record in the other one's page")
            records.append(record)
        except ValueError as problem:
            problems.append(problem)
    if not records:
        raise ValueError(str(problems[0]))
    last = max(records, key=lambda record: record.serial)
    if problems:
        return dataclasses.replace(last, steps=min(last.steps + 1, last.plan.steps))
    if abs(records[0].serial - records[1].serial) != 1:
        raise ValueError("two records that do not follow one another")
    return last
