// Handler of bk_clipped_gemm on the CPU.
#include "custom_calls/cpu/clipped_gemm.h"
#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clipped_gemm";

ffi::Error ClippedGemmImpl(ffi::ThreadPool pool, ffi::AnyBuffer lhs,
                           ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                           ffi::Result<ffi::AnyBuffer> sum,
                           ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunClippedGemm(parallel, lhs, factor, rhs, *sum);
  });
}

}  // namespace

absl::Status RunClippedGemm(Parallel& parallel, ffi::AnyBuffer lhs,
                            ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                            ffi::AnyBuffer sum) {
  BK_RETURN_IF_ERROR(CheckRank({kName, "lhs"}, lhs, 4));
  BK_RETURN_IF_ERROR(CheckRank({kName, "rhs"}, rhs, 4));
  const auto dims = lhs.dimensions();
  const ClippedGemmShape shape = {dims[0], dims[1], dims[2], dims[3],
                                  rhs.dimensions()[3]};
  const ffi::DataType result = AccumulatorType(lhs.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "factor"}, factor, result, {shape.batch}));
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "rhs"}, rhs, lhs.element_type(),
                 {shape.batch, shape.weights, shape.positions, shape.n}));
  BK_RETURN_IF_ERROR(CheckShape({kName, "sum"}, sum, result,
                                {shape.weights, shape.m, shape.n}));
  return DispatchFloat({kName, "lhs"}, lhs.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    ClippedGemm(*ActiveKernels().kernels, parallel, shape, Data<const T>(lhs),
                Data<const Acc>(factor), Data<const T>(rhs), Data<Acc>(sum));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedGemm, bk::ClippedGemmImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // lhs (B, N, T, m)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // rhs (B, N, T, n)
        .Ret<xla::ffi::AnyBuffer>()  // sum (N, m, n)
        .Attrs());
