#include "xla_plugin/dense.h"

#include <vector>

#include "xla_plugin/text.h"

namespace bk {

Status ReadRows(const Buffer& buffer, int64_t batch, Rows* rows) {
  const auto dims = buffer.dims;
  if (dims.size() == 4) {
    *rows = {dims[0], dims[1], dims[2], dims[3]};
    return OkStatus();
  }
  if (dims.size() != 2) {
    return Mismatch(buffer, "rank 2 or 4", ShapeString(buffer));
  }
  const int64_t positions = batch == 0 ? 0 : dims[0] / batch;
  if (positions * batch != dims[0]) {
    return Mismatch(buffer, StrCat("the same rows for ", batch, " examples"),
                    ShapeString(buffer));
  }
  *rows = {batch, 1, positions, dims[1]};
  return OkStatus();
}

Status ReadSameRows(const Buffer& buffer, const Buffer& first, int64_t* width) {
  BK_RETURN_IF_ERROR(CheckRank(buffer, first.dims.size()));
  *width = buffer.dims.back();
  std::vector<int64_t> expected(first.dims.begin(), first.dims.end());
  expected.back() = *width;
  return CheckShape(buffer, first.type, expected);
}

Status CheckNorms(int64_t batch, const Buffer& operand, const Buffer& sq_norm,
                  const Buffer& sq_norm_upper) {
  const ffi::DataType type = AccumulatorType(operand);
  BK_RETURN_IF_ERROR(CheckShape(sq_norm, type, {batch}));
  return CheckShape(sq_norm_upper, type, {batch});
}

Status DenseCall::ReadShape(int64_t batch) {
  Rows rows;
  BK_RETURN_IF_ERROR(ReadRows(a, batch, &rows));
  shape = {rows.batch, rows.weights, rows.positions, rows.width, 0};
  return ReadSameRows(g, a, &shape.p);
}

Status DenseNormCall::Check() {
  BK_RETURN_IF_ERROR(ReadShape(LengthOf(sq_norm)));
  return CheckNorms(shape.batch, a, sq_norm, sq_norm_upper);
}

}  // namespace bk
