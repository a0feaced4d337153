// Python module bk_jax._cpu: hands the CPU handlers to jax.ffi and says which
// instruction set is in use.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "custom_calls/cpu/isa/dispatch.h"
#include "xla_plugin/cpu_target.h"
#include "xla_plugin/module.h"

namespace {

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
  bk::DefineTargets(module, bk::CpuTargets(), [](const auto& target) {
    return bk::Stages{{"execute", target.handler}};
  });
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
