// Kernels of machine instructions (custom_calls/cuda/instructions.cuh): single
// ones, and a small product with everything that a large one has, with one
// mistake each. For the test that the emulator finds them.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_TILES_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_TILES_H_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"

namespace bk::broken {

enum class Format { kBFloat16, kFloat16, kTf32 };

// One instruction of one warp; lane l has left[4 l ..], right[2 l ..] and
// sums[4 l ..].
cudaError_t MultiplyOnce(Format format, const uint32_t* left,
                         const uint32_t* right, float* sums);

// One ldmatrix.x4 of 32 rows of 16 bytes; lane l stores out[4 l ..].
cudaError_t LoadOnce(bool transposed, const uint32_t* rows, uint32_t* out);

// Copies `bytes` of `size` from in to shared memory, and from there to out.
cudaError_t CopyOnce(int size, int bytes, const char* in, char* out);

enum class TileMistake {
  kNone,
  kNoWait,                // reads a chunk without waiting for its copies
  kWaitForFewer,          // waits, but leaves one group too many on its way
  kNoBarrierAfterWait,    // reads what other threads have copied
  kNoBarrierBeforeCopy,   // copies into a stage that others still read
  kNoCommit,              // copies that are in no group
  kCopiesLeft,            // a copy for which nobody waits
  kSourceWritten,         // writes to what a copy reads
  kStoreUnderCopy,        // stores where a copy will write
  kMisalignedSource,      // 2 bytes after a multiple of 16
  kMisalignedTarget,      // the same in shared memory
  kMisalignedRow,         // a row of ldmatrix, likewise
  kRowOutside,            // a row of ldmatrix past the end of shared memory
  kRowUnset,              // a row of ldmatrix that nobody wrote
  kLaneMissingAtLoad,     // 31 lanes at ldmatrix
  kLaneMissingAtProduct,  // 31 lanes at mma.sync
  kShuffleForBarrier,     // a shuffle where __syncwarp is needed
  kNoSwizzle,             // the rows of a matrix in one bank: 8-way conflicts
  kColumnStores,          // lanes store a column of shared memory: 32-way
  kAskedForTooLittle,     // less shared memory than the kernel has
};

// out [32, 16] = left [32, depth] right [16, depth]^T in bf16, depth a multiple
// of 64, by two warps, with copies of the next 64 columns on their way.
cudaError_t StreamedProduct(TileMistake mistake, int depth, uint16_t* left,
                            const uint16_t* right, float* out);

}  // namespace bk::broken

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_BROKEN_TILES_H_
