// Handler of bk_clipped_scatter on the CPU.
#include <cstring>

#include "custom_calls/cpu/clipped_scatter.h"
#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/lookup_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clipped_scatter";

ffi::Error ClippedScatterImpl(ffi::ThreadPool pool, ffi::AnyBuffer ids,
                              ffi::AnyBuffer factor, ffi::AnyBuffer g,
                              ffi::AnyBuffer initial,
                              ffi::Result<ffi::AnyBuffer> sum,
                              ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunClippedScatter(parallel, ids, factor, g, initial, *sum);
  });
}

// The caller aliases both; then there is nothing to do.
void CopyInitial(const ffi::AnyBuffer& initial, const ffi::AnyBuffer& sum) {
  if (initial.untyped_data() == sum.untyped_data()) return;
  std::memcpy(sum.untyped_data(), initial.untyped_data(), sum.size_bytes());
}

}  // namespace

absl::Status RunClippedScatter(Parallel& parallel, ffi::AnyBuffer ids,
                               ffi::AnyBuffer factor, ffi::AnyBuffer g,
                               ffi::AnyBuffer initial, ffi::AnyBuffer sum) {
  LookupShape shape;
  BK_RETURN_IF_ERROR(
      CheckClippedScatter(kName, ids, factor, g, initial, sum, &shape));
  return DispatchFloat({kName, "g"}, g.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    CopyInitial(initial, sum);
    ClippedScatter(*ActiveKernels().kernels, parallel, shape,
                   Data<const int32_t>(ids), Data<const Acc>(factor),
                   Data<const T>(g), Data<Acc>(sum));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedScatter, bk::ClippedScatterImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // ids (B, T)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, T, p)
        .Arg<xla::ffi::AnyBuffer>()  // initial (rows, p)
        .Ret<xla::ffi::AnyBuffer>()  // sum (rows, p), the same buffer
        .Attrs());
