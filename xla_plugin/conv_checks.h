// What the handlers of convolutions check, on every platform.
#ifndef BK_JAX_XLA_PLUGIN_CONV_CHECKS_H_
#define BK_JAX_XLA_PLUGIN_CONV_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "custom_calls/shapes.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

// Images x [B * images, spatial..., C] and g [B * images, spatial'..., O], and
// the window from the attributes.
absl::Status ReadConvShape(const char* operation, const xla::ffi::AnyBuffer& x,
                           const xla::ffi::AnyBuffer& g, int64_t batch,
                           const xla::ffi::Dictionary& attributes,
                           ConvShape* shape);

// How norms are made.
absl::Status ReadConvForm(const char* operation,
                          const xla::ffi::Dictionary& attributes,
                          bool* pixel_gram);

// [lead..., kD, kH, kW, cin, groups * cout]
std::vector<int64_t> KernelDims(const ConvShape& s, std::vector<int64_t> lead);

// factor [B], sum [spatial kernel..., cin, O]
absl::Status CheckConvSum(const char* operation, const ConvShape& shape,
                          const xla::ffi::AnyBuffer& x,
                          const xla::ffi::AnyBuffer& factor,
                          const xla::ffi::AnyBuffer& sum);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CONV_CHECKS_H_
