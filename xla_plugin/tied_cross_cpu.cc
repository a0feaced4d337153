// Handler of bk_tied_cross on the CPU.
#include "custom_calls/cpu/dispatch.h"
#include "custom_calls/cpu/tied_cross.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/lookup_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_tied_cross";

ffi::Error TiedCrossImpl(ffi::ThreadPool pool, ffi::AnyBuffer left,
                         ffi::AnyBuffer right, ffi::AnyBuffer ids,
                         ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> cross,
                         ffi::Result<ffi::AnyBuffer> cross_upper,
                         ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunTiedCross(parallel, left, right, ids, g, *cross, *cross_upper);
  });
}

}  // namespace

absl::Status RunTiedCross(Parallel& parallel, ffi::AnyBuffer left,
                          ffi::AnyBuffer right, ffi::AnyBuffer ids,
                          ffi::AnyBuffer g, ffi::AnyBuffer cross,
                          ffi::AnyBuffer cross_upper) {
  TiedCrossShape shape;
  BK_RETURN_IF_ERROR(
      CheckTiedCross(kName, left, right, ids, g, cross, cross_upper, &shape));
  return DispatchFloat({kName, "g"}, g.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    TiedCross(*ActiveKernels().kernels, parallel, shape, Data<const T>(left),
              Data<const T>(right), Data<const int32_t>(ids), Data<const T>(g),
              Data<Accumulator<T>>(cross), Data<Accumulator<T>>(cross_upper));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkTiedCross, bk::TiedCrossImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // left (B * T, rows)
        .Arg<xla::ffi::AnyBuffer>()  // right (B * T, p)
        .Arg<xla::ffi::AnyBuffer>()  // ids (B, S)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, S, p)
        .Ret<xla::ffi::AnyBuffer>()  // cross (B)
        .Ret<xla::ffi::AnyBuffer>()  // cross_upper (B)
        .Attrs());
