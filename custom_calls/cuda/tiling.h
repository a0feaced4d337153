// Which tiles a dense kernel on tensor cores has: a function of the shape
// alone, so that bits do not depend on the GPU.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TILING_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_TILING_H_

#include <cstdint>

namespace bk::cuda {

inline constexpr int64_t kLargeSide = 128;
inline constexpr int64_t kSmallSide = 64;

// Two blocks for each multiprocessor of an A100: fewer large tiles would leave
// much of a GPU idle. Not a constant for tests, which are small.
inline int64_t enough_large_tiles = 216;

// The side of tiles of a launch over `copies` matrices [rows, columns].
inline int64_t TileSide(int64_t copies, int64_t rows, int64_t columns) {
  if (rows <= kSmallSide || columns <= kSmallSide) return kSmallSide;
  const int64_t down = (rows + kLargeSide - 1) / kLargeSide;
  const int64_t across = (columns + kLargeSide - 1) / kLargeSide;
  return copies * down * across >= enough_large_tiles ? kLargeSide : kSmallSide;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TILING_H_
