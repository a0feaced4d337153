// Whether something went well, and if not why: an error of the XLA FFI with the
// names that Abseil made usual. Abseil itself stays out: Debian's static
// libraries do not fit into a shared object, and its shared ones are on no
// other machine.
#ifndef BK_JAX_XLA_PLUGIN_STATUS_H_
#define BK_JAX_XLA_PLUGIN_STATUS_H_

#include <ostream>
#include <string>
#include <utility>

#include "xla/ffi/api/ffi.h"

#define BK_RETURN_IF_ERROR(expression)                    \
  if (::bk::Status status = (expression); !status.ok()) { \
    return status;                                        \
  }

namespace bk {

using StatusCode = ::xla::ffi::ErrorCode;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : error_(code, std::move(message)) {}

  bool ok() const { return error_.success(); }
  StatusCode code() const { return *error_.errc(); }
  const std::string& message() const { return error_.message(); }
  const ::xla::ffi::Error& ffi_error() const { return error_; }

  friend bool operator==(const Status& one, const Status& other) {
    return one.code() == other.code() && one.message() == other.message();
  }
  friend std::ostream& operator<<(std::ostream& out, const Status& status) {
    if (status.ok()) return out << "OK";
    return out << static_cast<int>(status.code()) << ": " << status.message();
  }

 private:
  ::xla::ffi::Error error_;
};

inline Status OkStatus() { return Status(); }

inline Status InvalidArgumentError(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

inline Status InternalError(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_STATUS_H_
