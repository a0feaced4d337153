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
      written: bytes of an element of the result.
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
    written: int = 4
    is_fitted: bool = False


MAMF = "github.com/stas00/ml-engineering, Maximum Achievable Matmul FLOPS"
CUTLASS = "github.com/NVIDIA/cutlass, media/docs/profiler.md"
# A cluster of two blocks loads the columns once: 128 rows and half of 256 columns for each.
WARP_GROUPS = Shape("CUTLASS bf16 128x256x64, warp groups, clusters of two", (128, 256), 8, 384,
                    200 << 10, load_bytes=(128 + 128) * 64 * 2)  # fmt: skip
KNOWN = (
    Known("A100", "sm_80", "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
          Shape("cuBLAS bf16 128x256x64, 3 stages", (128, 256), 8, shared=147456 - 49152),
          (6912, 16384, 2048), 2, 267.9e12, MAMF, 2, is_fitted=True),
    Known("A100", "cutlass", "GemmShapeILi256ELi128ELi32",
          Shape("CUTLASS f16 256x128x32, 3 stages", (256, 128), 8, shared=73728),
          (3456, 4096, 8192), 2, 235.1e12, CUTLASS),
    Known("A100", "cutlass", "GemmShapeILi128ELi128ELi8",
          Shape("CUTLASS f32 128x128x8, 2 stages", (128, 128), 8, shared=16384),
          (3456, 4096, 4096), 4, 17.2e12, CUTLASS),
    Known("A100", "sm_80", "ampere_sgemm_128x128_nn",
          Shape("cuBLAS f32 128x128x8", (128, 128), 8),
          (5120, 4096, 4096), 4, 18.9e12, "github.com/Yinghan-Li/YHs_Sample/issues/4 (A100 PCIe)"),
    Known("H100", "cutlass_90", "KernelTmaWarpSpecializedCooperative", WARP_GROUPS,
          (6144, 17920, 2816), 2, 792.1e12, MAMF + " (cuBLAS)", 2, is_fitted=True),
    Known("H100", "cutlass_90", "KernelTmaWarpSpecializedCooperative", WARP_GROUPS,
          (4224, 2048, 8192), 2, 780.2e12,
          "gist.github.com/Chillee/2ec89696db8b7ed1c24461159e325405 (more power to the cores)", 2),
)  # fmt: skip
# Compiled with the headers of the package nvidia-cutlass, which are not ours and are not kept.
PROBES = {
    "sm_80": """
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
""",
    "sm_90a": """
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
using Half = cutlass::bfloat16_t;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
using Block = cute::Shape<cute::_128, cute::_256, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Block, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Rows, 8, Half, Rows, 8,
    cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Stages = cutlass::gemm::collective::StageCountAutoCarveout<
    static_cast<int>(sizeof(typename Epilogue::SharedStorage))>;
using Main = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, Rows, 8, Half, Columns, 8, float, Block,
    Cluster, Stages, cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, Epilogue>;
template __global__ void cutlass::device_kernel<Kernel>(
    const __grid_constant__ typename Kernel::Params);
""",
}
