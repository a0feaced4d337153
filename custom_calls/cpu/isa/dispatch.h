// Which instruction sets were compiled, which the CPU has, which one is used.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_DISPATCH_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_DISPATCH_H_

#include <string>
#include <vector>

#include "custom_calls/cpu/amx/tile_kernels.h"
#include "custom_calls/cpu/isa/kernels.h"

namespace bk {

// `base` with the kernels of tile registers for bfloat16.
CpuKernels WithTiles(const char* name, const CpuKernels& base,
                     const TileKernels& tiles);

// Tables that this CPU can run, the best one last. Never empty.
const std::vector<const CpuKernels*>& SupportedKernels();

struct KernelChoice {
  const CpuKernels* kernels;
  std::string note;  // empty, or why `request` was not followed
};

// The table called `request`, or the best one when the request is null, empty,
// unknown, or not among `supported`. `why_no_amx` explains a request for "amx".
KernelChoice ChooseKernels(const char* request,
                           const std::vector<const CpuKernels*>& supported,
                           const std::string& why_no_amx = "");

// The choice of this process, made once from the environment variable
// BK_JAX_ISA.
const KernelChoice& ActiveKernels();

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_DISPATCH_H_
