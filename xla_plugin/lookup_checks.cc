#include "xla_plugin/lookup_checks.h"

#include "custom_calls/cpu/token_order.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/rows.h"

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

absl::Status CheckClippedScatter(const char* operation, ffi::AnyBuffer ids,
                                 ffi::AnyBuffer factor, ffi::AnyBuffer g,
                                 ffi::AnyBuffer initial, ffi::AnyBuffer sum,
                                 LookupShape* shape) {
  BK_RETURN_IF_ERROR(CheckLookup(operation, ids, g));
  BK_RETURN_IF_ERROR(CheckRank({operation, "initial"}, initial, 2));
  const auto dims = g.dimensions();
  *shape = {dims[0], dims[1], dims[2], initial.dimensions()[0]};
  const ffi::DataType result = AccumulatorType(g.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "factor"}, factor, result, {shape->batch}));
  BK_RETURN_IF_ERROR(CheckShape({operation, "initial"}, initial, result,
                                {shape->rows, shape->p}));
  return CheckShape({operation, "sum"}, sum, result, {shape->rows, shape->p});
}

absl::Status CheckTiedCross(const char* operation, ffi::AnyBuffer left,
                            ffi::AnyBuffer right, ffi::AnyBuffer ids,
                            ffi::AnyBuffer g, ffi::AnyBuffer cross,
                            ffi::AnyBuffer cross_upper, TiedCrossShape* shape) {
  BK_RETURN_IF_ERROR(CheckLookup(operation, ids, g));
  BK_RETURN_IF_ERROR(CheckRank({operation, "left"}, left, 2));
  const auto dims = g.dimensions();
  Rows rows;
  BK_RETURN_IF_ERROR(ReadRows({operation, "left"}, left, dims[0], &rows));
  *shape = {dims[0], rows.positions, rows.width, dims[1], dims[2]};
  const ffi::DataType type = g.element_type();
  const ffi::DataType result = AccumulatorType(type);
  const int64_t tokens = left.dimensions()[0];
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "left"}, left, type, {tokens, shape->rows}));
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "right"}, right, type, {tokens, shape->p}));
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "cross"}, cross, result, {shape->batch}));
  return CheckShape({operation, "cross_upper"}, cross_upper, result,
                    {shape->batch});
}

}  // namespace bk
