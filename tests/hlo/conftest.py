"""Steps are compiled once for all tests of this folder, and dumped as XLA dumps them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hlo import programs


class Compiled(NamedTuple):
    program: Any
    folder: Path


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """A function of the arguments of `programs.step`."""

    @functools.cache
    def compile_step(*args, **kwargs):
        folder = tmp_path_factory.mktemp("dump")
        options = {
            "xla_dump_to": str(folder), "xla_dump_hlo_as_proto": True, "xla_dump_hlo_as_text": True,
        }  # fmt: skip
        lowered = programs.step(*args, **kwargs).lowered
        return Compiled(lowered.compile(compiler_options=options), folder)

    return compile_step
