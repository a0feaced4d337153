// A 64 x 64 tile of sums of products, one multiply-add after the other: for
// operands that are gathered or converted while they go to shared memory.
//
// The summed dimension comes in slabs of kSlab. Sums over at most kChain terms
// are in the accumulator type, what follows is double: kChain bounds the error
// that certified norms count with.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_FMA_TILE_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_FMA_TILE_CUH_

#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {

inline constexpr int kFmaTile = 64;
inline constexpr int kFmaThreads = 256;
inline constexpr int kSlab = 16;
inline constexpr int kChain = 64;
// Rows and columns of a thread: its own, and every kFmaStep-th after it.
inline constexpr int kFmaStep = 16;
inline constexpr int kFmaOwn = kFmaTile / kFmaStep;

// One slab of both operands; a column of padding spreads rows over banks.
template <class Acc>
struct Slab {
  Acc left[kSlab][kFmaTile + 1];
  Acc right[kSlab][kFmaTile + 1];
};

__device__ inline int OwnRow(int i) {
  return static_cast<int>(threadIdx.x) / kFmaStep + i * kFmaStep;
}
__device__ inline int OwnColumn(int j) {
  return static_cast<int>(threadIdx.x) % kFmaStep + j * kFmaStep;
}

// The sums of one thread.
template <class Acc>
struct TileSums {
  Acc chain[kFmaOwn][kFmaOwn];
  double total[kFmaOwn][kFmaOwn];

  __device__ void Clear() {
#pragma unroll
    for (int e = 0; e < kFmaOwn * kFmaOwn; ++e) {
      chain[e / kFmaOwn][e % kFmaOwn] = 0;
      total[e / kFmaOwn][e % kFmaOwn] = 0;
    }
  }

  __device__ void Add(const Slab<Acc>& slab) {
#pragma unroll
    for (int k = 0; k < kSlab; ++k) {
      Acc right[kFmaOwn];
#pragma unroll
      for (int j = 0; j < kFmaOwn; ++j) right[j] = slab.right[k][OwnColumn(j)];
#pragma unroll
      for (int i = 0; i < kFmaOwn; ++i) {
        const Acc left = slab.left[k][OwnRow(i)];
#pragma unroll
        for (int j = 0; j < kFmaOwn; ++j) {
          chain[i][j] = Fma(left, right[j], chain[i][j]);
        }
      }
    }
  }

  // After at most kChain terms.
  __device__ void EndChain() {
#pragma unroll
    for (int i = 0; i < kFmaOwn; ++i) {
#pragma unroll
      for (int j = 0; j < kFmaOwn; ++j) {
        total[i][j] += static_cast<double>(chain[i][j]);
        chain[i][j] = 0;
      }
    }
  }
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_FMA_TILE_CUH_
