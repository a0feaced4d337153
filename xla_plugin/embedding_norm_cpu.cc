// Handler of bk_embedding_norm on the CPU.
#include "custom_calls/cpu/dispatch.h"
#include "custom_calls/cpu/embedding_norm.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/lookup_checks.h"
#include "xla_plugin/norm_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_embedding_norm";

ffi::Error EmbeddingNormImpl(ffi::ThreadPool pool, ffi::AnyBuffer ids,
                             ffi::AnyBuffer g,
                             ffi::Result<ffi::AnyBuffer> sq_norm,
                             ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                             ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunEmbeddingNorm(parallel, ids, g, *sq_norm, *sq_norm_upper);
  });
}

}  // namespace

absl::Status RunEmbeddingNorm(Parallel& parallel, ffi::AnyBuffer ids,
                              ffi::AnyBuffer g, ffi::AnyBuffer sq_norm,
                              ffi::AnyBuffer sq_norm_upper) {
  BK_RETURN_IF_ERROR(CheckLookup(kName, ids, g));
  const auto dims = g.dimensions();
  const LookupShape shape = {dims[0], dims[1], dims[2], 0};
  const ffi::DataType result = AccumulatorType(g.element_type());
  BK_RETURN_IF_ERROR(
      CheckNorms(kName, shape.batch, result, sq_norm, sq_norm_upper));
  return DispatchFloat({kName, "g"}, g.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    EmbeddingNorm(*ActiveKernels().kernels, parallel, shape,
                  Data<const int32_t>(ids), Data<const T>(g),
                  Data<Accumulator<T>>(sq_norm),
                  Data<Accumulator<T>>(sq_norm_upper));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkEmbeddingNorm, bk::EmbeddingNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // ids (B, T)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, T, p)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());
