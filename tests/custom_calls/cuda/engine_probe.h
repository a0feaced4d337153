// One chunk of a product on the engine alone, and what the bounds count for it.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_ENGINE_PROBE_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_ENGINE_PROBE_H_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"

namespace bk::cuda {

// out = left right^T, for left and right [64, ChunkDepth<T>()].
template <class T>
cudaError_t ChunkProduct(const T* left, const T* right, float* out,
                         cudaStream_t stream);

// engine.cuh: terms of a chunk, the roundings that bounds count for them, the
// products of a machine instruction, and the instructions of a warp.
struct ChunkCounts {
  int64_t depth, roundings, terms, instructions;
};
template <class T>
ChunkCounts CountsOfChunk();

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_ENGINE_PROBE_H_
