// bk_clipped_gemms: what bk_clipped_gemm gives, for several layers of one shape
// in one launch. Only GPUs need that: a single layer leaves much of one idle.
#if defined(BK_PLATFORM_CUDA)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/cublas/dense.h"
#include "xla_plugin/cublas.h"
#include "xla_plugin/dense.h"
#include "xla_plugin/operation.h"

namespace bk {
namespace {

struct ClippedGemmsCall : Call {
  static constexpr char kName[] = "bk_clipped_gemms";
  using Call::Call;
  Buffer factor = Operand("factor");  // [B]
  // lhs [B, N, T, m] or [B * T, m], rhs [B, N, T, n] or [B * T, n] of each
  // layer
  LayerOperands layers{Attribute("layers"), Operands("operands"), "lhs", "rhs"};
  // [N, m, n] of each, or [m, n]
  std::vector<Buffer> sums = Results("sum", layers.left.size());
  ClippedGemmShape shape = {};  // of one layer

  const Buffer& Typed() const { return layers.left[0]; }

  Status Check() {
    BK_RETURN_IF_ERROR(layers.Check(cuda::kMaxLayers));
    const Buffer& lhs = layers.left[0];
    Rows rows;
    BK_RETURN_IF_ERROR(ReadRows(lhs, LengthOf(factor), &rows));
    shape = {rows.batch, rows.weights, rows.positions, rows.width, 0};
    BK_RETURN_IF_ERROR(ReadSameRows(layers.right[0], lhs, &shape.n));
    const ffi::DataType type = AccumulatorType(lhs);
    BK_RETURN_IF_ERROR(CheckShape(factor, type, {shape.batch}));
    std::vector<int64_t> dims = {shape.m, shape.n};
    if (shape.weights != 1) dims.insert(dims.begin(), shape.weights);
    for (const Buffer& sum : sums) {
      BK_RETURN_IF_ERROR(CheckShape(sum, type, dims));
    }
    return OkStatus();
  }

  cuda::LibrarySum LibrarySum() const {
    return {shape, AsksForTf32(attributes_), /*accumulate=*/false};
  }

  int64_t WorkspaceBytes() const {
    const auto width = ffi::ByteWidth(AccumulatorType(Typed()));
    const int64_t own = cuda::ClippedGemmWorkspaceBytes(
        shape, static_cast<int64_t>(width),
        static_cast<int64_t>(layers.left.size()));
    if (Typed().type != ffi::F32) return own;
    return std::max(own, cuda::SumWorkspaceBytes(LibrarySum()));
  }

  // By cublasLt, one layer after the other in the same workspace, if the
  // elements are float32 and it can; by one launch of ours.
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    if constexpr (std::is_same_v<T, float>) {
      if (cuda::CanSum(LibrarySum())) return SumByLibrary(gpu);
    }
    cuda::LayerPairs<T> pairs(shape.weights);
    std::vector<Accumulator<T>*> out;
    for (size_t l = 0; l < sums.size(); ++l) {
      pairs.Add(layers.left[l], layers.right[l]);
      out.push_back(static_cast<Accumulator<T>*>(sums[l]));
    }
    return BK_CUDA_STATUS(
        cuda::ClippedGemms<T>(shape, pairs, factor, /*accumulate=*/false,
                              gpu.workspace, out.data(), gpu.stream));
  }

 private:
  Status SumByLibrary(const Gpu& gpu) const {
    for (size_t l = 0; l < sums.size(); ++l) {
      BK_RETURN_IF_ERROR(CublasStatus(
          kName,
          cuda::Sum(LibrarySum(), layers.left[l], factor, layers.right[l],
                    gpu.workspace, sums[l], gpu.stream),
          __FILE__, __LINE__));
    }
    return OkStatus();
  }
};

const Registration<ClippedGemmsCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
