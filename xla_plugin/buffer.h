// The arrays of a custom call, and checks of them with messages that name
// operation, operand, what was expected and what came.
#ifndef BK_JAX_XLA_PLUGIN_BUFFER_H_
#define BK_JAX_XLA_PLUGIN_BUFFER_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "custom_calls/element.h"
#include "xla/ffi/api/ffi.h"
#include "xla_plugin/status.h"

namespace bk {

namespace ffi = ::xla::ffi;

// XLA's name of a type of C++.
template <class T>
inline constexpr ffi::DataType kDataType = ffi::DataType::INVALID;
template <>
inline constexpr ffi::DataType kDataType<float> = ffi::F32;
template <>
inline constexpr ffi::DataType kDataType<BFloat16> = ffi::BF16;
template <>
inline constexpr ffi::DataType kDataType<Float16> = ffi::F16;
template <>
inline constexpr ffi::DataType kDataType<double> = ffi::F64;
template <>
inline constexpr ffi::DataType kDataType<int32_t> = ffi::S32;
template <>
inline constexpr ffi::DataType kDataType<uint32_t> = ffi::U32;
template <>
inline constexpr ffi::DataType kDataType<bool> = ffi::PRED;

// What a message is about: "bk_ghost_norm: a: ...".
struct Named {
  const char* operation = "";
  const char* name = "";
};

// A dense array; it converts to a pointer to its elements.
struct Buffer : Named {
  ffi::DataType type = ffi::DataType::INVALID;
  ffi::Span<const int64_t> dims;
  void* data = nullptr;

  int64_t Elements() const;
  int64_t Bytes() const;

  template <class T>
  operator T*() const {  // NOLINT: kernels are called with their buffers
    if (type != kDataType<std::remove_const_t<T>>) {
      throw std::logic_error(std::string(name) + " has elements of other type");
    }
    return static_cast<T*>(data);
  }
};

// "f32" and "f32[2,3]", as XLA prints them.
std::string TypeString(ffi::DataType type);
std::string ShapeString(ffi::DataType type, const std::vector<int64_t>& dims);
std::string ShapeString(const Buffer& buffer);

// InvalidArgument: "<operation>: <name>: expected <expected>, got <got>".
Status Mismatch(const Named& what, const std::string& expected,
                const std::string& got);

Status CheckRank(const Buffer& buffer, size_t rank);
Status CheckShape(const Buffer& buffer, ffi::DataType type,
                  const std::vector<int64_t>& dims);

// An array with an axis of examples, of the type of `first` and with as many
// examples, whatever follows.
Status CheckExamples(const Buffer& buffer, const Buffer& first);

// Length of a vector, 0 if it is none; whoever owns it checks its shape.
int64_t LengthOf(const Buffer& buffer);

// Type of accumulators and results for operands like this one.
ffi::DataType AccumulatorType(ffi::DataType type);
inline ffi::DataType AccumulatorType(const Buffer& buffer) {
  return AccumulatorType(buffer.type);
}

// Types of elements that an operation takes.
template <class... T>
struct Types {};
using Floats = Types<float, BFloat16, Float16, double>;

template <class T>
struct TypeTag {
  using Type = T;
};

// "f32, bf16 or f64"
std::string Alternatives(const std::vector<ffi::DataType>& types);

// Calls call(TypeTag<T>()) for the type of the buffer's elements.
template <class Call, class... T>
Status ForType(Types<T...> /*types*/, const Buffer& buffer, Call&& call) {
  Status status;
  const bool known =
      ((buffer.type == kDataType<T> && (status = call(TypeTag<T>()), true)) ||
       ...);
  if (known) return status;
  return Mismatch(buffer, Alternatives({kDataType<T>...}),
                  TypeString(buffer.type));
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_BUFFER_H_
