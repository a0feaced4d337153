// Pairs I <= J of tiles of positions: the tiles of a symmetric matrix that are
// computed.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TILE_PAIRS_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TILE_PAIRS_CUH_

#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {

__host__ __device__ inline int64_t TilePairs(int64_t positions, int64_t side) {
  const int64_t tiles = CeilDiv(positions, side);
  return tiles * (tiles + 1) / 2;
}

struct TilePair {
  int64_t i, j;
};

// Pair number q of (0, 0), (0, 1), (1, 1), (0, 2), ...
__device__ inline TilePair PairOf(int64_t q) {
  auto j =
      static_cast<int64_t>((sqrt(8.0 * static_cast<double>(q) + 1) - 1) / 2);
  while (j * (j + 1) / 2 > q) --j;
  while ((j + 1) * (j + 2) / 2 <= q) ++j;
  return {q - j * (j + 1) / 2, j};
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TILE_PAIRS_CUH_
