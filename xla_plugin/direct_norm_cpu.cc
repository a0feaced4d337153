// Handler of bk_direct_norm on the CPU.
#include "custom_calls/cpu/direct_norm.h"
#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/norm_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_direct_norm";

ffi::Error DirectNormImpl(ffi::ThreadPool pool, ffi::AnyBuffer a,
                          ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> sq_norm,
                          ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                          ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunDirectNorm(parallel, a, g, *sq_norm, *sq_norm_upper);
  });
}

}  // namespace

absl::Status RunDirectNorm(Parallel& parallel, ffi::AnyBuffer a,
                           ffi::AnyBuffer g, ffi::AnyBuffer sq_norm,
                           ffi::AnyBuffer sq_norm_upper) {
  DenseShape shape;
  BK_RETURN_IF_ERROR(CheckPair(kName, a, g, sq_norm, &shape));
  const ffi::DataType result = AccumulatorType(a.element_type());
  BK_RETURN_IF_ERROR(
      CheckNorms(kName, shape.batch, result, sq_norm, sq_norm_upper));
  return DispatchFloat({kName, "a"}, a.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    DirectNorm(*ActiveKernels().kernels, parallel, shape, Data<const T>(a),
               Data<const T>(g), Data<Accumulator<T>>(sq_norm),
               Data<Accumulator<T>>(sq_norm_upper));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkDirectNorm, bk::DirectNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // a (B, N, T, d) or (B * T, d)
        .Arg<xla::ffi::AnyBuffer>()  // g, like a
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());
