// bk_weighted_sum: the sum of arrays that exist in memory, one for each
// example.
#include <cstdint>

#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/weighted_sum.h"
#else
#include "custom_calls/cpu/dense/weighted_sum.h"
#endif

namespace bk {
namespace {

struct WeightedSumCall : Call {
  static constexpr char kName[] = "bk_weighted_sum";
  using Call::Call;
  Buffer factor = Operand("factor");  // [B]
  Buffer x = Operand("x");            // [B, ...]
  Buffer sum = Result("sum");         // [...]
  WeightedSumShape shape = {};

  const Buffer& Typed() const { return x; }

  absl::Status Check() {
    if (x.dims.size() == 0) {
      return Mismatch(x, "an axis of examples", ShapeString(x));
    }
    const ffi::DataType type = AccumulatorType(x);
    BK_RETURN_IF_ERROR(CheckShape(factor, type, {x.dims[0]}));
    BK_RETURN_IF_ERROR(
        CheckShape(sum, type, {x.dims.begin() + 1, x.dims.end()}));
    shape = {x.dims[0], sum.Elements()};
    return absl::OkStatus();
  }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  absl::Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(
        cuda::WeightedSum<T>(shape, factor, x, sum, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    WeightedSum<T>(cpu.kernels, cpu.parallel, shape, factor, x, sum);
  }
#endif
};

const Registration<WeightedSumCall> kRegistration;

}  // namespace
}  // namespace bk
