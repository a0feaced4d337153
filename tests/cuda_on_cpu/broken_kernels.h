// Kernels with one mistake each, for the test that the emulator finds them.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_KERNELS_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_KERNELS_H_

#include <cstdint>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"

namespace bk::broken {

enum class Mistake {
  kNone,
  kNoBarrier,       // reads what its neighbour writes, without a barrier
  kReadPastEnd,     // one element after the input
  kWritePastEnd,    // one element after the output
  kSharedPastEnd,   // one element after the shared array
  kSharedUnset,     // an element of shared memory that nobody wrote
  kSomeReturn,      // half of the threads return before a barrier
  kTwoBarriers,     // threads wait at two different barriers
  kSameOutput,      // two blocks write one element
  kLanesMissing,    // a shuffle that half of the warp does not reach
  kMisaligned,      // a vector of 16 bytes at a multiple of 4
  kTileMisaligned,  // a wmma tile at a multiple of 16 bytes
  kRowsMisaligned,  // rows of a wmma tile that are 68 bytes apart
};

// out[i] = in[i] + in[the next one of the block, cyclically], `count` a
// multiple of 64, with the mistake.
cudaError_t NeighbourSums(Mistake mistake, int64_t count, const float* in,
                          float* out);

// out[j] = the sum of in[.., j] for 16 x 16 elements, by a product with ones.
cudaError_t ColumnSums(Mistake mistake, const float* in, float* out);

// sum + 8 products on the emulated tensor core.
float TensorSum(float sum, const float* left, const float* right);

}  // namespace bk::broken

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_KERNELS_H_
