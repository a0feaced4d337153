// Handler of bk_weighted_sum on the CPU.
#include <cstdint>

#include "custom_calls/cpu/dispatch.h"
#include "custom_calls/cpu/weighted_sum.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_weighted_sum";

ffi::Error WeightedSumImpl(ffi::ThreadPool pool, ffi::AnyBuffer factor,
                           ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> sum,
                           ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunWeightedSum(parallel, factor, x, *sum);
  });
}

}  // namespace

absl::Status RunWeightedSum(Parallel& parallel, ffi::AnyBuffer factor,
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
    WeightedSum(*ActiveKernels().kernels, parallel, shape,
                Data<const Acc>(factor), Data<const T>(x), Data<Acc>(sum));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(BkWeightedSum, bk::WeightedSumImpl,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()  // factor (B)
                                  .Arg<xla::ffi::AnyBuffer>()  // x (B, ...)
                                  .Ret<xla::ffi::AnyBuffer>()  // sum (...)
                                  .Attrs());
