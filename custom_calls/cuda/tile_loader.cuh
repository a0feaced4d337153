// Copies chunks of a matrix to pieces of shared memory, for rows that start at
// multiples of 16 bytes: asynchronously, 16 bytes at a time. A thread copies
// the same units of every chunk, so it moves its address on and computes no new
// one. Nothing outside of the matrix is read.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TILE_LOADER_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TILE_LOADER_CUH_

#include "custom_calls/cuda/instructions.cuh"
#include "custom_calls/cuda/tiling.cuh"

namespace bk::cuda {

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
    to_ = static_cast<uint32_t>(
        own * kChunkBytes + (ThreadIndex() % kUnits ^ own % kTurns) * kUnit);
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

// Where a unit of a chunk of rows lies in its piece.
template <class T, class Tiles>
struct ColumnsPlace {
  static constexpr int kRowBytes = Tiles::kSide * static_cast<int>(sizeof(T));
  __device__ static uint32_t Of(int row, int unit) {
    return static_cast<uint32_t>(row * kRowBytes +
                                 (unit ^ row % kTurns) * kUnit);
  }
};

// A chunk of rows, kSide of their columns; zeros outside.
template <class T, class Tiles>
class ColumnsLoader {
 public:
  // Columns [first, first + kSide) of matrices [.., width]; `example_rows`
  // rows from one example to the next.
  __device__ ColumnsLoader(const T* x, int64_t first, int64_t width,
                           int64_t example_rows, Extent<T> /*array*/)
      : origin_(x + first + Own() * width + OwnUnit() * kPerUnit<T>),
        from_(origin_),
        width_(width),
        example_(example_rows * width),
        step_(static_cast<int>(width / kPerUnit<T>) * kStep),
        inside_(first + OwnUnit() * kPerUnit<T> < width),
        to_(Place::Of(Own(), OwnUnit())) {}

  // From the beginning of the example that is so many after the last one.
  __device__ void Skip(int64_t examples) {
    origin_ += examples * example_;
    from_ = origin_;
  }

  // The next chunk; `left` rows are left.
  __device__ void Copy(SharedAddress piece, int left) {
    const int own_left = left - Own();
#pragma unroll
    for (int v = 0; v < kCopies; ++v) {
      CopyAsync<kUnit>(piece + to_ + v * kStep * Place::kRowBytes,
                       from_ + int64_t{step_} * (v * kPerUnit<T>),
                       inside_ && own_left > v * kStep ? kUnit : 0);
    }
    from_ += kChunkTerms<T> * width_;
  }

 private:
  using Place = ColumnsPlace<T, Tiles>;
  static constexpr int kUnits = Tiles::kSide / kPerUnit<T>;
  static constexpr int kStep = Tiles::kThreads / kUnits;
  static constexpr int kCopies = kChunkTerms<T> / kStep;
  static_assert(kStep % 8 == 0);

  __device__ static int Own() { return ThreadIndex() / kUnits; }
  __device__ static int OwnUnit() { return ThreadIndex() % kUnits; }

  const T* origin_;
  const T* from_;
  int64_t width_, example_;
  int step_;     // units
  bool inside_;  // whether its columns are in the matrix
  uint32_t to_;
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TILE_LOADER_CUH_
