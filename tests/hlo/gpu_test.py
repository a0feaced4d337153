"""Programs for GPUs: cuBLAS calls, Triton fusions and our calls are read and counted.

`gpu_step.txt` is written by hand, in the form that XLA's GPU compiler gives a step.
"""

from pathlib import Path

import pytest

from bk_jax.hlo import find_calls, load, neighbourhood, summarize, to_html, to_svg

FILE = Path(__file__).with_name("gpu_step.txt")


@pytest.fixture(scope="module")
def module():
    (found,) = load(FILE)
    return found


def test_calls_are_found_among_those_of_libraries(module):
    assert [call.target for call in find_calls(module)] == ["bk_ghost_norm", "bk_clipped_gemm"]
    assert summarize(module).custom_calls["__cublas$gemm"] == 1


def test_products_of_cublas_and_of_a_triton_fusion_are_counted(module):
    assert summarize(module).costs["dot"].flops == 2 * (2 * 128 * 64 * 32)


def test_the_page_and_the_picture_show_it(module):
    page = to_html(module)
    assert "__cublas$gemm" in page
    assert "bk_clipped_gemm" in page
    assert to_svg(neighbourhood(module, "norms")).startswith("<svg")
