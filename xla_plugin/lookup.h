// What the operands of lookups have in common.
#ifndef BK_JAX_XLA_PLUGIN_LOOKUP_H_
#define BK_JAX_XLA_PLUGIN_LOOKUP_H_

#include "absl/status/status.h"
#include "custom_calls/shapes.h"
#include "xla_plugin/buffer.h"

namespace bk {

// ids s32[B, T] and g [B, T, p], with B T small enough to be sorted; `rows` of
// the shape is 0.
absl::Status ReadLookup(const Buffer& ids, const Buffer& g, LookupShape* shape);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_LOOKUP_H_
