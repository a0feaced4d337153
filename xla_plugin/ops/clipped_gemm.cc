// bk_clipped_gemm, the sum of clipped gradients of a dense layer, and
// bk_clipped_gemm_add, which adds it to what is there.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/cublas/dense.h"
#include "xla_plugin/cublas.h"
#else
#include "custom_calls/cpu/dense/clipped_gemm.h"
#endif

namespace bk {
namespace {

struct GemmCall : Call {
  using Call::Call;
  Buffer lhs = Operand("lhs");        // [B, N, T, m] or [B * T, m]
  Buffer factor = Operand("factor");  // [B]
  Buffer rhs = Operand("rhs");        // [B, N, T, n] or [B * T, n]
  ClippedGemmShape shape = {};

  const Buffer& Typed() const { return lhs; }

  // One weight is a matrix, without the axis of weights.
  std::vector<int64_t> SumDims() const {
    if (shape.weights == 1) return {shape.m, shape.n};
    return {shape.weights, shape.m, shape.n};
  }

  Status CheckGemm(const Buffer& sum) {
    Rows rows;
    BK_RETURN_IF_ERROR(ReadRows(lhs, LengthOf(factor), &rows));
    shape = {rows.batch, rows.weights, rows.positions, rows.width, 0};
    BK_RETURN_IF_ERROR(ReadSameRows(rhs, lhs, &shape.n));
    const ffi::DataType type = AccumulatorType(lhs);
    BK_RETURN_IF_ERROR(CheckShape(factor, type, {shape.batch}));
    return CheckShape(sum, type, SumDims());
  }

#if defined(BK_PLATFORM_CUDA)
  cuda::LibrarySum LibrarySum(bool accumulate) const {
    return {shape, AsksForTf32(attributes_), accumulate};
  }

  int64_t GemmWorkspaceBytes(bool accumulate) const {
    const auto width = ffi::ByteWidth(AccumulatorType(lhs));
    const int64_t own =
        cuda::ClippedGemmWorkspaceBytes(shape, static_cast<int64_t>(width));
    if (lhs.type != ffi::F32) return own;
    return std::max(own, cuda::SumWorkspaceBytes(LibrarySum(accumulate)));
  }

  // By cublasLt, if the elements are float32 and it can; by our kernels.
  template <class T>
  Status Run(const char* name, const Gpu& gpu, bool accumulate,
             const Buffer& sum) const {
    if constexpr (std::is_same_v<T, float>) {
      const cuda::LibrarySum library = LibrarySum(accumulate);
      if (cuda::CanSum(library)) {
        return CublasStatus(name,
                            cuda::Sum(library, lhs, factor, rhs, gpu.workspace,
                                      sum, gpu.stream),
                            __FILE__, __LINE__);
      }
    }
    return CudaStatus(name,
                      cuda::ClippedGemm<T>(shape, lhs, factor, rhs, accumulate,
                                           gpu.workspace, sum, gpu.stream),
                      __FILE__, __LINE__);
  }
#endif
};

struct ClippedGemmCall : GemmCall {
  static constexpr char kName[] = "bk_clipped_gemm";
  using GemmCall::GemmCall;
  Buffer sum = Result("sum");  // [N, m, n], or [m, n]

  Status Check() { return CheckGemm(sum); }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const { return GemmWorkspaceBytes(false); }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return Run<T>(kName, gpu, /*accumulate=*/false, sum);
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    ClippedGemm<T>(cpu.kernels, cpu.parallel, shape, lhs, factor, rhs, sum,
                   GemmOutput::kOverwrite);
  }
#endif
};

struct ClippedGemmAddCall : GemmCall {
  static constexpr char kName[] = "bk_clipped_gemm_add";
  using GemmCall::GemmCall;
  Buffer initial = Operand("initial");  // like sum
  Buffer sum = Result("sum");           // [N, m, n], or [m, n]

  Status Check() {
    BK_RETURN_IF_ERROR(CheckGemm(sum));
    return CheckShape(initial, sum.type, SumDims());
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const { return GemmWorkspaceBytes(true); }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    BK_RETURN_IF_ERROR(BK_CUDA_STATUS(gpu.StartFrom(initial, sum)));
    return Run<T>(kName, gpu, /*accumulate=*/true, sum);
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    cpu.StartFrom(initial, sum);
    ClippedGemm<T>(cpu.kernels, cpu.parallel, shape, lhs, factor, rhs, sum,
                   GemmOutput::kAccumulate);
  }
#endif
};

const Registration<ClippedGemmCall> kRegistration;
const Registration<ClippedGemmAddCall> kAddRegistration;

}  // namespace
}  // namespace bk
