// Python module bk_jax._cpu: hands the CPU handlers to jax.ffi and says which
// instruction set is in use.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/handlers.h"

namespace nb = nanobind;

namespace {

nb::capsule Capsule(XLA_FFI_Handler* handler) {
  return nb::capsule(reinterpret_cast<void*>(handler));
}

nb::dict Registrations() {
  nb::dict targets;
  targets["bk_ghost_norm"] = Capsule(BkGhostNorm);
  targets["bk_clip_factor"] = Capsule(BkClipFactor);
  targets["bk_clipped_gemm"] = Capsule(BkClippedGemm);
  targets["bk_clipped_gemm_add"] = Capsule(BkClippedGemmAdd);
  targets["bk_direct_norm"] = Capsule(BkDirectNorm);
  targets["bk_per_sample_grad"] = Capsule(BkPerSampleGrad);
  targets["bk_weighted_sum"] = Capsule(BkWeightedSum);
  targets["bk_gaussian"] = Capsule(BkGaussian);
  targets["bk_chacha_bits"] = Capsule(BkChachaBits);
  targets["bk_embedding_norm"] = Capsule(BkEmbeddingNorm);
  targets["bk_clipped_scatter"] = Capsule(BkClippedScatter);
  targets["bk_tied_cross"] = Capsule(BkTiedCross);
  targets["bk_conv_norm"] = Capsule(BkConvNorm);
  targets["bk_conv_grad"] = Capsule(BkConvGrad);
  targets["bk_conv_sum"] = Capsule(BkConvSum);
  return targets;
}

std::vector<std::string> SupportedIsas() {
  std::vector<std::string> names;
  for (const bk::CpuKernels* kernels : bk::SupportedKernels()) {
    names.emplace_back(kernels->name);
  }
  return names;
}

}  // namespace

NB_MODULE(_cpu, module) {
  module.doc() = "CPU kernels of bk_jax as XLA FFI targets.";
  module.def("registrations", &Registrations,
             "Target names and the capsules that jax.ffi registers.");
  module.def(
      "ffi_api_version",
      [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "(major, minor) of the XLA FFI headers this module was built with.");
  module.def("supported_isas", &SupportedIsas,
             "Instruction sets that this CPU can run, the best one last.");
  module.def(
      "active_isa",
      [] { return std::string(bk::ActiveKernels().kernels->name); },
      "The instruction set in use; BK_JAX_ISA, read once, chooses another.");
  module.def(
      "isa_note", [] { return bk::ActiveKernels().note; },
      "Empty, or why BK_JAX_ISA was not followed.");
}
