// What the operands of lookups have in common.
#ifndef BK_JAX_XLA_PLUGIN_LOOKUP_CHECKS_H_
#define BK_JAX_XLA_PLUGIN_LOOKUP_CHECKS_H_

#include "absl/status/status.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

// ids s32[B, T] and g [B, T, p], with B T small enough to be sorted.
absl::Status CheckLookup(const char* operation, xla::ffi::AnyBuffer ids,
                         xla::ffi::AnyBuffer g);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_LOOKUP_CHECKS_H_
