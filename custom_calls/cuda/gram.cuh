// Tiles of Gram matrices on the main loop, and the sum <X X^T, Y Y^T> over a
// tile, whose second matrix is never held: each chunk of its features makes a
// Gram matrix of its own, and the inner products with these add up.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_GRAM_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_GRAM_CUH_

#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/main_loop.cuh"
#include "custom_calls/cuda/tile_loader.cuh"

namespace bk::cuda {

// kSide rows of a matrix [rows, width], a part of `array`, from `first` on.
template <class T>
struct RowTile {
  const T* x;
  int64_t first, rows, width;
  Extent<T> array;
};
template <class T>
__device__ bool AreSame(const RowTile<T>& x, const RowTile<T>& y) {
  return x.x == y.x && x.first == y.first && x.rows == y.rows;
}

// A tile of X Y^T: its chunks. On the diagonal of X X^T both operands are the
// same rows, which are copied once.
template <class T, class Tiles, class Loader>
class GramChunks {
 public:
  __device__ GramChunks(const RowTile<T>& x, const RowTile<T>& y)
      : left_(x.x, x.first, x.rows, x.width, x.array),
        right_(y.x, y.first, y.rows, y.width, y.array),
        right_offset_(AreSame(x, y) ? 0 : Tiles::kPieceBytes),
        columns_(static_cast<int>(x.width)) {}

  template <int kAhead>
  __device__ void Start(SharedAddress stage) {
    const int columns = columns_ - kAhead * kChunkTerms<T>;
    if (columns <= 0) return;
    left_.Copy(stage, columns);
    if (right_offset_ != 0) right_.Copy(stage + Tiles::kPieceBytes, columns);
  }
  __device__ void Next() { columns_ -= kChunkTerms<T>; }
  // From the next chunk on.
  __device__ int Columns() const { return columns_; }
  __device__ uint32_t RightOffset() const { return right_offset_; }

 private:
  Loader left_, right_;
  uint32_t right_offset_;
  int columns_;
};

// Calls fold(sums) with the Gram matrix of every chunk of the features.
template <class T, class Tiles, class Loader, class Fold>
__device__ void ForEachGram(StagesShared<Tiles>& shared,
                            GramChunks<T, Tiles, Loader> chunks, Fold& fold) {
  MainLoop<T, Layout::kRows, Tiles> loop(shared, chunks);
  for (; chunks.Columns() >= kChunkTerms<T>; chunks.Next()) {
    WarpSums sums = {};
    loop.Multiply(chunks, chunks.RightOffset(), sums);
    fold(sums);
  }
  if (chunks.Columns() > 0) {
    WarpSums sums = {};
    loop.MultiplyShort(chunks, chunks.RightOffset(), chunks.Columns(), sums);
    fold(sums);
  }
  loop.End();
}

// Adds them up.
struct HeldGram {
  WarpSums held = {};
  __device__ void operator()(const WarpSums& sums) {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) held.at[i][j][e] += sums.at[i][j][e];
      }
    }
  }
};

// The entries of a thread on the diagonal of a tile with i = j: one in each of
// four fragments, for some threads of some warps.
template <class Tiles>
struct Diagonal {
  int down;   // fragment rows above: 0 or 2
  int entry;  // 0 or 1, else there are none

  __device__ Diagonal() {
    const int below = Tiles::WarpColumn() - Tiles::WarpRow();
    down = below == 0 ? 0 : 2;
    entry = Tiles::Lane() / 4 - Tiles::Lane() % 4 * 2;
    if (below != 0 && below != kWarpColumns) entry = -1;
  }
  __device__ bool Exists() const { return entry == 0 || entry == 1; }
  // In column fragment j.
  __device__ float Of(const WarpSums& sums, int j) const {
    const int e = j % 2 * 2;
    const float first =
        entry == 0 ? sums.at[j / 2][j][e] : sums.at[j / 2][j][e + 1];
    const float second =
        entry == 0 ? sums.at[2 + j / 2][j][e] : sums.at[2 + j / 2][j][e + 1];
    return down == 0 ? first : second;
  }
  // The row of that entry in the tile.
  __device__ int Row(int j) const {
    return Entries<Tiles>::Row(down + j / 2, j % 2 * 2);
  }
};

// Sums in float of as many products of entries; what follows is double.
inline constexpr int kInnerChain = kAcross * 4;

// Adds <weights, Gram matrix> up, and the diagonal of the latter.
template <class Tiles>
struct WeighedGram {
  const WarpSums& weights;
  bool on_diagonal;
  double inner = 0;
  float diagonal[kAcross] = {};

  __device__ void operator()(const WarpSums& sums) {
    float part[kDown] = {};
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int k = 0; k < kInnerChain; ++k) {
        part[i] =
            Fma(weights.at[i][k / 4][k % 4], sums.at[i][k / 4][k % 4], part[i]);
      }
    }
    inner += static_cast<double>((part[0] + part[1]) + (part[2] + part[3]));
    if (on_diagonal) AddDiagonal(sums);
  }

  __device__ void AddDiagonal(const WarpSums& sums) {
    const Diagonal<Tiles> own;
#pragma unroll
    for (int j = 0; j < kAcross; ++j) diagonal[j] += own.Of(sums, j);
  }
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_GRAM_CUH_
