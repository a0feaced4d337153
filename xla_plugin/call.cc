#include "xla_plugin/call.h"

#include "xla_plugin/text.h"

namespace bk {
namespace {

// The value of that name and type, or null.
template <class T>
const T* Find(const MapAttributes::Map& map, const char* name) {
  const auto found = map.find(name);
  return found == map.end() ? nullptr : std::get_if<T>(&found->second);
}

Buffer Take(const std::vector<Buffer>& buffers, size_t index, Named named) {
  Buffer buffer = index < buffers.size() ? buffers[index] : Buffer();
  static_cast<Named&>(buffer) = named;
  return buffer;
}

std::vector<Buffer> TakeRest(const std::vector<Buffer>& buffers, size_t* index,
                             Named named) {
  std::vector<Buffer> rest;
  while (*index < buffers.size()) {
    rest.push_back(Take(buffers, (*index)++, named));
  }
  return rest;
}

Status CheckCount(Named what, size_t expected, size_t got) {
  if (expected == got) return OkStatus();
  return Mismatch(what, StrCat(expected), StrCat(got));
}

}  // namespace

std::optional<int64_t> MapAttributes::Integer(const char* name) const {
  const auto* value = Find<int64_t>(map_, name);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<Attributes::Integers> MapAttributes::IntegerList(
    const char* name) const {
  const auto* value = Find<std::vector<int64_t>>(map_, name);
  return value == nullptr ? std::nullopt : std::optional(Integers(*value));
}

std::optional<std::string_view> MapAttributes::String(const char* name) const {
  const auto* value = Find<std::string>(map_, name);
  return value == nullptr ? std::nullopt
                          : std::optional(std::string_view(*value));
}

Buffer Call::Operand(const char* name) {
  return Take(frame_.operands, operands_++, {operation_, name});
}

Buffer Call::Result(const char* name) {
  return Take(frame_.results, results_++, {operation_, name});
}

std::vector<Buffer> Call::Operands(const char* name) {
  return TakeRest(frame_.operands, &operands_, {operation_, name});
}

std::vector<Buffer> Call::Results(const char* name) {
  return TakeRest(frame_.results, &results_, {operation_, name});
}

std::vector<Buffer> Call::Results(const char* name, size_t count) {
  std::vector<Buffer> next;
  for (size_t k = 0; k < count; ++k) next.push_back(Result(name));
  return next;
}

Status Call::CheckCounts() const {
  BK_RETURN_IF_ERROR(CheckCount({operation_, "number of operands"}, operands_,
                                frame_.operands.size()));
  return CheckCount({operation_, "number of results"}, results_,
                    frame_.results.size());
}

}  // namespace bk
