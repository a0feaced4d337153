// From pieces in shared memory to fragments and sums in registers.
//
// A piece has rows of 16-byte units. Unit u of row r lies at place u ^ (r % 8)
// (kTurns): the 8 rows of a matrix that ldmatrix reads at once are then in 8
// different places of 16 bytes, and so are the units that a warp copies.
//
//   Layout::kRows     kSide rows of 128 bytes, a chunk of their columns: X Y^T
//   Layout::kColumns  the rows of a chunk, kSide columns: X^T Y
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_FRAGMENTS_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_FRAGMENTS_CUH_

#include "custom_calls/cuda/instructions.cuh"
#include "custom_calls/cuda/layout.cuh"
#include "custom_calls/cuda/tiling.cuh"

namespace bk::cuda {

inline constexpr int kDown = kWarpRows / 16;  // fragments of a warp
inline constexpr int kAcross = kWarpColumns / 8;

// Entries of one thread. Two tiles of one tiling have the same ones in the same
// places.
struct WarpSums {
  float at[kDown][kAcross][4];

  __device__ void Clear() {
#pragma unroll
    for (int e = 0; e < kDown * kAcross * 4; ++e) {
      at[e / 4 / kAcross][e / 4 % kAcross][e % 4] = 0;
    }
  }
};

// Where entry (i, j, e) of a thread is in the tile.
template <class Tiles>
struct Entries {
  __device__ static int Row(int i, int e) {
    return Tiles::WarpRow() + 16 * i + Tiles::Lane() / 4 + e / 2 * 8;
  }
  __device__ static int Column(int /*i*/, int j, int e) {
    return Tiles::WarpColumn() + 8 * j + Tiles::Lane() % 4 * 2 + e % 2;
  }
};

// What one step along the sum (16 terms of 2 bytes, 8 of 4) needs of a thread.
struct Fragments {
  uint32_t left[kDown][4];
  uint32_t right[kAcross][2];
};

// Reads fragments: addresses within a piece, of this thread's lane and warp.
template <Layout kLayout, class Tiles>
struct FragmentReader {
  static constexpr bool kRows = kLayout == Layout::kRows;
  // Bytes from one row of a piece to the next; of 16-bit elements in columns.
  static constexpr int kStride = kRows ? kChunkBytes : Tiles::kSide * 2;
  uint32_t left, right;

  __device__ FragmentReader() {
    const int lane = Tiles::Lane();
    const int low = lane % 8, middle = lane / 8 % 2, high = lane / 16;
    const int row = Tiles::WarpRow(), column = Tiles::WarpColumn();
    left = kRows ? Place(row + middle * 8 + low, high, low)
                 : Place(high * 8 + low, row / 8 + middle, low);
    right = kRows ? Place(column + high * 8 + low, middle, low)
                  : Place(middle * 8 + low, column / 8 + high, low);
  }

  __device__ static uint32_t Place(int row, int unit, int turn) {
    return static_cast<uint32_t>(row * kStride +
                                 (unit ^ turn % kTurns) * kUnit);
  }

  // Two units on along a row is an exclusive or with 32: no carry reaches the
  // bits of the row.
  __device__ static SharedAddress At(SharedAddress place, int line, int step) {
    const int turn = kRows ? step : line;
    const int lines = kRows ? line : step;
    return (place ^ static_cast<uint32_t>(turn * 2 * kUnit)) +
           static_cast<uint32_t>(lines * 16 * kStride);
  }

  __device__ void Load(SharedAddress left_piece, SharedAddress right_piece,
                       int step, Fragments& to) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      LoadMatrices<!kRows>(At(left_piece + left, i, step), to.left[i]);
    }
#pragma unroll
    for (int j = 0; j < kAcross; j += 2) {
      uint32_t both[4];
      LoadMatrices<!kRows>(At(right_piece + right, j / 2, step), both);
      to.right[j][0] = both[0];
      to.right[j][1] = both[1];
      to.right[j + 1][0] = both[2];
      to.right[j + 1][1] = both[3];
    }
  }
};

// sums += left right.
template <class T>
__device__ void MultiplyFragments(const Fragments& x, WarpSums& sums) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      Multiply(T{}, x.left[i], x.right[j], sums.at[i][j]);
    }
  }
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_FRAGMENTS_CUH_
