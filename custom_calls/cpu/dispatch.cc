#include "custom_calls/cpu/dispatch.h"

#include <cstdlib>
#include <string>
#include <vector>

namespace bk {
namespace {

std::vector<const CpuKernels*> FindSupported() {
  std::vector<const CpuKernels*> supported = {&kBaselineKernels};
#if defined(__x86_64__)
  // The builtins also ask whether the operating system saves the registers.
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) supported.push_back(&kAvx2Kernels);
  if (avx512) supported.push_back(&kAvx512Kernels);
#endif
  return supported;
}

std::string Names(const std::vector<const CpuKernels*>& tables) {
  std::string names;
  for (const CpuKernels* table : tables) {
    if (!names.empty()) names += ", ";
    names += table->name;
  }
  return names;
}

}  // namespace

const std::vector<const CpuKernels*>& SupportedKernels() {
  static const auto* supported =
      new std::vector<const CpuKernels*>(FindSupported());
  return *supported;
}

KernelChoice ChooseKernels(const char* request,
                           const std::vector<const CpuKernels*>& supported) {
  const CpuKernels* best = supported.back();
  const std::string name = request == nullptr ? "" : request;
  if (name.empty()) return {best, ""};
  for (const CpuKernels* table : supported) {
    if (name == table->name) return {table, ""};
  }
  return {best, "BK_JAX_ISA=" + name + " is not available here (" +
                    Names(supported) + "): using " + best->name};
}

const KernelChoice& ActiveKernels() {
  static const auto* choice = new KernelChoice(
      ChooseKernels(std::getenv("BK_JAX_ISA"), SupportedKernels()));
  return *choice;
}

}  // namespace bk
