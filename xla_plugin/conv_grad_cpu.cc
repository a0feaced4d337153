// Handlers of bk_conv_norm, bk_conv_grad and bk_conv_sum on the CPU.
#include "custom_calls/cpu/conv_grad.h"
#include "custom_calls/cpu/conv_gram.h"
#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/conv_checks.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/norm_checks.h"
#include "xla_plugin/rows.h"

namespace bk {
namespace {

constexpr char kNorm[] = "bk_conv_norm";
constexpr char kGrad[] = "bk_conv_grad";
constexpr char kSum[] = "bk_conv_sum";

ffi::Error ConvNormImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                        ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> sq_norm,
                        ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                        ffi::Dictionary attributes) {
  return RunHandler(kNorm, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunConvNorm(parallel, attributes, x, g, *sq_norm, *sq_norm_upper);
  });
}

ffi::Error ConvGradImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                        ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> grad,
                        ffi::Result<ffi::AnyBuffer> sq_norm,
                        ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                        ffi::Dictionary attributes) {
  return RunHandler(kGrad, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunConvGrad(parallel, attributes, x, g, *grad, *sq_norm,
                       *sq_norm_upper);
  });
}

ffi::Error ConvSumImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                       ffi::AnyBuffer factor, ffi::AnyBuffer g,
                       ffi::Result<ffi::AnyBuffer> sum,
                       ffi::Dictionary attributes) {
  return RunHandler(kSum, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunConvSum(parallel, attributes, x, factor, g, *sum);
  });
}

}  // namespace

absl::Status RunConvNorm(Parallel& parallel, const ffi::Dictionary& attributes,
                         ffi::AnyBuffer x, ffi::AnyBuffer g,
                         ffi::AnyBuffer sq_norm, ffi::AnyBuffer sq_norm_upper) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(
      ReadConvShape(kNorm, x, g, LengthOf(sq_norm), attributes, &shape));
  bool pixel_gram = false;
  BK_RETURN_IF_ERROR(ReadConvForm(kNorm, attributes, &pixel_gram));
  BK_RETURN_IF_ERROR(CheckNorms(kNorm, shape.batch,
                                AccumulatorType(x.element_type()), sq_norm,
                                sq_norm_upper));
  return DispatchFloat({kNorm, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    const auto norm = pixel_gram ? ConvGramNorm<T> : ConvNorm<T>;
    norm(*ActiveKernels().kernels, parallel, shape, Data<const T>(x),
         Data<const T>(g), Data<Acc>(sq_norm), Data<Acc>(sq_norm_upper));
    return absl::OkStatus();
  });
}

absl::Status RunConvGrad(Parallel& parallel, const ffi::Dictionary& attributes,
                         ffi::AnyBuffer x, ffi::AnyBuffer g,
                         ffi::AnyBuffer grad, ffi::AnyBuffer sq_norm,
                         ffi::AnyBuffer sq_norm_upper) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(
      ReadConvShape(kGrad, x, g, LengthOf(sq_norm), attributes, &shape));
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(CheckShape({kGrad, "grad"}, grad, result,
                                KernelDims(shape, {shape.batch})));
  BK_RETURN_IF_ERROR(
      CheckNorms(kGrad, shape.batch, result, sq_norm, sq_norm_upper));
  return DispatchFloat({kGrad, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    ConvGrad(*ActiveKernels().kernels, parallel, shape, Data<const T>(x),
             Data<const T>(g), Data<Acc>(grad), Data<Acc>(sq_norm),
             Data<Acc>(sq_norm_upper));
    return absl::OkStatus();
  });
}

absl::Status RunConvSum(Parallel& parallel, const ffi::Dictionary& attributes,
                        ffi::AnyBuffer x, ffi::AnyBuffer factor,
                        ffi::AnyBuffer g, ffi::AnyBuffer sum) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(
      ReadConvShape(kSum, x, g, LengthOf(factor), attributes, &shape));
  BK_RETURN_IF_ERROR(CheckConvSum(kSum, shape, x, factor, sum));
  return DispatchFloat({kSum, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    ConvSum(*ActiveKernels().kernels, parallel, shape, Data<const T>(x),
            Data<const Acc>(factor), Data<const T>(g), Data<Acc>(sum));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvNorm, bk::ConvNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvGrad, bk::ConvGradImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // grad (B, kD, kH, kW, cin, O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvSum, bk::ConvSumImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // sum (spatial kernel..., cin, O)
        .Attrs());
