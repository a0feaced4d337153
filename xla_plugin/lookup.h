// What the operands of lookups have in common.
#ifndef BK_JAX_XLA_PLUGIN_LOOKUP_H_
#define BK_JAX_XLA_PLUGIN_LOOKUP_H_

#include "custom_calls/shapes.h"
#include "xla_plugin/buffer.h"
#include "xla_plugin/status.h"

namespace bk {

// ids s32[B, T] and g [B, T, p], with B T small enough to be sorted; `rows` of
// the shape is 0.
Status ReadLookup(const Buffer& ids, const Buffer& g, LookupShape* shape);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_LOOKUP_H_
