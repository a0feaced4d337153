"""Several processes: one is killed, the rest stop, and others go on with every step accounted for."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest
from support.ledgers import recorded_steps
from support.process import PACKAGE

import bk_jax
from bk_jax import privacy, sampling
from bk_jax.training.checkpoints import Checkpoints, place_of_latest
from devices import hosts


def start(folder: Path, count: int, *what: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs `count` processes to their end."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    program, environment = (
        hosts.__file__,
        os.environ | {"PYTHONPATH": str(PACKAGE), "JAX_CHECK_TRACER_LEAKS": "0"},
    )
    running = [
        subprocess.Popen(
            [sys.executable, program, str(folder), str(number), str(count), port, *what],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(count)
    ]  # fmt: skip
    ended = []
    try:
        for process in running:
            out, error = process.communicate(timeout=600)
            ended.append(subprocess.CompletedProcess([], process.returncode, out, error))
    finally:
        for process in running:
            process.kill()
    return ended


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Two processes; the second one dies after the fifth step is on record."""
    folder = tmp_path_factory.mktemp("hosts")
    return folder, start(folder, 2, "killed")


def expected(skip: set[int]) -> dict[str, np.ndarray]:
    """The parameters after all steps but some, on one device."""
    trainer, params = hosts.Trainer(), hosts.PARAMS
    secret = np.asarray(jax.random.key_data(bk_jax.random.key(5)))
    for number in set(range(hosts.PLAN.steps)) - skip:
        keys = privacy.ledger._step_keys(secret, np.uint32(number))
        params = trainer.take(params, privacy.Step(number, *keys))
    return {name: np.asarray(value) for name, value in params.items()}


def newest(folder: Path) -> dict[str, jax.Array]:
    with contextlib.closing(Checkpoints(folder / "checkpoints")) as checkpoints:
        return checkpoints.restore(hosts.Trainer().start())


def test_when_a_process_dies_the_others_stop(killed):
    _, (first, second) = killed
    assert second.returncode == -signal.SIGKILL, second.stderr
    assert first.returncode not in (0, None)
    assert first.stderr


def test_another_number_of_processes_goes_on(killed):
    """The fifth step is spent and lost; four processes take the sixth, from the checkpoint of two."""
    folder, _ = killed
    assert recorded_steps(folder / "run.ledger") == 5
    place = place_of_latest(folder / "checkpoints")
    assert place["steps"] == 4
    four = start(folder, 4, "forfeit")  # tries it without first
    assert [process.returncode for process in four] == [0] * 4, four[0].stderr
    first, *others = (process.stdout for process in four)
    assert re.search("refused: .* 5 steps on record, but the checkpoint was made at step 4", first)
    assert all("refused: process 0, which keeps the ledger, refused" in other for other in others)
    said = f"epsilon {hosts.PLAN.epsilon()} steps 6"
    assert all(said in process.stdout for process in four)
    assert place_of_latest(folder / "checkpoints")["steps"] == 6
    trained = newest(folder)
    for name, value in expected(skip={4}).items():
        np.testing.assert_allclose(trained[name], value, rtol=0, atol=1e-5)


def test_shares_make_up_the_batch_of_one_host():
    """Whatever the number of hosts: the same examples, each of them once, in shares of one size."""
    key, sampler = bk_jax.random.key(1), sampling.PoissonSampler.of(hosts.PLAN)
    whole = sampler.indices(key)
    data = np.arange(60)
    for count in (1, 2, 4):
        every = [sampling.Hosts(index, count) for index in range(count)]
        shares = [sampling.Loader(data, sampler, hosts=host).batch(key) for host in every]
        assert {len(share.examples) for share in shares} == {24 // count}
        real = np.concatenate([s.examples[~s.is_padding_example] for s in shares])
        np.testing.assert_array_equal(np.sort(real), whole)


def test_physical_parts_are_as_many_on_every_host():
    key, sampler = bk_jax.random.key(1), sampling.PoissonSampler(60, 20)
    whole, data = sampler.indices(key), np.arange(60)
    loaders = [
        sampling.Loader(data, sampler, 4, hosts=sampling.Hosts(index, 4)) for index in range(4)
    ]
    parts = [list(loader.physical_batches(key)) for loader in loaders]
    assert {len(of_host) for of_host in parts} == {-(-len(whole) // 4)}
    assert sum(int((~part.is_padding_example).sum()) for p in parts for part in p) == len(whole)


class Device(NamedTuple):
    id: int
    process_index: int


class Spread:
    """A sharding of four devices: the process and the row of each."""

    num_devices = 4

    def __init__(self, *places: tuple[int, int]):
        self.places = places

    def devices_indices_map(self, shape):
        assert shape == (4,)
        return {
            Device(number, process): (slice(row, None),)
            for number, (process, row) in enumerate(self.places)
        }


def hosts_as(process, sharding, monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: process)
    return sampling.Hosts.of_sharding(sharding)


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (Spread((0, 0), (1, 1), (2, 2), (3, 3)), [(0, 4), (1, 4), (2, 4), (3, 4)]),
        (Spread((0, 0), (0, 1), (1, 2), (1, 3)), [(0, 2), (1, 2)]),
        (Spread((0, 0), (1, 0), (2, 2), (3, 2)), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        (Spread((0, 0), (0, 2), (1, 0), (1, 2)), [(0, 1), (0, 1)]),
    ],
    ids=["data over processes", "two devices each", "layers over pairs", "layers over all"],
)
def test_processes_with_the_same_rows_are_one_host(sharding, expected, monkeypatch):
    found = [hosts_as(process, sharding, monkeypatch) for process in range(len(expected))]
    assert found == [sampling.Hosts(*pair) for pair in expected]


def test_a_loader_that_deals_to_hosts_with_the_same_rows_is_refused():
    sampler = sampling.PoissonSampler(60, 20, 24)
    share = sampling.Loader(np.arange(60), sampler, hosts=sampling.Hosts(0, 2))
    with pytest.raises(ValueError, match="devices that share rows would get different examples"):
        sampling.spread(share.batch(bk_jax.random.key(1)), hosts.Trainer().rows, share.hosts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: sampling.Hosts.of_sharding(Spread((0, 0), (0, 1), (1, 1), (1, 2))),
            "which overlap",
        ),
        (
            lambda: sampling.Hosts.of_sharding(Spread((0, 0), (0, 1), (0, 2), (1, 3))),
            "not of one size",
        ),
        (lambda: sampling.Hosts(2, 2), "host 2 of 2: hosts are counted from 0"),
        (lambda: sampling.Hosts(0, 5).rows(24), "5 hosts cannot share 24 rows evenly"),
    ],
)
def test_errors_of_hosts(make, message):
    with pytest.raises(ValueError, match=message):
        make()
