#include "xla_plugin/ffi_helpers.h"

#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

namespace bk {

std::string TypeString(ffi::DataType type) {
  std::ostringstream name;
  name << type;
  return absl::AsciiStrToLower(name.str());
}

std::string ShapeString(ffi::DataType type, const std::vector<int64_t>& dims) {
  return absl::StrCat(TypeString(type), "[", absl::StrJoin(dims, ","), "]");
}

std::string ShapeString(const ffi::AnyBuffer& buffer) {
  const auto dims = buffer.dimensions();
  return ShapeString(buffer.element_type(), {dims.begin(), dims.end()});
}

absl::Status Mismatch(const OperandName& name, const std::string& expected,
                      const std::string& got) {
  return absl::InvalidArgumentError(absl::StrCat(name.operation, ": ",
                                                 name.operand, ": expected ",
                                                 expected, ", got ", got));
}

absl::Status CheckRank(const OperandName& name, const ffi::AnyBuffer& buffer,
                       size_t rank) {
  if (buffer.dimensions().size() == rank) return absl::OkStatus();
  return Mismatch(name, absl::StrCat("rank ", rank), ShapeString(buffer));
}

absl::Status CheckShape(const OperandName& name, const ffi::AnyBuffer& buffer,
                        ffi::DataType type, const std::vector<int64_t>& dims) {
  const auto got = buffer.dimensions();
  const bool same = buffer.element_type() == type &&
                    std::vector<int64_t>(got.begin(), got.end()) == dims;
  if (same) return absl::OkStatus();
  return Mismatch(name, ShapeString(type, dims), ShapeString(buffer));
}

ffi::DataType AccumulatorType(ffi::DataType type) {
  return type == ffi::F64 ? ffi::F64 : ffi::F32;
}

ffi::Error ToFfiError(const absl::Status& status) {
  if (status.ok()) return ffi::Error::Success();
  // The codes of the FFI are Abseil's.
  return ffi::Error(static_cast<ffi::ErrorCode>(status.code()),
                    std::string(status.message()));
}

}  // namespace bk
