// Python module bk_jax._cuda: hands the CUDA handlers to jax.ffi. It loads on
// machines without a driver; device_problem() says so then.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "custom_calls/cuda/runtime.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_workspace.h"

namespace nb = nanobind;

namespace {

nb::capsule Capsule(XLA_FFI_Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler));
}

nb::dict Registrations() {
  nb::dict targets;
  targets["bk_ghost_norm"] = Capsule(BkGhostNormCuda);
  targets["bk_clip_factor"] = Capsule(BkClipFactorCuda);
  targets["bk_clipped_gemm"] = Capsule(BkClippedGemmCuda);
  targets["bk_clipped_gemm_add"] = Capsule(BkClippedGemmAddCuda);
  targets["bk_direct_norm"] = Capsule(BkDirectNormCuda);
  targets["bk_per_sample_grad"] = Capsule(BkPerSampleGradCuda);
  targets["bk_weighted_sum"] = Capsule(BkWeightedSumCuda);
  targets["bk_gaussian"] = Capsule(BkGaussianCuda);
  targets["bk_chacha_bits"] = Capsule(BkChachaBitsCuda);
  targets["bk_embedding_norm"] = Capsule(BkEmbeddingNormCuda);
  targets["bk_clipped_scatter"] = Capsule(BkClippedScatterCuda);
  targets["bk_tied_cross"] = Capsule(BkTiedCrossCuda);
  targets["bk_conv_norm"] = Capsule(BkConvNormCuda);
  targets["bk_conv_grad"] = Capsule(BkConvGradCuda);
  targets["bk_conv_sum"] = Capsule(BkConvSumCuda);
  return targets;
}

std::string DeviceProblem() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaErrorInsufficientDriver) {
    return "no CUDA driver, or one older than the CUDA runtime";
  }
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices > 0 ? "" : "no CUDA device";
}

}  // namespace

NB_MODULE(_cuda, module) {
  module.doc() = "CUDA kernels of bk_jax as XLA FFI targets.";
  module.def("registrations", &Registrations,
             "Target names and the capsules that jax.ffi registers.");
  module.def(
      "ffi_api_version",
      [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "(major, minor) of the XLA FFI headers this module was built with.");
  module.def("device_problem", &DeviceProblem,
             "Empty, or why no CUDA device can be used.");
  module.def(
      "workspace_bytes",
      [](const std::string& target,
         const std::vector<std::vector<int64_t>>& operands,
         int64_t result_bytes,
         const std::map<std::string, std::vector<int64_t>>& attributes) {
        return bk::WorkspaceBytes(target, {operands, result_bytes, attributes});
      },
      "Bytes of the workspace that a call has as its last result; 0: none.");
}
