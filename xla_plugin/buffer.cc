#include "xla_plugin/buffer.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <sstream>

#include "xla_plugin/text.h"

namespace bk {

int64_t Buffer::Elements() const {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<>());
}

int64_t Buffer::Bytes() const {
  return Elements() * static_cast<int64_t>(ffi::ByteWidth(type));
}

std::string TypeString(ffi::DataType type) {
  std::ostringstream name;
  name << type;
  std::string text = name.str();
  for (char& c : text) {
    if ('A' <= c && c <= 'Z') c += 'a' - 'A';
  }
  return text;
}

std::string ShapeString(ffi::DataType type, const std::vector<int64_t>& dims) {
  return StrCat(TypeString(type), "[", StrJoin(dims, ","), "]");
}

std::string ShapeString(const Buffer& buffer) {
  return ShapeString(buffer.type, {buffer.dims.begin(), buffer.dims.end()});
}

Status Mismatch(const Named& what, const std::string& expected,
                const std::string& got) {
  return InvalidArgumentError(StrCat(what.operation, ": ", what.name,
                                     ": expected ", expected, ", got ", got));
}

Status CheckRank(const Buffer& buffer, size_t rank) {
  if (buffer.dims.size() == rank) return OkStatus();
  return Mismatch(buffer, StrCat("rank ", rank), ShapeString(buffer));
}

Status CheckShape(const Buffer& buffer, ffi::DataType type,
                  const std::vector<int64_t>& dims) {
  const bool same = std::equal(buffer.dims.begin(), buffer.dims.end(),
                               dims.begin(), dims.end());
  if (same && buffer.type == type) return OkStatus();
  return Mismatch(buffer, ShapeString(type, dims), ShapeString(buffer));
}

Status CheckExamples(const Buffer& buffer, const Buffer& first) {
  if (buffer.dims.size() == 0) {
    return Mismatch(buffer, "an axis of examples", ShapeString(buffer));
  }
  std::vector<int64_t> expected(buffer.dims.begin(), buffer.dims.end());
  expected[0] = first.dims[0];
  return CheckShape(buffer, first.type, expected);
}

int64_t LengthOf(const Buffer& buffer) {
  return buffer.dims.size() == 1 ? buffer.dims[0] : 0;
}

ffi::DataType AccumulatorType(ffi::DataType type) {
  return type == ffi::F64 ? ffi::F64 : ffi::F32;
}

std::string Alternatives(const std::vector<ffi::DataType>& types) {
  std::string text = TypeString(types.front());
  for (size_t i = 1; i < types.size(); ++i) {
    const char* between = i + 1 < types.size() ? ", " : " or ";
    text += between + TypeString(types[i]);
  }
  return text;
}

}  // namespace bk
