"""What a ledger's file holds, and how it is written and read."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from bk_jax.privacy.privacy_plan import PrivacyPlan

FORMAT = 1


class LedgerError(RuntimeError):
    """The ledger refuses: going on would spend what is not counted, or use a key twice."""


@dataclasses.dataclass(frozen=True)
class Record:
    """What the file holds. The key is a secret: who has it can subtract the noise."""

    name: int
    steps: int
    key: tuple[int, ...]
    plan: PrivacyPlan

    def to_json(self) -> str:
        """The record as the text of the file."""
        return json.dumps({"format": FORMAT} | dataclasses.asdict(self), indent=1)

    @staticmethod
    def from_json(text: str, path: Path) -> Record:
        """The record in the text of a file."""
        try:
            fields = json.loads(text)
            if fields.pop("format") != FORMAT:
                raise ValueError("another format")
            plan = PrivacyPlan(**fields.pop("plan"))
            return Record(plan=plan, key=tuple(fields.pop("key")), **fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LedgerError(
                f"{path} is not a ledger that this version of bk_jax reads ({error}). Without it nobody "
                "knows what has been spent; restore the file itself from where it was copied."
            ) from error
