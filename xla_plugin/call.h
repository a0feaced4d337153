// One custom call, whoever makes it: XLA, a test, or Python that asks how large
// a workspace has to be.
#ifndef BK_JAX_XLA_PLUGIN_CALL_H_
#define BK_JAX_XLA_PLUGIN_CALL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "xla/ffi/api/ffi.h"
#include "xla_plugin/buffer.h"
#include "xla_plugin/status.h"

namespace bk {

// What is known of a call when a program is traced, by name. Nothing comes back
// for an attribute that is missing or of another type.
class Attributes {
 public:
  using Integers = ffi::Span<const int64_t>;
  virtual ~Attributes() = default;
  virtual std::optional<int64_t> Integer(const char* name) const = 0;
  virtual std::optional<Integers> IntegerList(const char* name) const = 0;
  virtual std::optional<std::string_view> String(const char* name) const = 0;
};

// Attributes of callers without XLA.
class MapAttributes final : public Attributes {
 public:
  using Value = std::variant<int64_t, std::vector<int64_t>, std::string>;
  using Map = std::map<std::string, Value>;
  explicit MapAttributes(Map map) : map_(std::move(map)) {}
  std::optional<int64_t> Integer(const char* name) const override;
  std::optional<Integers> IntegerList(const char* name) const override;
  std::optional<std::string_view> String(const char* name) const override;

 private:
  const Map map_;
};

struct CallFrame {
  std::vector<Buffer> operands;
  std::vector<Buffer> results;
  const Attributes& attributes;
};

// What every operation derives from. Its buffers are members that take what
// comes next in the frame, so the order of declarations is the signature:
//
//   Buffer a = Operand("a");
//   Buffer sq_norm = Result("sq_norm");
class Call {
 public:
  using Types = Floats;

  Call(const char* operation, const CallFrame& frame)
      : attributes_(frame.attributes), operation_(operation), frame_(frame) {}

  // The next one, or an empty one when none is left.
  Buffer Operand(const char* name);
  Buffer Result(const char* name);

  // All that are left: an operation of many arrays ends with these.
  std::vector<Buffer> Operands(const char* name);
  std::vector<Buffer> Results(const char* name);
  // The next `count`, where a workspace follows.
  std::vector<Buffer> Results(const char* name, size_t count);

  // Whether the frame has what was taken from it, and nothing else.
  Status CheckCounts() const;

 protected:
  const Attributes& attributes_;
  // For messages.
  Named Attribute(const char* name) const { return {operation_, name}; }

 private:
  const char* operation_;
  const CallFrame& frame_;
  size_t operands_ = 0;
  size_t results_ = 0;
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CALL_H_
