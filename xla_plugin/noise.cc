#include "xla_plugin/noise.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace bk {

absl::Status NoiseCall::ReadWord(const char* name, uint32_t* word) const {
  const auto value = attributes_.Integer(name);
  if (!value.has_value()) {
    return Mismatch(Attribute(name), "an integer attribute", "none");
  }
  return CheckWord(name, *value, word);
}

absl::Status NoiseCall::ReadWords(const char* name,
                                  std::vector<uint32_t>* words) const {
  const auto values = attributes_.IntegerList(name);
  if (!values.has_value()) {
    return Mismatch(Attribute(name), "an attribute of int64 numbers", "none");
  }
  words->resize(values->size());
  for (size_t k = 0; k < values->size(); ++k) {
    BK_RETURN_IF_ERROR(CheckWord(name, (*values)[k], &(*words)[k]));
  }
  return absl::OkStatus();
}

absl::Status NoiseCall::CheckWord(const char* name, int64_t value,
                                  uint32_t* word) const {
  if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
    return Mismatch(Attribute(name), "0 <= value < 2^32", absl::StrCat(value));
  }
  *word = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

NoiseStream NoiseCall::StreamOf(const uint32_t* key, uint32_t stream,
                                uint32_t domain) {
  NoiseStream made = {{}, stream, domain};
  std::copy_n(key, kKeyWords, made.key);
  return made;
}

}  // namespace bk
