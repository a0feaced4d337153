"""Rates of a machine: stored and found again, or defaults that say so."""

import dataclasses
import json
import os
import re
import types

import numpy as np
import pytest

import bk_jax
from bk_jax._diagnose import report
from bk_jax.overhead import calibration
from bk_jax.planning import machine_rates
from bk_jax.planning.default_rates import AVX2, AVX512, nominal_rates
from bk_jax.planning.device_seconds import SHARE
from bk_jax.planning.machine_rates import current_rates, path, store
from bk_jax.planning.rates import TABLES, from_json, names, rate_at

MEASURED = dataclasses.replace(AVX2, source="calibrated on a CPU", is_measured=True)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_rates_are_stored_and_found_again(cache):
    assert not current_rates().is_measured
    file = store(MEASURED)
    assert file == path()
    assert file.parent == cache / "bk_jax"
    assert current_rates() == MEASURED
    assert os.listdir(file.parent) == [file.name]  # nothing temporary is left


def test_without_a_variable_the_cache_is_at_home(monkeypatch, cache):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(cache))
    assert path().parent == cache / ".cache" / "bk_jax"


@pytest.mark.parametrize("part", ["bk_jax", "jaxlib", "cpu", "cores"])
def test_rates_of_another_version_or_machine_are_not_used(part, monkeypatch):
    store(MEASURED)
    if part == "bk_jax":
        monkeypatch.setattr(bk_jax, "__version__", "99.0")
    elif part == "jaxlib":
        monkeypatch.setattr("jaxlib.version.__version__", "99.0")
    elif part == "cpu":
        monkeypatch.setattr(machine_rates, "cpu_name", lambda: "Another CPU @ 3 GHz")
    else:
        monkeypatch.setattr(machine_rates, "cores", lambda: 1000)
    assert not current_rates().is_measured
    assert "cannot be read" not in current_rates().source


def broken(**changes):
    return json.dumps(dataclasses.asdict(MEASURED) | changes)


DAMAGED = {
    "empty": "",
    "not JSON": "{",
    "a list": "[]",
    "nothing in it": "{}",
    "a negative rate": broken(product=-1.0),
    "no number": broken(memory=None),
    "infinite": broken(noise=float("inf")),
    "a table without rows": broken(ghost_norm=[]),
    "a table with a size of zero": broken(ghost_norm=[[0, 1.0]]),
    "a table that is a number": broken(ghost_norm=3.0),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_no_error(damage):
    store(MEASURED).write_text(DAMAGED[damage])
    rates = current_rates()
    assert not rates.is_measured
    assert rates.source.startswith("default for AVX")
    assert rates.source.endswith(f", because {path()} cannot be read")


def test_a_folder_in_place_of_the_file_is_no_error():
    path().mkdir(parents=True)
    assert "cannot be read" in current_rates().source


def test_bytes_that_are_no_text_are_no_error():
    store(MEASURED).write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in current_rates().source


def test_a_folder_that_cannot_be_written_is_an_error_that_helps(cache):
    (cache / "bk_jax").write_text("in the way")
    with pytest.raises(OSError, match=r"calibrate could not write .*rates_.*json .*\. Make its "
                                      r"folder writable, set XDG_CACHE_HOME .* save=False"):  # fmt: skip
        store(MEASURED)
    assert not current_rates().is_measured


def test_explain_says_where_rates_come_from():
    def explanation():
        grad_fn = bk_jax.dp_value_and_grad(lambda w, x: (w * x).sum())
        return grad_fn.explain(np.ones(3, np.float32), np.ones((2, 3), np.float32))

    assert explanation().rates.endswith("; bk_jax.calibrate() measures this machine")
    store(MEASURED)
    assert explanation().rates == "calibrated on a CPU"
    assert "rates: calibrated on a CPU" in str(explanation())


# --- calibrate ---


@pytest.fixture
def few_trials(monkeypatch):
    """Small shapes: what is stored matters here, not the numbers."""
    for name, value in {"WIDTH": 8, "TOKENS": 32, "LENGTHS": (4, 8), "ELEMENTS": 64, "ROWS": 4096,
                        "KERNELS": ((14, 2), (7, 2)), "CHAIN": 2}.items():  # fmt: skip
        monkeypatch.setattr(calibration, name, value)


@pytest.mark.usefixtures("few_trials")
def test_calibrate_measures_every_rate_and_stores_it():
    rates = bk_jax.calibrate(budget=0.01)
    assert rates.source == f"calibrated on {machine_rates.cpu_name()}"
    assert from_json(json.loads(path().read_text())) == rates == current_rates()
    assert [size for size, _ in rates.ghost_norm] == [4, 8]
    assert [size for size, _ in rates.conv_sum] == [49, 196]


@pytest.mark.usefixtures("few_trials")
def test_calibrate_need_not_store():
    assert bk_jax.calibrate(budget=0.01, save=False).is_measured
    assert not path().exists()


@pytest.mark.parametrize("budget", [0, -1.0, "long", float("nan")])
def test_a_budget_that_is_none(budget):
    with pytest.raises(ValueError, match="budget must be a positive number of seconds, got"):
        bk_jax.calibrate(budget)


def test_other_devices_are_not_calibrated(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "tpu")
    with pytest.raises(RuntimeError, match=r"calibrate measures CPUs and GPUs, but JAX runs on 'tpu'\. "
                                           "Set JAX_PLATFORMS=cpu"):  # fmt: skip
        bk_jax.calibrate()


GPU = "NVIDIA A100-SXM4-40GB"


@pytest.fixture
def as_if_on_a_gpu(monkeypatch):
    """What is planned for; programs still run on the CPU."""
    for module in (machine_rates, calibration):
        monkeypatch.setattr(module, "gpu_kind", lambda device=None: GPU)
    monkeypatch.setattr(calibration, "GPU_SCALE", 2)


@pytest.mark.usefixtures("few_trials", "as_if_on_a_gpu")
def test_a_gpu_has_a_file_of_its_own_and_peaks_that_were_measured():
    assert current_rates().source.startswith("nominal for an A100 GPU")
    rates = bk_jax.calibrate(budget=0.01)
    assert rates.source == f"calibrated on {GPU}"
    assert [size for size, _ in rates.clipped_gemm] == [8, 64]  # tokens of a batch twice as large
    assert from_json(json.loads(path(GPU).read_text())) == rates == current_rates()
    assert machine_rates.current_path() == path(GPU) != path()
    assert not path().exists()
    assert rates.device.tf32 * SHARE == pytest.approx(rates.product)
    assert rates.device.bf16 * SHARE == pytest.approx(rates.product_16)
    assert rates.device.launch == rates.operation
    assert rates.device.kind == "A100"
    assert f"rates               calibrated on {GPU}" in report()


@pytest.mark.usefixtures("as_if_on_a_gpu")
def test_a_broken_file_of_a_gpu_is_not_used():
    path(GPU).parent.mkdir(parents=True)
    path(GPU).write_text(broken(device={"kind": "A100"}))
    assert not current_rates().is_measured
    assert re.match("nominal for an A100 .*cannot be read", current_rates().source)


# --- numbers ---


@pytest.mark.parametrize("gpu", ["A100", "H100", "B200"])
def test_rates_of_gpus_are_nominal(gpu, monkeypatch):
    rates = nominal_rates(f"NVIDIA {gpu} SXM")
    assert gpu in rates.source
    assert rates.source.endswith("not measured")
    assert rates.describe() == rates.source
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert "nominal" in current_rates().source


def test_an_unknown_gpu_is_named():
    assert nominal_rates("Tesla T4").source == (
        "nominal for an A100 GPU, in place of 'Tesla T4', computed, not measured"
    )


@pytest.mark.parametrize("rates", [AVX2, AVX512, nominal_rates("H100")])
def test_every_rate_is_positive(rates):
    expected = dataclasses.replace(rates, is_measured=True)
    assert from_json(dataclasses.asdict(rates)) == expected
    assert {name for name in names() if isinstance(getattr(rates, name), tuple)} == set(TABLES)


def test_defaults_follow_the_instruction_set(monkeypatch):
    library = types.SimpleNamespace()
    monkeypatch.setattr("bk_jax._native.library", lambda: library)
    monkeypatch.setattr(machine_rates, "cores", lambda: 8)
    for isa, expected in {
        "baseline": AVX2,
        "avx2": AVX2,
        "avx512": AVX512,
        "avx512bf16": AVX512,
        "amx": AVX512,
    }.items():
        library.module = types.SimpleNamespace(active_isa=lambda isa=isa: isa)
        found = current_rates()
        assert (found.source, found.product) == (expected.source, 4 * expected.product)
        assert found.memory == expected.memory
    library.module = None
    assert current_rates().source == AVX2.source


def test_rates_between_two_sizes():
    table = ((16, 1.0), (64, 3.0), (1024, 5.0))
    sizes = (1, 16, 32, 64, 256, 1024, 5000)
    assert [rate_at(table, size) for size in sizes] == [1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
