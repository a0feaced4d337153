// Handler of bk_per_sample_grad on the CPU.
#include "custom_calls/cpu/dispatch.h"
#include "custom_calls/cpu/per_sample_grad.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/norm_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_per_sample_grad";

ffi::Error PerSampleGradImpl(ffi::ThreadPool pool, ffi::AnyBuffer a,
                             ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> grad,
                             ffi::Result<ffi::AnyBuffer> sq_norm,
                             ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                             ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunPerSampleGrad(parallel, a, g, *grad, *sq_norm, *sq_norm_upper);
  });
}

}  // namespace

absl::Status RunPerSampleGrad(Parallel& parallel, ffi::AnyBuffer a,
                              ffi::AnyBuffer g, ffi::AnyBuffer grad,
                              ffi::AnyBuffer sq_norm,
                              ffi::AnyBuffer sq_norm_upper) {
  DenseShape shape;
  BK_RETURN_IF_ERROR(CheckPair(kName, a, g, sq_norm, &shape));
  const ffi::DataType result = AccumulatorType(a.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "grad"}, grad, result,
                 {shape.batch, shape.weights, shape.d, shape.p}));
  BK_RETURN_IF_ERROR(
      CheckNorms(kName, shape.batch, result, sq_norm, sq_norm_upper));
  return DispatchFloat({kName, "a"}, a.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    PerSampleGrad(*ActiveKernels().kernels, parallel, shape, Data<const T>(a),
                  Data<const T>(g), Data<Acc>(grad), Data<Acc>(sq_norm),
                  Data<Acc>(sq_norm_upper));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkPerSampleGrad, bk::PerSampleGradImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // a (B, N, T, d) or (B * T, d)
        .Arg<xla::ffi::AnyBuffer>()  // g, like a
        .Ret<xla::ffi::AnyBuffer>()  // grad (B, N, d, p)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());
