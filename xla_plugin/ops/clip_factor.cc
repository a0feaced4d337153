// bk_clip_factor: from certified squared norms to clip factors.
#include <optional>
#include <string>
#include <string_view>

#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/clip_factor.h"
#else
#include "custom_calls/cpu/dense/clip_factor.h"
#endif

namespace bk {
namespace {

std::optional<Clipping> ParseClipping(std::string_view name) {
  if (name == "abadi") return Clipping::kAbadi;
  if (name == "automatic") return Clipping::kAutomatic;
  if (name == "normalize") return Clipping::kNormalize;
  if (name == "indicator") return Clipping::kIndicator;
  return std::nullopt;
}

struct ClipFactorCall : Call {
  static constexpr char kName[] = "bk_clip_factor";
  using Call::Call;
  using Types = bk::Types<float, double>;
  Buffer sq_norms = Operand("sq_norms");      // [K, B]
  Buffer clip_norm = Operand("clip_norm");    // []
  Buffer is_padding = Operand("is_padding");  // [B]
  Buffer factor = Result("factor");           // [B]
  Buffer norm = Result("norm");               // [B]
  ClipFactorShape shape = {};
  Clipping clipping = {};

  const Buffer& Typed() const { return sq_norms; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadClipping());
    BK_RETURN_IF_ERROR(CheckRank(sq_norms, 2));
    shape = {sq_norms.dims[0], sq_norms.dims[1]};
    const ffi::DataType type = sq_norms.type;
    BK_RETURN_IF_ERROR(CheckShape(clip_norm, type, {}));
    BK_RETURN_IF_ERROR(CheckShape(is_padding, ffi::PRED, {shape.batch}));
    BK_RETURN_IF_ERROR(CheckShape(factor, type, {shape.batch}));
    return CheckShape(norm, type, {shape.batch});
  }

  Status ReadClipping() {
    const auto name = attributes_.String("clipping");
    if (!name.has_value()) {
      return Mismatch(Attribute("clipping"), "a string attribute", "none");
    }
    const std::optional<Clipping> parsed = ParseClipping(*name);
    if (!parsed.has_value()) {
      return Mismatch(Attribute("clipping"),
                      "abadi, automatic, normalize or indicator",
                      "'" + std::string(*name) + "'");
    }
    clipping = *parsed;
    return OkStatus();
  }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::ClipFactor<T>(shape, clipping, sq_norms,
                                              clip_norm, is_padding, factor,
                                              norm, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& /*cpu*/) {
    const T* radius = clip_norm;
    ClipFactor<T>(shape, clipping, sq_norms, *radius, is_padding, factor, norm);
  }
#endif
};

const Registration<ClipFactorCall> kRegistration;

}  // namespace
}  // namespace bk
