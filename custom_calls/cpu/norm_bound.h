// Constants of the certified norms on the CPU.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NORM_BOUND_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NORM_BOUND_H_

#include <algorithm>
#include <cstdint>

#include "custom_calls/certified.h"
#include "custom_calls/cpu/amx/tile_kernels.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {

template <class Acc>
int64_t LanesOf(const CpuKernels& kernels) {
  return kernels.vector_bytes / static_cast<int64_t>(sizeof(Acc));
}

// Features that a Gram matrix adds up before its sums leave their registers.
inline int64_t GramDepth(const CpuKernels& kernels) {
  return kernels.vector_bytes == 64 ? Registers<64>::kGramDepth
                                    : Registers<32>::kGramDepth;
}

// Levels of the tree that adds up `lanes` numbers.
inline int64_t TreeDepth(int64_t lanes) {
  int64_t depth = 0;
  while ((int64_t{1} << depth) < lanes) ++depth;
  return depth;
}

// The largest number of roundings in accumulator type between a product of two
// elements and a sum of `width` products by lanes: one for the product (there
// is no FMA in the baseline), one per vector of a lane's chain, one per level
// of the tree over lanes. Chains end after `depth` products.
inline int64_t GramRoundings(int64_t width, int64_t depth, int64_t lanes) {
  return 1 + CeilDiv(std::min(width, depth), lanes) + TreeDepth(lanes);
}

// The same for sums in tile registers, in any order. Products of two bfloat16
// are exact.
inline int64_t TileRoundings(int64_t width) {
  return std::min(width, kTileDepth);
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NORM_BOUND_H_
