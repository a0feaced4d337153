#include "xla_plugin/lookup_checks.h"

#include "custom_calls/cpu/token_order.h"
#include "xla_plugin/ffi_helpers.h"

namespace bk {

absl::Status CheckLookup(const char* operation, ffi::AnyBuffer ids,
                         ffi::AnyBuffer g) {
  BK_RETURN_IF_ERROR(CheckRank({operation, "g"}, g, 3));
  const auto dims = g.dimensions();
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "ids"}, ids, ffi::S32, {dims[0], dims[1]}));
  if (dims[0] * dims[1] < kMaxTokens) return absl::OkStatus();
  return Mismatch({operation, "ids"}, "fewer than 2^32 elements",
                  ShapeString(ids));
}

}  // namespace bk
