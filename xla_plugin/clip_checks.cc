#include "xla_plugin/clip_checks.h"

#include <optional>
#include <string>

#include "xla_plugin/ffi_helpers.h"

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

}  // namespace

absl::Status CheckClipFactor(std::string_view clipping,
                             const ffi::AnyBuffer& sq_norms,
                             const ffi::AnyBuffer& clip_norm,
                             const ffi::AnyBuffer& is_padding,
                             const ffi::AnyBuffer& factor,
                             const ffi::AnyBuffer& norm,
                             ClipFactorArguments* arguments) {
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
  *arguments = {shape, *parsed};
  return absl::OkStatus();
}

}  // namespace bk
