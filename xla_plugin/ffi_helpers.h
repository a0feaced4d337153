// What every handler needs: checks with good messages, the one switch over
// element types, and the border between absl::Status and ffi::Error.
#ifndef BK_JAX_XLA_PLUGIN_FFI_HELPERS_H_
#define BK_JAX_XLA_PLUGIN_FFI_HELPERS_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_calls/element.h"
#include "xla/ffi/api/ffi.h"
#include "xla_plugin/parallel_for.h"

#define BK_RETURN_IF_ERROR(expression)                    \
  if (absl::Status status = (expression); !status.ok()) { \
    return status;                                        \
  }

namespace bk {

namespace ffi = ::xla::ffi;

// Where a check stands in the program: "bk_ghost_norm: operand a: ...".
struct OperandName {
  const char* operation;
  const char* operand;
};

// "f32" and "f32[2,3]", as XLA prints them; for messages.
std::string TypeString(ffi::DataType type);
std::string ShapeString(ffi::DataType type, const std::vector<int64_t>& dims);
std::string ShapeString(const ffi::AnyBuffer& buffer);

// InvalidArgument: "<operation>: <operand>: expected <expected>, got <got>".
absl::Status Mismatch(const OperandName& name, const std::string& expected,
                      const std::string& got);

absl::Status CheckRank(const OperandName& name, const ffi::AnyBuffer& buffer,
                       size_t rank);
absl::Status CheckShape(const OperandName& name, const ffi::AnyBuffer& buffer,
                        ffi::DataType type, const std::vector<int64_t>& dims);

// Type of accumulators and results for operands of type `type`.
ffi::DataType AccumulatorType(ffi::DataType type);

template <class T>
struct TypeTag {
  using Type = T;
};

// Calls call(TypeTag<T>()) for the kernel type T of `type`.
template <class Call>
absl::Status DispatchFloat(const OperandName& name, ffi::DataType type,
                           Call&& call) {
  switch (type) {
    case ffi::F32:
      return call(TypeTag<float>());
    case ffi::BF16:
      return call(TypeTag<BFloat16>());
    case ffi::F16:
      return call(TypeTag<Float16>());
    case ffi::F64:
      return call(TypeTag<double>());
    default:
      return Mismatch(name, "f32, bf16, f16 or f64", TypeString(type));
  }
}

// The same for values that are accumulator results.
template <class Call>
absl::Status DispatchAccumulator(const OperandName& name, ffi::DataType type,
                                 Call&& call) {
  switch (type) {
    case ffi::F32:
      return call(TypeTag<float>());
    case ffi::F64:
      return call(TypeTag<double>());
    default:
      return Mismatch(name, "f32 or f64", TypeString(type));
  }
}

template <class T>
T* Data(const ffi::AnyBuffer& buffer) {
  return static_cast<T*>(buffer.untyped_data());
}

ffi::Error ToFfiError(const absl::Status& status);

// Runs the status-returning body of a handler; nothing it throws gets out.
template <class Body>
ffi::Error RunHandler(const char* operation, Body&& body) {
  try {
    return ToFfiError(std::forward<Body>(body)());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(absl::StrCat(operation, ": ", error.what()));
  } catch (...) {
    return ffi::Error::Internal(absl::StrCat(operation, ": unknown exception"));
  }
}

// XLA's thread pool. Valid only until the handler returns.
class FfiScheduler final : public Scheduler {
 public:
  explicit FfiScheduler(ffi::ThreadPool pool) : pool_(pool) {}
  int64_t num_threads() const override { return pool_.num_threads(); }
  void Schedule(std::function<void()> task) override {
    pool_.Schedule(std::move(task));
  }

 private:
  ffi::ThreadPool pool_;
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_FFI_HELPERS_H_
