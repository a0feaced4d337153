"""One record of a ledger: what it holds, and how it becomes a page of the file.

A page is a checksum of everything after it, one line of JSON, and spaces. The checksum catches
accidents and manual edits. It is not a signature: whoever can write the file can write a checksum.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import secrets
import struct
from typing import Any

from bk_jax.ops.chacha import KEY_WORDS
from bk_jax.privacy import checks
from bk_jax.privacy.durable import MALFORMED
from bk_jax.privacy.place import Place
from bk_jax.privacy.plans import Plan, from_fields, to_fields

FORMAT = 2
PAGE = 4096  # of memory and of most disks: a crash while one page is written leaves others alone
CHECKSUM = 64  # hexadecimal digits of SHA-256


class LedgerError(RuntimeError):
    """The ledger refuses: going on would spend what is not counted, or use a key twice.

    >>> import pathlib, tempfile
    >>> from bk_jax import privacy
    >>> plan = privacy.PrivacyPlan(
    ...     num_examples=1000, batch_size=100, steps=20, delta=1e-6, noise_multiplier=1.0)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "run.ledger")
    >>> with privacy.open_ledger(path, plan) as ledger:
    ...     for step in ledger: pass
    ...     try:
    ...         ledger.take()
    ...     except privacy.LedgerError as error:
    ...         print(str(error)[-60:])
     4.28). More steps need a plan that has them from the start.
    """


@dataclasses.dataclass(frozen=True)
class Fork:
    """Where a ledger branched off from another: that ledger's name, and its steps at the time."""

    name: int
    steps: int

    def __post_init__(self) -> None:
        checks.whole_number("name", self.name, 0)
        checks.whole_number("steps", self.steps, 0)


@dataclasses.dataclass(frozen=True)
class Record:
    """What a ledger knows. The key is a secret: whoever has it can subtract the noise.

    Attributes:
      serial: numbers the records of a file.
      name: a random number, the identity of the run. Checkpoints carry it.
      steps: how many steps have been paid for.
      key: the secret key of the run, in words of 32 bits.
      plan: what the run was started with.
      place: the file that this record was written for; None in files of the first format.
      forks: the runs that this one was copied from, oldest first.
    """

    serial: int
    name: int
    steps: int
    key: tuple[int, ...] = dataclasses.field(repr=False)
    plan: Plan
    place: Place | None
    forks: tuple[Fork, ...] = ()

    def __post_init__(self) -> None:
        for field in ("serial", "name", "steps"):
            checks.whole_number(field, getattr(self, field), 0)
        if self.steps > self.plan.steps:
            raise ValueError(f"{self.steps} of {self.plan.steps} steps")
        if len(self.key) != KEY_WORDS or not all(map(_is_word, self.key)):
            raise ValueError(f"key must be {KEY_WORDS} words of 32 bits")  # errors do not show it

    def to_page(self) -> bytes:
        """The record as a page of the file."""
        fields = dataclasses.asdict(self) | {"plan": to_fields(self.plan)}
        text = json.dumps({"format": FORMAT} | fields).encode()
        room = PAGE - CHECKSUM - len(" \n")
        if len(text) > room:
            raise LedgerError(
                f"a record of {len(text)} bytes does not fit into the {room} that there are. Keep the "
                "ledger under a shorter path, and do not fork it again and again."
            )
        body = b" " + text.ljust(room) + b"\n"
        return _checksum(body) + body

    @staticmethod
    def from_page(page: bytes) -> Record:
        """The record in a page of the file; a `ValueError` says why there is none."""
        checksum, body = page[:CHECKSUM], page[CHECKSUM:]
        if len(page) != PAGE or checksum != _checksum(body):
            raise ValueError("a checksum that does not fit")
        try:
            fields = json.loads(body.decode())
            if fields.pop("format") != FORMAT:
                raise ValueError("another format")
            fields["place"] = Place(**fields["place"])
            fields["forks"] = tuple(Fork(**fork) for fork in fields["forks"])
            record = _make(fields)
        except MALFORMED as error:
            raise ValueError(f"a record that makes no sense: {error}") from error
        if record.to_page() != page:
            raise ValueError("a record that bk_jax did not write")
        return record

    @staticmethod
    def from_first_format(content: bytes) -> Record:
        """The record of a file in the first format: JSON alone, without checksum or place."""
        try:
            fields = json.loads(content.decode())
            if fields.pop("format") != 1:
                raise ValueError("another format")
            return _make(fields | {"serial": 0, "place": None})
        except MALFORMED as error:
            raise ValueError(f"not a ledger: {error}") from error

    def forked(self, place: Place) -> Record:
        """The same steps under another name and with other keys, for a copy that continues.

        The new key has 256 bits from the operating system. The old key and the new place are mixed
        in, because a machine that was copied while running may repeat its random numbers.
        """
        here = dataclasses.replace(self, serial=0, place=place)
        mixed = hashlib.sha256(b"bk_jax ledger fork\n" + secrets.token_bytes(32))
        mixed.update(json.dumps(dataclasses.asdict(here)).encode())
        return dataclasses.replace(
            here,
            name=new_name(),
            key=struct.unpack(f"<{KEY_WORDS}I", mixed.digest()),
            forks=(*self.forks, Fork(self.name, self.steps)),
        )


def new_name() -> int:
    """A random identity that fits into an `int32`, since checkpoints may be arrays."""
    return secrets.randbits(31)


def _is_word(word: Any) -> bool:
    return type(word) is int and 0 <= word < 2**32


def _make(fields: dict[str, Any]) -> Record:
    plan = from_fields(fields.pop("plan"))
    return Record(plan=plan, key=tuple(fields.pop("key")), **fields)


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
