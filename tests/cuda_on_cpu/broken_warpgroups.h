// A product of one warpgroup (custom_calls/cuda/warpgroup.cuh), with one
// mistake each. For the test that the emulator finds them.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_WARPGROUPS_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_WARPGROUPS_H_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"

namespace bk::broken {

enum class WarpgroupMistake {
  kNone,
  kNoProxyFence,    // operands are stored, and a barrier is all that follows
  kNoFence,         // no wgmma.fence before the first product
  kReadSumsEarly,   // sums leave before the wait
  kWriteSumsEarly,  // sums are set to 0 before the wait
  kStoreOperands,   // operands are overwritten before the wait
  kNoWait,          // nobody waits
  kWarpMissing,     // three warps of four
  kLaneMissing,     // 31 lanes of a warp
  kNoSwizzle,       // a descriptor of another layout
  kOutside,         // an operand past the end of shared memory
};

// out [64, 128] = left right over 64 terms: with `rows`, left [64, 64] and
// right [128, 64]; else left [64 terms, 64] and right [64 terms, 128].
cudaError_t WarpgroupProduct(WarpgroupMistake mistake, bool float16, bool rows,
                             const uint16_t* left, const uint16_t* right,
                             float* out);

}  // namespace bk::broken

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_WARPGROUPS_H_
