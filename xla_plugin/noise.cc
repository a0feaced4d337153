#include "xla_plugin/noise.h"

#include <algorithm>
#include <limits>
#include <string>

#include "xla_plugin/text.h"

namespace bk {
namespace {

std::string Listed(ffi::Span<const int64_t> sizes) {
  return StrCat("(", StrJoin(sizes, ","), ")");
}

}  // namespace

Status NoiseCall::ReadWord(const char* name, uint32_t* word) const {
  const auto value = attributes_.Integer(name);
  if (!value.has_value()) {
    return Mismatch(Attribute(name), "an integer attribute", "none");
  }
  return CheckWord(name, *value, word);
}

Status NoiseCall::ReadWords(const char* name,
                            std::vector<uint32_t>* words) const {
  const auto values = attributes_.IntegerList(name);
  if (!values.has_value()) {
    return Mismatch(Attribute(name), "an attribute of int64 numbers", "none");
  }
  words->resize(values->size());
  for (size_t k = 0; k < values->size(); ++k) {
    BK_RETURN_IF_ERROR(CheckWord(name, (*values)[k], &(*words)[k]));
  }
  return OkStatus();
}

Status NoiseCall::CheckWord(const char* name, int64_t value,
                            uint32_t* word) const {
  if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
    return Mismatch(Attribute(name), "0 <= value < 2^32", StrCat(value));
  }
  *word = static_cast<uint32_t>(value);
  return OkStatus();
}

Status BlockNoiseCall::CheckArrays(const std::vector<int64_t>& terms) {
  std::vector<int64_t> keys = terms;
  keys.push_back(kKeyWords);
  BK_RETURN_IF_ERROR(ReadWord("stream", &stream));
  BK_RETURN_IF_ERROR(CheckShape(key, ffi::U32, keys));
  BK_RETURN_IF_ERROR(CheckShape(stddev, AccumulatorType(x), terms));
  const auto rank = static_cast<int64_t>(x.dims.size());
  BK_RETURN_IF_ERROR(CheckShape(start, ffi::S32, {rank}));
  BK_RETURN_IF_ERROR(CheckShape(out, x.type, {x.dims.begin(), x.dims.end()}));
  return ReadWhole();
}

Status BlockNoiseCall::ReadWhole() {
  const auto sizes = attributes_.IntegerList("whole");
  if (!sizes.has_value()) {
    return Mismatch(Attribute("whole"), "an attribute of int64 sizes", "none");
  }
  whole = *sizes;
  if (whole.size() == x.dims.size()) return OkStatus();
  return Mismatch(Attribute("whole"), StrCat(x.dims.size(), " sizes"),
                  StrCat(whole.size()));
}

Status BlockNoiseCall::CheckBlock(const std::vector<int64_t>& offset) const {
  int64_t elements = 1;
  for (size_t k = 0; k < offset.size(); ++k) {
    if (offset[k] < 0 || offset[k] > whole[k] - x.dims[k]) {
      return Mismatch(start,
                      StrCat("a block of size ", Listed(x.dims),
                             " within whole=", Listed(whole)),
                      Listed(offset));
    }
    if (__builtin_mul_overflow(elements, std::max<int64_t>(whole[k], 1),
                               &elements)) {
      return Mismatch(Attribute("whole"), "less than 2^63 elements",
                      Listed(whole));
    }
  }
  return OkStatus();
}

NoiseStream NoiseCall::StreamOf(const uint32_t* key, uint32_t stream,
                                uint32_t domain) {
  NoiseStream made = {{}, stream, domain};
  std::copy_n(key, kKeyWords, made.key);
  return made;
}

}  // namespace bk
