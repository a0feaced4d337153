#include "xla_plugin/norm_checks.h"

#include "xla_plugin/ffi_helpers.h"

namespace bk {

absl::Status CheckPair(const char* operation, const ffi::AnyBuffer& a,
                       const ffi::AnyBuffer& g, GhostNormShape* shape) {
  BK_RETURN_IF_ERROR(CheckRank({operation, "a"}, a, 4));
  BK_RETURN_IF_ERROR(CheckRank({operation, "g"}, g, 4));
  const auto dims = a.dimensions();
  *shape = {dims[0], dims[1], dims[2], dims[3], g.dimensions()[3]};
  return CheckShape({operation, "g"}, g, a.element_type(),
                    {dims[0], dims[1], dims[2], shape->p});
}

absl::Status CheckNorms(const char* operation, int64_t batch,
                        ffi::DataType type, const ffi::AnyBuffer& sq_norm,
                        const ffi::AnyBuffer& sq_norm_upper) {
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "sq_norm"}, sq_norm, type, {batch}));
  return CheckShape({operation, "sq_norm_upper"}, sq_norm_upper, type, {batch});
}

}  // namespace bk
