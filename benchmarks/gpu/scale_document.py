"""Writes the tables of docs/scale.md, from docs/scale.json.

    python -m benchmarks.gpu.scale_document [--check]

`--check` writes nothing and fails if the tables are not those of the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bk_jax.planning.device_seconds import SHARE
from bk_jax.planning.devices import find_device

DEVICE = find_device("H100")
assert DEVICE is not None
ROOT = Path(__file__).resolve().parents[2]
DOCUMENT, DATA = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale.json"
NAMES = {"llama": "1B", "llama_8b": "8B", "llama_70b": "70B"}
TRAINED = {"all": "all", "lora": "LoRA"}
STATE = 12  # bytes for each trained number: two moments of Adam and a copy in float32
ROOM = 80e9  # bytes of an H100 for arrays
# Bytes per second that one GPU sends: NVLink inside a host, one network card each between hosts.
SPEED = {"inside": 450e9, "between": 50e9}
FLOPS = SHARE * DEVICE.flops(itemsize=2)  # of a second
STEPS = ("plain", "auto")
Found = dict[str, Any]


def memory(found: Found) -> list[str]:
    """What a device holds; optimizer state is cut over all devices."""
    lines = _header("of one GPU, GB", "plain", "private", "optimizer", "private step fits 80 GB")
    for name, row in found.items():
        plain, ours = row["plain"]["peak"], row["auto"]["peak"]
        state = STATE * row["auto"]["trained"] / _devices(name)
        fits = "yes" if ours + state <= ROOM else f"no, {(ours + state) / ROOM:.1f} times"
        lines.append(
            _row(_label(name), _gb(plain), f"{_gb(ours)} ({ours / plain:.2f}x)", _gb(state), fits)
        )
    return lines


def traffic(found: Found) -> list[str]:
    """What a device sends."""
    lines = _header(
        "of one GPU, GB", "inside a host, plain", "private", "between hosts, plain", "private"
    )
    for name, row in found.items():
        cells = [_gb(_total(row[step], where)) for where in SPEED for step in STEPS]
        lines.append(_row(_label(name), *cells))
    return lines


def seconds(found: Found) -> list[str]:
    """Arithmetic at one share of the peak; sending at the speed of links, hidden or not."""
    lines = _header(
        "of a step, ms", "arithmetic, plain", "private", "sending, plain", "private",
        "ratio, sending hidden", "ratio, nothing hidden",
    )  # fmt: skip
    for name, row in found.items():
        work = [sum(row[step]["flops"].values()) / FLOPS for step in STEPS]
        way = [_sending(row[step]) for step in STEPS]
        cells = [f"{1000 * x:.0f}" for x in (*work, *way)]
        hidden, whole = work[1] / work[0], (work[1] + way[1]) / (work[0] + way[0])
        lines.append(_row(_label(name), *cells, f"{hidden:.2f}", f"{whole:.2f}"))
    return lines


def _sending(one: Found) -> float:
    return sum(_total(one, where) / speed for where, speed in SPEED.items())


def _total(one: Found, where: str) -> int:
    return sum(one["sent"][where].values())


def _devices(name: str) -> int:
    return int(name.rsplit(maxsplit=1)[-1])


def _place(name: str) -> tuple[int, int, str]:
    """Small models first, then few devices."""
    model, trained, devices = name.split()
    return list(NAMES).index(model), int(devices), trained


def _label(name: str) -> str:
    """As in the first column of all tables.

    >>> _label("llama_8b lora 64")
    '8B, LoRA, 64 GPUs'
    """
    model, trained, devices = name.split()
    return f"{NAMES[model]}, {TRAINED[trained]}, {devices} GPUs"


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.2f}" if nbytes < 10e9 else f"{nbytes / 1e9:.0f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _header(*names: str) -> list[str]:
    return [_row(*names), _row(*["---"] * len(names))]


TABLES = {"memory": memory, "traffic": traffic, "seconds": seconds}


def filled(document: str, found: Found) -> str:
    """The document with new tables between their marks."""
    whole = {
        name: found[name] for name in sorted(found, key=_place) if {*STEPS} <= found[name].keys()
    }
    for name, table in TABLES.items():
        begin, end = f"<!-- scale: {name} -->", f"<!-- scale: end {name} -->"
        before, _, rest = document.partition(begin)
        _, _, after = rest.partition(end)
        document = "\n".join([before + begin, "", *table(whole), "", end + after])
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if the tables are old")
    is_check = parser.parse_args().check
    old = DOCUMENT.read_text()
    new = filled(old, json.loads(DATA.read_text()))
    if is_check and new != old:
        sys.exit(
            "docs/scale.md is not what docs/scale.json says: python -m benchmarks.gpu.scale_document"
        )
    DOCUMENT.write_text(new)


if __name__ == "__main__":
    main()
