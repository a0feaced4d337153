// Handlers of bk_conv_norm, bk_conv_grad and bk_conv_sum on a GPU. There is one
// form of the norm here, the direct one, whatever the attribute asks for.
#include "custom_calls/cuda/conv_grad.h"
#include "xla_plugin/conv_checks.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/norm_checks.h"
#include "xla_plugin/rows.h"

namespace bk {
namespace {

constexpr char kNorm[] = "bk_conv_norm";
constexpr char kGrad[] = "bk_conv_grad";
constexpr char kSum[] = "bk_conv_sum";

ffi::Error ConvNormImpl(cudaStream_t stream, ffi::AnyBuffer x, ffi::AnyBuffer g,
                        ffi::Result<ffi::AnyBuffer> sq_norm,
                        ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                        ffi::Result<ffi::AnyBuffer> workspace,
                        ffi::Dictionary attributes) {
  return RunHandler(kNorm, [&] {
    return RunConvNormCuda(stream, attributes, x, g, *sq_norm, *sq_norm_upper,
                           *workspace);
  });
}

ffi::Error ConvGradImpl(cudaStream_t stream, ffi::AnyBuffer x, ffi::AnyBuffer g,
                        ffi::Result<ffi::AnyBuffer> grad,
                        ffi::Result<ffi::AnyBuffer> sq_norm,
                        ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                        ffi::Result<ffi::AnyBuffer> workspace,
                        ffi::Dictionary attributes) {
  return RunHandler(kGrad, [&] {
    return RunConvGradCuda(stream, attributes, x, g, *grad, *sq_norm,
                           *sq_norm_upper, *workspace);
  });
}

ffi::Error ConvSumImpl(cudaStream_t stream, ffi::AnyBuffer x,
                       ffi::AnyBuffer factor, ffi::AnyBuffer g,
                       ffi::Result<ffi::AnyBuffer> sum,
                       ffi::Result<ffi::AnyBuffer> workspace,
                       ffi::Dictionary attributes) {
  return RunHandler(kSum, [&] {
    return RunConvSumCuda(stream, attributes, x, factor, g, *sum, *workspace);
  });
}

}  // namespace

absl::Status RunConvNormCuda(cudaStream_t stream,
                             const ffi::Dictionary& attributes,
                             ffi::AnyBuffer x, ffi::AnyBuffer g,
                             ffi::AnyBuffer sq_norm,
                             ffi::AnyBuffer sq_norm_upper,
                             ffi::AnyBuffer workspace) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(
      ReadConvShape(kNorm, x, g, LengthOf(sq_norm), attributes, &shape));
  bool pixel_gram = false;
  BK_RETURN_IF_ERROR(ReadConvForm(kNorm, attributes, &pixel_gram));
  BK_RETURN_IF_ERROR(CheckNorms(kNorm, shape.batch,
                                AccumulatorType(x.element_type()), sq_norm,
                                sq_norm_upper));
  BK_RETURN_IF_ERROR(
      CheckWorkspace(kNorm, workspace, cuda::ConvNormWorkspaceBytes(shape)));
  return DispatchFloat({kNorm, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        kNorm, cuda::ConvNorm(shape, Data<const T>(x), Data<const T>(g),
                              Data<Acc>(sq_norm), Data<Acc>(sq_norm_upper),
                              workspace.untyped_data(), stream));
  });
}

absl::Status RunConvGradCuda(cudaStream_t stream,
                             const ffi::Dictionary& attributes,
                             ffi::AnyBuffer x, ffi::AnyBuffer g,
                             ffi::AnyBuffer grad, ffi::AnyBuffer sq_norm,
                             ffi::AnyBuffer sq_norm_upper,
                             ffi::AnyBuffer workspace) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(
      ReadConvShape(kGrad, x, g, LengthOf(sq_norm), attributes, &shape));
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(CheckShape({kGrad, "grad"}, grad, result,
                                KernelDims(shape, {shape.batch})));
  BK_RETURN_IF_ERROR(
      CheckNorms(kGrad, shape.batch, result, sq_norm, sq_norm_upper));
  BK_RETURN_IF_ERROR(
      CheckWorkspace(kGrad, workspace, cuda::ConvNormWorkspaceBytes(shape)));
  return DispatchFloat({kGrad, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        kGrad, cuda::ConvGrad(shape, Data<const T>(x), Data<const T>(g),
                              Data<Acc>(grad), Data<Acc>(sq_norm),
                              Data<Acc>(sq_norm_upper),
                              workspace.untyped_data(), stream));
  });
}

absl::Status RunConvSumCuda(cudaStream_t stream,
                            const ffi::Dictionary& attributes, ffi::AnyBuffer x,
                            ffi::AnyBuffer factor, ffi::AnyBuffer g,
                            ffi::AnyBuffer sum, ffi::AnyBuffer workspace) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(
      ReadConvShape(kSum, x, g, LengthOf(factor), attributes, &shape));
  BK_RETURN_IF_ERROR(CheckConvSum(kSum, shape, x, factor, sum));
  BK_RETURN_IF_ERROR(
      CheckWorkspace(kSum, workspace, cuda::ConvSumWorkspaceBytes(shape)));
  return DispatchFloat({kSum, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        kSum, cuda::ConvSum(shape, Data<const T>(x), Data<const Acc>(factor),
                            Data<const T>(g), Data<Acc>(sum),
                            workspace.untyped_data(), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvNormCuda, bk::ConvNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvGradCuda, bk::ConvGradImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // grad (B, kD, kH, kW, cin, O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvSumCuda, bk::ConvSumImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // sum (spatial kernel..., cin, O)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});
