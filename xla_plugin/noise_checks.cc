#include "xla_plugin/noise_checks.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace bk {

absl::Status ReadNoiseWord(const OperandName& name,
                           const ffi::Dictionary& attrs, uint32_t& word) {
  const auto value = attrs.get<int64_t>(name.operand);
  if (!value.has_value()) {
    return Mismatch(name, "an integer attribute", "none");
  }
  if (*value < 0 || *value > std::numeric_limits<uint32_t>::max()) {
    return Mismatch(name, "0 <= value < 2^32", absl::StrCat(*value));
  }
  word = static_cast<uint32_t>(*value);
  return absl::OkStatus();
}

absl::Status CheckBlock(const char* operation, const std::vector<int64_t>& size,
                        const std::vector<int64_t>& start,
                        const std::vector<int64_t>& whole) {
  int64_t elements = 1;
  for (size_t k = 0; k < size.size(); ++k) {
    if (start[k] < 0 || start[k] > whole[k] - size[k]) {
      return Mismatch(
          {operation, "start"},
          absl::StrCat("a block of size (", absl::StrJoin(size, ","),
                       ") within whole=(", absl::StrJoin(whole, ","), ")"),
          absl::StrCat("(", absl::StrJoin(start, ","), ")"));
    }
    if (__builtin_mul_overflow(elements, std::max<int64_t>(whole[k], 1),
                               &elements)) {
      return Mismatch({operation, "whole"}, "less than 2^63 elements",
                      absl::StrCat("(", absl::StrJoin(whole, ","), ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGaussian(const char* operation,
                           const std::vector<int64_t>& whole,
                           const ffi::AnyBuffer& x, const ffi::AnyBuffer& key,
                           const ffi::AnyBuffer& stddev,
                           const ffi::AnyBuffer& start,
                           const ffi::AnyBuffer& out) {
  const auto dims = x.dimensions();
  const std::vector<int64_t> size(dims.begin(), dims.end());
  const auto rank = static_cast<int64_t>(size.size());
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "key"}, key, ffi::U32, {kKeyWords}));
  BK_RETURN_IF_ERROR(CheckShape({operation, "stddev"}, stddev,
                                AccumulatorType(x.element_type()), {}));
  BK_RETURN_IF_ERROR(CheckShape({operation, "start"}, start, ffi::S32, {rank}));
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "out"}, out, x.element_type(), size));
  if (whole.size() == size.size()) return absl::OkStatus();
  return Mismatch({operation, "whole"}, absl::StrCat(rank, " sizes"),
                  absl::StrCat(whole.size()));
}

}  // namespace bk
