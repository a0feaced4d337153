// What the operands of lookups have in common.
#ifndef BK_JAX_XLA_PLUGIN_LOOKUP_CHECKS_H_
#define BK_JAX_XLA_PLUGIN_LOOKUP_CHECKS_H_

#include "absl/status/status.h"
#include "custom_calls/shapes.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

// ids s32[B, T] and g [B, T, p], with B T small enough to be sorted.
absl::Status CheckLookup(const char* operation, xla::ffi::AnyBuffer ids,
                         xla::ffi::AnyBuffer g);

// All operands of bk_clipped_scatter; fills in `shape`.
absl::Status CheckClippedScatter(const char* operation, xla::ffi::AnyBuffer ids,
                                 xla::ffi::AnyBuffer factor,
                                 xla::ffi::AnyBuffer g,
                                 xla::ffi::AnyBuffer initial,
                                 xla::ffi::AnyBuffer sum, LookupShape* shape);

// All operands of bk_tied_cross; fills in `shape`.
absl::Status CheckTiedCross(const char* operation, xla::ffi::AnyBuffer left,
                            xla::ffi::AnyBuffer right, xla::ffi::AnyBuffer ids,
                            xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer cross,
                            xla::ffi::AnyBuffer cross_upper,
                            TiedCrossShape* shape);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_LOOKUP_CHECKS_H_
