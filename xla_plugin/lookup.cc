#include "xla_plugin/lookup.h"

#include "custom_calls/cpu/sparse/token_order.h"

namespace bk {

Status ReadLookup(const Buffer& ids, const Buffer& g, LookupShape* shape) {
  BK_RETURN_IF_ERROR(CheckRank(g, 3));
  *shape = {g.dims[0], g.dims[1], g.dims[2], 0};
  BK_RETURN_IF_ERROR(CheckShape(ids, ffi::S32, {shape->batch, shape->tokens}));
  if (shape->batch * shape->tokens < kMaxTokens) return OkStatus();
  return Mismatch(ids, "fewer than 2^32 elements", ShapeString(ids));
}

}  // namespace bk
