// Operands of dense calls: one row for each example, weight and position.
#ifndef BK_JAX_XLA_PLUGIN_ROWS_H_
#define BK_JAX_XLA_PLUGIN_ROWS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "xla/ffi/api/ffi.h"
#include "xla_plugin/ffi_helpers.h"

namespace bk {

struct Rows {
  int64_t batch;
  int64_t weights;
  int64_t positions;
  int64_t width;
};

// Reads the shape [B, N, T, width], or [B * T, width] when there is one
// weight: so XLA's own dots read activations, and it stores them once for all.
absl::Status ReadRows(const OperandName& name, const ffi::AnyBuffer& buffer,
                      int64_t batch, Rows* rows);

// The same number of rows as `first`, of the same type and rank.
absl::Status ReadSameRows(const OperandName& name, const ffi::AnyBuffer& buffer,
                          const ffi::AnyBuffer& first, int64_t* width);

// Length of a vector, 0 if it is none; whoever owns it checks its shape.
int64_t LengthOf(const ffi::AnyBuffer& buffer);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_ROWS_H_
