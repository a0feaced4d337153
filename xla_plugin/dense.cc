#include "xla_plugin/dense.h"

#include <vector>

#include "xla_plugin/text.h"

namespace bk {
namespace {

// An operand of layer `layer`, counted from 0, like that of the first one.
Status CheckLike(const Buffer& buffer, const Buffer& first, size_t layer) {
  if (CheckShape(buffer, first.type, {first.dims.begin(), first.dims.end()})
          .ok()) {
    return OkStatus();
  }
  return Mismatch(buffer,
                  StrCat("the shape of the first layer, ", ShapeString(first)),
                  StrCat(ShapeString(buffer), " for layer ", layer + 1));
}

}  // namespace

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

LayerOperands::LayerOperands(const Named& what,
                             const std::vector<Buffer>& operands,
                             const char* left_name, const char* right_name)
    : what_(what), operands_(operands.size()) {
  for (size_t k = 0; k + 1 < operands.size(); k += 2) {
    left.push_back(operands[k]);
    left.back().name = left_name;
    right.push_back(operands[k + 1]);
    right.back().name = right_name;
  }
}

Status LayerOperands::Check(int64_t most) const {
  if (operands_ % 2 != 0) {
    return Mismatch(what_, "two operands for each layer",
                    StrCat(operands_, " operands"));
  }
  if (left.empty() || static_cast<int64_t>(left.size()) > most) {
    return Mismatch(what_, StrCat("1 to ", most, " layers"),
                    StrCat(left.size()));
  }
  for (size_t l = 1; l < left.size(); ++l) {
    BK_RETURN_IF_ERROR(CheckLike(left[l], left[0], l));
    BK_RETURN_IF_ERROR(CheckLike(right[l], right[0], l));
  }
  return OkStatus();
}

}  // namespace bk
