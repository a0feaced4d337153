"""Published: rates of libraries' kernels that others measured, for checking the model."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.gpu.cycles.compiled import Shape


class Known(NamedTuple):
    """A product, the kernel that is taken to have made it, and its rate.

    Attributes:
      gpu: the GPU.
      origin: `cutlass`, compiled from the probe below, or the architecture of cuBLAS's code.
      pattern: part of the kernel's name.
      shape: what its code does not say.
      sizes: rows, columns, length.
      itemsize: bytes of an element.
      rate: flops per second.
      source: who says so.
      is_fitted: whether `sustained` of the architecture was chosen by it.
    """

    gpu: str
    origin: str
    pattern: str
    shape: Shape
    sizes: tuple[int, int, int]
    itemsize: int
    rate: float
    source: str
    is_fitted: bool = False


MAMF = "github.com/stas00/ml-engineering, Maximum Achievable Matmul FLOPS"
CUTLASS = "github.com/NVIDIA/cutlass, media/docs/profiler.md"
WARP_GROUPS = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize2x1x1_aux_bf16_dgelu_"
    "execute_segment_k_off"
)
KNOWN = (
    Known("A100", "sm_80", "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
          Shape("cuBLAS bf16 128x256x64, 3 stages", (128, 256), 8, shared=147456 - 49152),
          (6912, 16384, 2048), 2, 267.9e12, MAMF, is_fitted=True),
    Known("A100", "cutlass", "GemmShapeILi256ELi128ELi32",
          Shape("CUTLASS f16 256x128x32, 3 stages", (256, 128), 8, shared=73728),
          (3456, 4096, 8192), 2, 235.1e12, CUTLASS),
    Known("A100", "cutlass", "GemmShapeILi128ELi128ELi8",
          Shape("CUTLASS f32 128x128x8, 2 stages", (128, 128), 8, shared=16384),
          (3456, 4096, 4096), 4, 17.2e12, CUTLASS),
    Known("A100", "sm_80", "ampere_sgemm_128x128_nn",
          Shape("cuBLAS f32 128x128x8", (128, 128), 8),
          (5120, 4096, 4096), 4, 18.9e12, "github.com/Yinghan-Li/YHs_Sample/issues/4 (A100 PCIe)"),
    Known("H100", "sm_90a", WARP_GROUPS,
          Shape("cuBLAS bf16 128x256x64, warp groups", (128, 256), 8, 384, 200 << 10,
                load_bytes=(128 + 256) * 64 * 2),
          (6144, 17920, 2816), 2, 792.1e12, MAMF, is_fitted=True),
    Known("H100", "sm_90a", WARP_GROUPS,
          Shape("cuBLAS bf16 128x256x64, warp groups", (128, 256), 8, 384, 200 << 10,
                load_bytes=(128 + 256) * 64 * 2),
          (4224, 2048, 8192), 2, 780.2e12,
          "gist.github.com/Chillee/2ec89696db8b7ed1c24461159e325405 (CUTLASS, more power to the cores)"),
)  # fmt: skip
# Compiled with the headers of the package nvidia-cutlass, which are not ours and are not kept.
PROBE = """
#include "cutlass/gemm/device/gemm.h"
using Columns = cutlass::layout::ColumnMajor;
template <class T, class Op, int kRows, int kDepth, int kWarpRows, class Unit, int kVector, int kStages>
using Probe = cutlass::gemm::device::Gemm<
    T, Columns, T, Columns, float, Columns, float, Op, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<kRows, 128, kDepth>, cutlass::gemm::GemmShape<kWarpRows, 64, kDepth>, Unit,
    cutlass::epilogue::thread::LinearCombination<float, kVector, float, float>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, kStages>;
using Half = Probe<cutlass::half_t, cutlass::arch::OpClassTensorOp, 256, 32, 64,
                   cutlass::gemm::GemmShape<16, 8, 16>, 4, 3>;
using Single = Probe<float, cutlass::arch::OpClassSimt, 128, 8, 32,
                     cutlass::gemm::GemmShape<1, 1, 1>, 1, 2>;
template cutlass::Status Half::run(cudaStream_t);
template cutlass::Status Single::run(cudaStream_t);
"""
