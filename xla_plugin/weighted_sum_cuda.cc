// Handler of bk_weighted_sum on a GPU.
#include <cstdint>

#include "custom_calls/cuda/weighted_sum.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_weighted_sum";

ffi::Error WeightedSumImpl(cudaStream_t stream, ffi::AnyBuffer factor,
                           ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> sum,
                           ffi::Dictionary /*attributes*/) {
  return RunHandler(
      kName, [&] { return RunWeightedSumCuda(stream, factor, x, *sum); });
}

}  // namespace

absl::Status RunWeightedSumCuda(cudaStream_t stream, ffi::AnyBuffer factor,
                                ffi::AnyBuffer x, ffi::AnyBuffer sum) {
  const auto dims = x.dimensions();
  if (dims.size() == 0) {
    return Mismatch({kName, "x"}, "an axis of examples", ShapeString(x));
  }
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(CheckShape({kName, "factor"}, factor, result, {dims[0]}));
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "sum"}, sum, result, {dims.begin() + 1, dims.end()}));
  const WeightedSumShape shape = {dims[0],
                                  static_cast<int64_t>(sum.element_count())};
  return DispatchFloat({kName, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        kName, cuda::WeightedSum(shape, Data<const Acc>(factor),
                                 Data<const T>(x), Data<Acc>(sum), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(BkWeightedSumCuda, bk::WeightedSumImpl,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::AnyBuffer>()  // factor (B)
                                  .Arg<xla::ffi::AnyBuffer>()  // x (B, ...)
                                  .Ret<xla::ffi::AnyBuffer>()  // sum (...)
                                  .Attrs(),
                              {xla::ffi::Traits::kCmdBufferCompatible});
