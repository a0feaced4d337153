// What handlers on a GPU need beside ffi_helpers.h: errors of CUDA as statuses,
// and the workspace.
//
// A handler enqueues kernels on XLA's stream and returns: it allocates nothing,
// waits for nothing and reads no device memory, so XLA may record it into a
// command buffer (kCmdBufferCompatible). Kernels keep partial sums in a
// workspace that is the last result of the call, u8[n]; cuda_workspace.h says
// how large it has to be.
#ifndef BK_JAX_XLA_PLUGIN_CUDA_HELPERS_H_
#define BK_JAX_XLA_PLUGIN_CUDA_HELPERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "custom_calls/cuda/runtime.h"
#include "xla_plugin/ffi_helpers.h"

// The status of a launcher, with operation, file and line.
#define BK_CUDA_STATUS(operation, call) \
  ::bk::CudaStatus(operation, call, __FILE__, __LINE__)

namespace bk {

inline absl::Status CudaStatus(const char* operation, cudaError_t error,
                               const char* file, int line) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(operation, ": CUDA error ", static_cast<int>(error), " (",
                   cudaGetErrorString(error), ") at ", file, ":", line));
}

// u8[n] with n >= bytes.
inline absl::Status CheckWorkspace(const char* operation,
                                   const ffi::AnyBuffer& workspace,
                                   int64_t bytes) {
  const auto dims = workspace.dimensions();
  if (workspace.element_type() == ffi::U8 && dims.size() == 1 &&
      dims[0] >= bytes) {
    return absl::OkStatus();
  }
  return Mismatch({operation, "workspace"},
                  absl::StrCat("u8[n] with n >= ", bytes),
                  ShapeString(workspace));
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CUDA_HELPERS_H_
