#include "xla_plugin/cuda_device.h"

#include "custom_calls/cuda/runtime.h"
#include "xla_plugin/text.h"

namespace bk {
namespace {

// Machine code of 8.0 runs on 8.6 and 8.9, that of 9.0, 10.0 and 12.0 likewise;
// from 10.0 on a driver compiles PTX for the rest (custom_calls/cuda/nvcc.bzl).
// Tensor cores before 8.0 have no bfloat16 and no tf32.
constexpr int kOldestMajor = 8;

std::string VersionString(int version) {
  return StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string ProblemOf(const CudaVersions& versions,
                      const std::vector<CudaDevice>& devices) {
  if (versions.driver == 0) return "no CUDA driver";
  if (versions.driver / 1000 < versions.runtime / 1000) {
    return StrCat("the driver is for CUDA ", VersionString(versions.driver),
                  ", and this build needs one for CUDA ",
                  versions.runtime / 1000, ".0 or newer: update it");
  }
  if (devices.empty()) return "no CUDA device";
  for (size_t k = 0; k < devices.size(); ++k) {
    const CudaDevice& device = devices[k];
    if (device.major >= kOldestMajor) continue;
    return StrCat("device ", k, ", ", device.name, ", has compute capability ",
                  device.major, ".", device.minor, ", and the kernels need ",
                  kOldestMajor,
                  ".0 or newer: hide it with CUDA_VISIBLE_DEVICES");
  }
  return "";
}

std::string DeviceProblem() {
  CudaVersions versions = {};
  std::vector<CudaDevice> devices;
  int count = 0;
  cudaDriverGetVersion(&versions.driver);
  cudaRuntimeGetVersion(&versions.runtime);
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  for (int k = 0; k < count; ++k) {
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, k);
    if (error != cudaSuccess) return cudaGetErrorString(error);
    devices.push_back({properties.name, properties.major, properties.minor});
  }
  return ProblemOf(versions, devices);
}

}  // namespace bk
