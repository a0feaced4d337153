// Handler of bk_clip_factor on the CPU.
#include <string_view>

#include "custom_calls/cpu/clip_factor.h"
#include "xla_plugin/clip_checks.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clip_factor";

ffi::Error ClipFactorImpl(ffi::AnyBuffer sq_norms, ffi::AnyBuffer clip_norm,
                          ffi::AnyBuffer is_padding,
                          ffi::Result<ffi::AnyBuffer> factor,
                          ffi::Result<ffi::AnyBuffer> norm,
                          ffi::Dictionary attributes) {
  return RunHandler(kName, [&] {
    const auto clipping = attributes.get<std::string_view>("clipping");
    if (!clipping.has_value()) {
      return Mismatch({kName, "clipping"}, "a string attribute", "none");
    }
    return RunClipFactor(*clipping, sq_norms, clip_norm, is_padding, *factor,
                         *norm);
  });
}

}  // namespace

absl::Status RunClipFactor(std::string_view clipping, ffi::AnyBuffer sq_norms,
                           ffi::AnyBuffer clip_norm, ffi::AnyBuffer is_padding,
                           ffi::AnyBuffer factor, ffi::AnyBuffer norm) {
  ClipFactorArguments arguments;
  BK_RETURN_IF_ERROR(CheckClipFactor(clipping, sq_norms, clip_norm, is_padding,
                                     factor, norm, &arguments));
  const ffi::DataType type = sq_norms.element_type();
  return DispatchAccumulator({kName, "sq_norms"}, type, [&](auto tag) {
    using Real = typename decltype(tag)::Type;
    ClipFactor(arguments.shape, arguments.clipping, Data<const Real>(sq_norms),
               *Data<const Real>(clip_norm), Data<const bool>(is_padding),
               Data<Real>(factor), Data<Real>(norm));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClipFactor, bk::ClipFactorImpl,
    xla::ffi::Ffi::Bind()
        .Arg<xla::ffi::AnyBuffer>()  // sq_norms (K, B)
        .Arg<xla::ffi::AnyBuffer>()  // clip_norm ()
        .Arg<xla::ffi::AnyBuffer>()  // is_padding (B)
        .Ret<xla::ffi::AnyBuffer>()  // factor (B)
        .Ret<xla::ffi::AnyBuffer>()  // norm (B)
        .Attrs());                   // clipping: string
