// Runs operations by name on the CPU, in one thread.
#ifndef BK_JAX_TESTS_XLA_PLUGIN_RUN_CPU_H_
#define BK_JAX_TESTS_XLA_PLUGIN_RUN_CPU_H_

#include <vector>

#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/parallel.h"
#include "xla_plugin/cpu_target.h"
#include "xla_plugin/status.h"

namespace bk {

inline Status RunCpu(const char* target, const std::vector<Buffer>& operands,
                     const std::vector<Buffer>& results,
                     const MapAttributes::Map& map = {}) {
  const MapAttributes attributes(map);
  SerialParallel serial;
  return CpuTargets().at(target).run({operands, results, attributes},
                                     {*ActiveKernels().kernels, serial});
}

}  // namespace bk

#endif  // BK_JAX_TESTS_XLA_PLUGIN_RUN_CPU_H_
