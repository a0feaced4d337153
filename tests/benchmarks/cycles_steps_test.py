"""Predicted steps: what they are made of, and the document that shows them."""

import pytest

from benchmarks.gpu.cycles import architectures, document, kernels, model, steps, tables
from benchmarks.gpu.cycles.calls import Calls, Dense

GPUS = ("A100", "H100", "B200")


def calls(label: str, gpu: str) -> Calls:
    return Calls(kernels.recorded(label, gpu), architectures.find(gpu))


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("label", tables.LABELS)
def test_recorded_kernels_are_what_the_model_needs(label, gpu):
    found = kernels.recorded(label, gpu)
    assert {"ghost norm", "product", "clipped sum", "tied cross term"} <= set(found)
    for kernel in found.values():
        assert 0 < model.cap(kernel, architectures.find(gpu)) <= 1
        assert kernels.from_json(kernels.to_json(kernel)) == kernel


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", ["ghost_norm", "direct_norm", "clipped_sum"])
def test_twice_the_examples_take_about_twice_the_time(gpu, name):
    one, two = (
        getattr(calls(tables.LABELS[-1], gpu), name)(Dense(b, 1024, 1024, 4096)) for b in (32, 64)
    )
    assert 1.7 < two / one < 2.1


@pytest.mark.parametrize("gpu", GPUS)
def test_no_call_beats_the_peak(gpu):
    layer = Dense(16, 1024, 1024, 4096)
    flops = 2 * 16 * 1024 * 1024 * 4096
    for label in tables.LABELS:
        for name in ("direct_norm", "clipped_sum"):
            assert (
                flops / getattr(calls(label, gpu), name)(layer) < architectures.find(gpu).peak_flops
            )


def test_a_step_is_its_parts():
    step = steps.Step(plain=100.0, norms=10.0, sums=25.0, noise=1.0, replaced=30.0, routes={})
    assert step.ratio == pytest.approx(1.06)


def test_the_plain_step_is_six_flops_for_every_weight_and_token():
    case = steps.CASES[0]
    gpu = architectures.A100
    weights = sum(one.count * one.d * one.p for one, _ in steps.products_of(case))
    flops = 6 * case.batch * 100 * weights + 12 * case.batch * 12 * 100**2 * 768
    launches = 1 + 3 * sum(one.count for one, _ in steps.products_of(case))
    wanted = flops / (0.65 * gpu.peak_flops) + launches * gpu.launch
    assert steps.predict(case, calls(tables.LABELS[-1], "A100")).plain == pytest.approx(
        1e3 * wanted
    )


def test_llama_has_the_parameters_of_its_name():
    (case,) = (case for case in steps.CASES if case.model == "llama-1b")
    assert steps.parameters(case) == pytest.approx(1.236e9, rel=1e-3)


def test_the_document_has_the_tables_of_the_record():
    text = (document.DOCS / "gpu.md").read_text()
    assert set(document.TABLES) == {part[1] for part in document.BLOCK.findall(text)}
    assert document.updated(text) == text, "python -m benchmarks.gpu.cycles document"
