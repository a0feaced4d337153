// What the operands and results of norms have in common.
#ifndef BK_JAX_XLA_PLUGIN_NORM_CHECKS_H_
#define BK_JAX_XLA_PLUGIN_NORM_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "custom_calls/shapes.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

// a [B, N, T, d] and g [B, N, T, p] of one type, or [B * T, d] and [B * T, p]
// when there is one weight (B is then the length of sq_norm); fills in the
// shape.
absl::Status CheckPair(const char* operation, const xla::ffi::AnyBuffer& a,
                       const xla::ffi::AnyBuffer& g,
                       const xla::ffi::AnyBuffer& sq_norm, DenseShape* shape);

// sq_norm and sq_norm_upper [batch], of type `type`.
absl::Status CheckNorms(const char* operation, int64_t batch,
                        xla::ffi::DataType type,
                        const xla::ffi::AnyBuffer& sq_norm,
                        const xla::ffi::AnyBuffer& sq_norm_upper);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_NORM_CHECKS_H_
