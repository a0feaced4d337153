// Handler of bk_clip_factor on a GPU.
#include <string_view>

#include "custom_calls/cuda/clip_factor.h"
#include "xla_plugin/clip_checks.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clip_factor";

ffi::Error ClipFactorImpl(cudaStream_t stream, ffi::AnyBuffer sq_norms,
                          ffi::AnyBuffer clip_norm, ffi::AnyBuffer is_padding,
                          ffi::Result<ffi::AnyBuffer> factor,
                          ffi::Result<ffi::AnyBuffer> norm,
                          ffi::Dictionary attributes) {
  return RunHandler(kName, [&] {
    const auto clipping = attributes.get<std::string_view>("clipping");
    if (!clipping.has_value()) {
      return Mismatch({kName, "clipping"}, "a string attribute", "none");
    }
    return RunClipFactorCuda(stream, *clipping, sq_norms, clip_norm, is_padding,
                             *factor, *norm);
  });
}

}  // namespace

absl::Status RunClipFactorCuda(cudaStream_t stream, std::string_view clipping,
                               ffi::AnyBuffer sq_norms,
                               ffi::AnyBuffer clip_norm,
                               ffi::AnyBuffer is_padding, ffi::AnyBuffer factor,
                               ffi::AnyBuffer norm) {
  ClipFactorArguments arguments;
  BK_RETURN_IF_ERROR(CheckClipFactor(clipping, sq_norms, clip_norm, is_padding,
                                     factor, norm, &arguments));
  const ffi::DataType type = sq_norms.element_type();
  return DispatchAccumulator({kName, "sq_norms"}, type, [&](auto tag) {
    using Real = typename decltype(tag)::Type;
    return BK_CUDA_STATUS(
        kName, cuda::ClipFactor(arguments.shape, arguments.clipping,
                                Data<const Real>(sq_norms),
                                Data<const Real>(clip_norm),
                                Data<const bool>(is_padding),
                                Data<Real>(factor), Data<Real>(norm), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClipFactorCuda, bk::ClipFactorImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // sq_norms (K, B)
        .Arg<xla::ffi::AnyBuffer>()  // clip_norm ()
        .Arg<xla::ffi::AnyBuffer>()  // is_padding (B)
        .Ret<xla::ffi::AnyBuffer>()  // factor (B)
        .Ret<xla::ffi::AnyBuffer>()  // norm (B)
        .Attrs(),                    // clipping: string
    {xla::ffi::Traits::kCmdBufferCompatible});
