#include "xla_plugin/cuda_target.h"

#include "xla_plugin/text.h"

namespace bk {

cudaError_t Gpu::StartFrom(const Buffer& initial, const Buffer& sum) const {
  if (cuda::loading_only) return cudaSuccess;
  if (initial.data == sum.data || sum.Bytes() == 0) return cudaSuccess;
  return cudaMemcpyAsync(sum.data, initial.data, sum.Bytes(),
                         cudaMemcpyDeviceToDevice, stream);
}

std::map<std::string_view, CudaTarget>& CudaTargets() {
  static auto* const targets = new std::map<std::string_view, CudaTarget>();
  return *targets;
}

Status CudaStatus(const char* operation, cudaError_t error, const char* file,
                  int line) {
  if (error == cudaSuccess) return OkStatus();
  return InternalError(
      StrCat(operation, ": CUDA error ", static_cast<int>(error), " (",
             cudaGetErrorString(error), ") at ", file, ":", line));
}

Status CheckWorkspace(const Buffer& workspace, int64_t bytes) {
  const auto dims = workspace.dims;
  if (workspace.type == ffi::U8 && dims.size() == 1 && dims[0] >= bytes) {
    return OkStatus();
  }
  return Mismatch(workspace, StrCat("u8[n] with n >= ", bytes),
                  ShapeString(workspace));
}

}  // namespace bk
