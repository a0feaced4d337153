// The border to XLA: calls, attributes, errors and threads of the FFI as those
// of call.h.
#ifndef BK_JAX_XLA_PLUGIN_FFI_FRAME_H_
#define BK_JAX_XLA_PLUGIN_FFI_FRAME_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "xla/ffi/api/ffi.h"
#include "xla_plugin/call.h"
#include "xla_plugin/parallel_for.h"
#include "xla_plugin/status.h"
#include "xla_plugin/text.h"

namespace bk {

class FfiAttributes final : public Attributes {
 public:
  explicit FfiAttributes(const ffi::Dictionary& from) : from_(from) {}
  std::optional<int64_t> Integer(const char* name) const override {
    return Get<int64_t>(name);
  }
  std::optional<Integers> IntegerList(const char* name) const override {
    return Get<Integers>(name);
  }
  std::optional<std::string_view> String(const char* name) const override {
    return Get<std::string_view>(name);
  }

 private:
  template <class T>
  std::optional<T> Get(const char* name) const {
    const ffi::ErrorOr<T> value = from_.get<T>(name);
    return value.has_value() ? std::optional<T>(*value) : std::nullopt;
  }
  const ffi::Dictionary& from_;
};

// `attributes` outlives the frame.
CallFrame FfiFrame(const ffi::RemainingArgs& operands,
                   const ffi::RemainingRets& results,
                   const Attributes& attributes);

// Runs the status-returning body of a handler; nothing it throws gets out.
template <class Body>
ffi::Error Guarded(const char* operation, Body&& body) {
  try {
    return Status(std::forward<Body>(body)()).ffi_error();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(StrCat(operation, ": ", error.what()));
  } catch (...) {
    return ffi::Error::Internal(StrCat(operation, ": unknown exception"));
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

#endif  // BK_JAX_XLA_PLUGIN_FFI_FRAME_H_
