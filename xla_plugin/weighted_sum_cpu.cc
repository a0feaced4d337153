// Handler of bk_weighted_sum on the CPU.
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
  BK_RETURN_IF_ERROR(CheckRank({kName, "x"}, x, 2));
  const WeightedSumShape shape = {x.dimensions()[0], x.dimensions()[1]};
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "factor"}, factor, result, {shape.batch}));
  BK_RETURN_IF_ERROR(CheckShape({kName, "sum"}, sum, result, {shape.size}));
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
                                  .Arg<xla::ffi::AnyBuffer>()  // x (B, size)
                                  .Ret<xla::ffi::AnyBuffer>()  // sum (size)
                                  .Attrs());
