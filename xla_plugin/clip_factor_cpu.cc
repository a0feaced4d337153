// Handler of bk_clip_factor on the CPU.
#include <optional>
#include <string>
#include <string_view>

#include "custom_calls/cpu/clip_factor.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clip_factor";

std::optional<Clipping> ParseClipping(std::string_view name) {
  if (name == "abadi") return Clipping::kAbadi;
  if (name == "automatic") return Clipping::kAutomatic;
  if (name == "normalize") return Clipping::kNormalize;
  if (name == "indicator") return Clipping::kIndicator;
  return std::nullopt;
}

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
  const std::optional<Clipping> parsed = ParseClipping(clipping);
  if (!parsed.has_value()) {
    return Mismatch({kName, "clipping"},
                    "abadi, automatic, normalize or indicator",
                    "'" + std::string(clipping) + "'");
  }
  BK_RETURN_IF_ERROR(CheckRank({kName, "sq_norms"}, sq_norms, 2));
  const ClipFactorShape shape = {sq_norms.dimensions()[0],
                                 sq_norms.dimensions()[1]};
  const ffi::DataType type = sq_norms.element_type();
  BK_RETURN_IF_ERROR(CheckShape({kName, "clip_norm"}, clip_norm, type, {}));
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "is_padding"}, is_padding, ffi::PRED, {shape.batch}));
  BK_RETURN_IF_ERROR(
      CheckShape({kName, "factor"}, factor, type, {shape.batch}));
  BK_RETURN_IF_ERROR(CheckShape({kName, "norm"}, norm, type, {shape.batch}));
  return DispatchAccumulator({kName, "sq_norms"}, type, [&](auto tag) {
    using Real = typename decltype(tag)::Type;
    ClipFactor(shape, *parsed, Data<const Real>(sq_norms),
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
