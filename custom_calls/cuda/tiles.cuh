// Tiles of a matrix: their order, and what happens to one that is done.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TILES_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TILES_CUH_

#include "custom_calls/cuda/fragments.cuh"

namespace bk::cuda {

struct TilePlace {
  int64_t row, column;  // in tiles
};

// Tile number k of rows x columns tiles. Blocks that run at the same time have
// neighbouring numbers: bands of kBand rows are walked column by column, so
// these blocks share operands, which stay in L2.
__host__ __device__ inline TilePlace PlaceOf(int64_t k, int64_t rows,
                                             int64_t columns) {
  constexpr int64_t kBand = 8;
  const int64_t first = k / (kBand * columns) * kBand;
  const int64_t height = rows - first < kBand ? rows - first : kBand;
  const int64_t inside = k % (kBand * columns);
  return {first + inside % height, inside / height};
}

// The entries of a thread as one list.
inline constexpr int kOwnSums = kDown * kAcross * 4;
using OwnSums = float[kOwnSums];
__device__ inline const OwnSums& AsList(const WarpSums& sums) {
  return *reinterpret_cast<const OwnSums*>(&sums.at[0][0][0]);
}

// Writes the part of a tile that lies in out [rows, columns], or adds it.
template <class Tiles>
__device__ void StoreTile(const WarpSums& sums, int64_t row, int64_t rows,
                          int64_t column, int64_t columns, bool add,
                          float* out) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t r = row + EntryRow<Tiles>(i, e);
        const int64_t c = column + EntryColumn<Tiles>(j, e);
        if (r >= rows || c >= columns) continue;
        float& to = out[r * columns + c];
        to = add ? to + sums.at[i][j][e] : sums.at[i][j][e];
      }
    }
  }
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TILES_CUH_
