// What the handlers of noise check, on every platform.
#ifndef BK_JAX_XLA_PLUGIN_NOISE_CHECKS_H_
#define BK_JAX_XLA_PLUGIN_NOISE_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "custom_calls/noise.h"
#include "xla_plugin/ffi_helpers.h"

namespace bk {

// A word of the nonce: an attribute, because it is known when a program is
// traced and the same on every device.
absl::Status ReadNoiseWord(const OperandName& name,
                           const ffi::Dictionary& attrs, uint32_t& word);

// start + size <= whole in every dimension, and positions fit into 63 bits.
// An overlap would use noise twice, so nothing is clamped.
absl::Status CheckBlock(const char* operation, const std::vector<int64_t>& size,
                        const std::vector<int64_t>& start,
                        const std::vector<int64_t>& whole);

// Shapes and types of all operands of bk_gaussian.
absl::Status CheckGaussian(const char* operation,
                           const std::vector<int64_t>& whole,
                           const ffi::AnyBuffer& x, const ffi::AnyBuffer& key,
                           const ffi::AnyBuffer& stddev,
                           const ffi::AnyBuffer& start,
                           const ffi::AnyBuffer& out);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_NOISE_CHECKS_H_
