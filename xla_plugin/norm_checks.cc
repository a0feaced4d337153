#include "xla_plugin/norm_checks.h"

#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/rows.h"

namespace bk {

absl::Status CheckPair(const char* operation, const ffi::AnyBuffer& a,
                       const ffi::AnyBuffer& g, const ffi::AnyBuffer& sq_norm,
                       DenseShape* shape) {
  Rows rows;
  BK_RETURN_IF_ERROR(ReadRows({operation, "a"}, a, LengthOf(sq_norm), &rows));
  *shape = {rows.batch, rows.weights, rows.positions, rows.width, 0};
  return ReadSameRows({operation, "g"}, g, a, &shape->p);
}

absl::Status CheckNorms(const char* operation, int64_t batch,
                        ffi::DataType type, const ffi::AnyBuffer& sq_norm,
                        const ffi::AnyBuffer& sq_norm_upper) {
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "sq_norm"}, sq_norm, type, {batch}));
  return CheckShape({operation, "sq_norm_upper"}, sq_norm_upper, type, {batch});
}

}  // namespace bk
