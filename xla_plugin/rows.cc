#include "xla_plugin/rows.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace bk {

absl::Status ReadRows(const OperandName& name, const ffi::AnyBuffer& buffer,
                      int64_t batch, Rows* rows) {
  const auto dims = buffer.dimensions();
  if (dims.size() == 4) {
    *rows = {dims[0], dims[1], dims[2], dims[3]};
    return absl::OkStatus();
  }
  if (dims.size() != 2) {
    return Mismatch(name, "rank 2 or 4", ShapeString(buffer));
  }
  const int64_t positions = batch == 0 ? 0 : dims[0] / batch;
  if (positions * batch != dims[0]) {
    return Mismatch(name,
                    absl::StrCat("the same rows for ", batch, " examples"),
                    ShapeString(buffer));
  }
  *rows = {batch, 1, positions, dims[1]};
  return absl::OkStatus();
}

absl::Status ReadSameRows(const OperandName& name, const ffi::AnyBuffer& buffer,
                          const ffi::AnyBuffer& first, int64_t* width) {
  const auto dims = buffer.dimensions();
  const auto wanted = first.dimensions();
  BK_RETURN_IF_ERROR(CheckRank(name, buffer, wanted.size()));
  *width = dims[dims.size() - 1];
  std::vector<int64_t> expected(wanted.begin(), wanted.end());
  expected.back() = *width;
  return CheckShape(name, buffer, first.element_type(), expected);
}

int64_t LengthOf(const ffi::AnyBuffer& buffer) {
  return buffer.dimensions().size() == 1 ? buffer.dimensions()[0] : 0;
}

}  // namespace bk
