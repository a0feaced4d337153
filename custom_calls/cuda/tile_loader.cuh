// Copies chunks of a matrix to pieces of shared memory, for rows that start at
// multiples of 16 bytes: asynchronously, 16 bytes at a time. A thread copies
// the same units of every chunk, so it moves its address on and computes no new
// one. Nothing outside of the matrix is read.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TILE_LOADER_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TILE_LOADER_CUH_

#include "custom_calls/cuda/instructions.cuh"
#include "custom_calls/cuda/tiling.cuh"

namespace bk::cuda {

// Rows this wide have offsets, in units, of 31 bits within a tile.
inline constexpr int64_t kMaxWidth = int64_t{1} << 26;

template <class T>
inline constexpr int kPerUnit = kUnit / static_cast<int>(sizeof(T));

// All elements of an operand: those who read more than their own stay within.
template <class T>
struct Extent {
  const T* begin;
  const T* end;
};

// Whether rows start at multiples of 16 bytes.
template <class T>
inline bool RowsAreAligned(const T* rows, int64_t width) {
  return reinterpret_cast<uintptr_t>(rows) % kUnit == 0 &&
         width % kPerUnit<T> == 0;
}

// kSide rows, a chunk of their columns. In place of rows past the end comes the
// last one: who reads the entries leaves these out.
template <class T, class Tiles>
class RowsLoader {
 public:
  // x [rows, width], from row `first` < rows on.
  __device__ RowsLoader(const T* x, int64_t first, int64_t rows, int64_t width,
                        Extent<T> /*array*/)
      : own_column_(ThreadIndex() % kUnits * kPerUnit<T>) {
    const int own = ThreadIndex() / kUnits;
    const auto last = static_cast<int>(
        rows - first < Tiles::kSide ? rows - first - 1 : Tiles::kSide - 1);
    const auto row_units = static_cast<int>(width / kPerUnit<T>);
    from_ = x + first * width + own_column_;
#pragma unroll
    for (int v = 0; v < kCopies; ++v) {
      const int row = own + v * kStep;
      offset_[v] = (row < last ? row : last) * row_units;
    }
    to_ = static_cast<uint32_t>(own * kChunkBytes +
                                (ThreadIndex() % kUnits ^ own % 8) * kUnit);
  }

  // The next chunk; `left` columns of the matrix are left.
  __device__ void Copy(SharedAddress piece, int left) {
    const int bytes = own_column_ < left ? kUnit : 0;
#pragma unroll
    for (int v = 0; v < kCopies; ++v) {
      CopyAsync<kUnit>(piece + to_ + v * kStep * kChunkBytes,
                       from_ + int64_t{offset_[v]} * kPerUnit<T>, bytes);
    }
    from_ += kChunkTerms<T>;
  }

 private:
  static constexpr int kUnits = kChunkBytes / kUnit;  // of a row
  static constexpr int kStep = Tiles::kThreads / kUnits;
  static constexpr int kCopies = Tiles::kSide / kStep;
  static_assert(kStep % 8 == 0);

  const T* from_;
  int own_column_;
  int offset_[kCopies];  // of rows, in units
  uint32_t to_;
};

// A chunk of rows, kSide of their columns; zeros outside.
template <class T, class Tiles>
class ColumnsLoader {
 public:
  // Columns [first, first + kSide) of matrices [.., width].
  __device__ ColumnsLoader(const T* x, int64_t first, int64_t width,
                           Extent<T> /*array*/)
      : origin_(x + first + Own() * width + OwnUnit() * kPerUnit<T>),
        from_(origin_),
        width_(width),
        step_(static_cast<int>(width / kPerUnit<T>) * kStep),
        bytes_(first + OwnUnit() * kPerUnit<T> < width ? kUnit : 0),
        to_(static_cast<uint32_t>(Own() * kRowBytes +
                                  (OwnUnit() ^ Own() % 8) * kUnit)) {}

  // From row `row` of the matrices on.
  __device__ void MoveTo(int64_t row) { from_ = origin_ + row * width_; }

  // The next chunk; `left` rows are left.
  __device__ void Copy(SharedAddress piece, int left) {
#pragma unroll
    for (int v = 0; v < kCopies; ++v) {
      CopyAsync<kUnit>(piece + to_ + v * kStep * kRowBytes,
                       from_ + int64_t{step_ * v} * kPerUnit<T>,
                       Own() + v * kStep < left ? bytes_ : 0);
    }
    from_ += kChunkTerms<T> * width_;
  }

 private:
  static constexpr int kRowBytes = Tiles::kSide * static_cast<int>(sizeof(T));
  static constexpr int kUnits = kRowBytes / kUnit;
  static constexpr int kStep = Tiles::kThreads / kUnits;
  static constexpr int kCopies = kChunkTerms<T> / kStep;
  static_assert(kStep % 8 == 0);

  __device__ static int Own() { return ThreadIndex() / kUnits; }
  __device__ static int OwnUnit() { return ThreadIndex() % kUnits; }

  const T* origin_;
  const T* from_;
  int64_t width_;
  int step_;   // units
  int bytes_;  // of a unit, 0 right of the matrix
  uint32_t to_;
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TILE_LOADER_CUH_
