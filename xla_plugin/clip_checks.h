// What the handlers of bk_clip_factor check on every platform.
#ifndef BK_JAX_XLA_PLUGIN_CLIP_CHECKS_H_
#define BK_JAX_XLA_PLUGIN_CLIP_CHECKS_H_

#include <string_view>

#include "absl/status/status.h"
#include "custom_calls/clipping.h"
#include "custom_calls/shapes.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

struct ClipFactorArguments {
  ClipFactorShape shape;
  Clipping clipping;
};

// sq_norms [K, B], clip_norm [], is_padding [B], factor [B], norm [B].
absl::Status CheckClipFactor(std::string_view clipping,
                             const xla::ffi::AnyBuffer& sq_norms,
                             const xla::ffi::AnyBuffer& clip_norm,
                             const xla::ffi::AnyBuffer& is_padding,
                             const xla::ffi::AnyBuffer& factor,
                             const xla::ffi::AnyBuffer& norm,
                             ClipFactorArguments* arguments);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CLIP_CHECKS_H_
