// The loaders of tile_loader.cuh for rows that start anywhere (odd widths, as
// the 50257 words of GPT2): a thread reads the two aligned units of 16 bytes
// that its own overlaps, and shifts. It is the same shift for all its rows,
// which are multiples of 8 apart. Nothing outside of the array is read.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_SHIFTED_LOADER_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_SHIFTED_LOADER_CUH_

#include "custom_calls/cuda/tile_loader.cuh"

namespace bk::cuda {

struct alignas(16) Unit {
  uint32_t word[4];
};

// An array of 16-bit elements, of which any unit can be read.
template <class T>
struct ShiftedArray : Extent<T> {
  static_assert(sizeof(T) == 2);

  // The `count` elements from `from` on, 1 to 8 of them, then zeros.
  __device__ Unit Read(const T* from, int count) const {
    const auto shift = static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16);
    const T* low = from - shift / 2;
    const bool two = shift + 2 * count > kUnit;
    if (low < this->begin || low + (two ? 16 : 8) > this->end) {
      return ReadSingly(from, count);
    }
    uint32_t words[8] = {};
    Place(*reinterpret_cast<const Unit*>(low), 0, words);
    if (two) Place(*reinterpret_cast<const Unit*>(low + 8), 4, words);
    return Cut(Shift(words, shift), count);
  }

 private:
  __device__ static void Place(const Unit& unit, int at, uint32_t (&words)[8]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) words[at + k] = unit.word[k];
  }

  // The 16 bytes from byte `shift` of 32 on.
  __device__ static Unit Shift(uint32_t (&words)[8], int shift) {
#pragma unroll
    for (int k = 0; k < 6; ++k) {
      words[k] = (shift & 8) != 0 ? words[k + 2] : words[k];
    }
#pragma unroll
    for (int k = 0; k < 5; ++k) {
      words[k] = (shift & 4) != 0 ? words[k + 1] : words[k];
    }
    Unit unit;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint64_t both = uint64_t{words[k + 1]} << 32 | words[k];
      unit.word[k] = static_cast<uint32_t>(both >> (shift & 2) * 8);
    }
    return unit;
  }

  __device__ static Unit Cut(Unit unit, int count) {
    if (count >= 8) return unit;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (count <= 2 * k) unit.word[k] = 0;
      if (count == 2 * k + 1) unit.word[k] &= 0xffff;
    }
    return unit;
  }

  __device__ static Unit ReadSingly(const T* from, int count) {
    uint32_t bits[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) bits[k] = k < count ? from[k].bits : 0;
    Unit unit;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int low = 2 * k;
      unit.word[k] = bits[low + 1] << 16 | bits[low];
    }
    return unit;
  }
};

// kSide rows, a chunk of their columns; zeros outside.
template <class T, class Tiles>
class ShiftedRowsLoader {
 public:
  // x [rows, width], a part of `array`, from row `first` on.
  __device__ ShiftedRowsLoader(const T* x, int64_t first, int64_t rows,
                               int64_t width, Extent<T> array)
      : array_{array},
        from_(x + (first + Own()) * width + OwnColumn()),
        step_(width * kStep),
        rows_(static_cast<int>(rows - first < Tiles::kSide ? rows - first
                                                           : Tiles::kSide)),
        to_(static_cast<uint32_t>(Own() * kChunkBytes +
                                  (OwnUnit() ^ Own() % kTurns) * kUnit)) {}

  __device__ void Copy(SharedAddress piece, int left) {
    const int count = left - OwnColumn() < 8 ? left - OwnColumn() : 8;
#pragma unroll
    for (int v = 0; v < kCopies; ++v) {
      const bool inside = Own() + v * kStep < rows_ && count > 0;
      StoreShared(
          piece + to_ + v * kStep * kChunkBytes,
          (inside ? array_.Read(from_ + step_ * v, count) : Unit{}).word);
    }
    from_ += kChunkTerms<T>;
  }

 private:
  static constexpr int kUnits = kChunkBytes / kUnit;
  static constexpr int kStep = Tiles::kThreads / kUnits;
  static constexpr int kCopies = Tiles::kSide / kStep;

  __device__ static int Own() { return ThreadIndex() / kUnits; }
  __device__ static int OwnUnit() { return ThreadIndex() % kUnits; }
  __device__ static int OwnColumn() { return OwnUnit() * kPerUnit<T>; }

  ShiftedArray<T> array_;
  const T* from_;
  int64_t step_;
  int rows_;
  uint32_t to_;
};

// A chunk of rows, kSide of their columns; zeros outside.
template <class T, class Tiles>
class ShiftedColumnsLoader {
 public:
  // Columns [first, first + kSide) of matrices [.., width].
  __device__ ShiftedColumnsLoader(const T* x, int64_t first, int64_t width,
                                  int64_t example_rows, Extent<T> array)
      : array_{array},
        origin_(x + first + Own() * width + OwnUnit() * kPerUnit<T>),
        from_(origin_),
        width_(width),
        example_(example_rows * width),
        to_(static_cast<uint32_t>(Own() * kRowBytes +
                                  (OwnUnit() ^ Own() % kTurns) * kUnit)) {
    const int64_t columns = width - first - OwnUnit() * kPerUnit<T>;
    count_ = static_cast<int>(columns < 8 ? columns : 8);
  }

  __device__ void Skip(int64_t examples) {
    origin_ += examples * example_;
    from_ = origin_;
  }

  __device__ void Copy(SharedAddress piece, int left) {
#pragma unroll
    for (int v = 0; v < kCopies; ++v) {
      const bool inside = Own() + v * kStep < left && count_ > 0;
      StoreShared(
          piece + to_ + v * kStep * kRowBytes,
          (inside ? array_.Read(from_ + width_ * kStep * v, count_) : Unit{})
              .word);
    }
    from_ += kChunkTerms<T> * width_;
  }

 private:
  static constexpr int kRowBytes = Tiles::kSide * static_cast<int>(sizeof(T));
  static constexpr int kUnits = kRowBytes / kUnit;
  static constexpr int kStep = Tiles::kThreads / kUnits;
  static constexpr int kCopies = kChunkTerms<T> / kStep;

  __device__ static int Own() { return ThreadIndex() / kUnits; }
  __device__ static int OwnUnit() { return ThreadIndex() % kUnits; }

  ShiftedArray<T> array_;
  const T* origin_;
  const T* from_;
  int64_t width_, example_;
  int count_;  // elements of a unit, none right of the matrix
  uint32_t to_;
};

// Which loaders a kernel has. kAligned: all rows start at multiples of 16
// bytes.
template <class T, class Tiles, bool kAligned>
struct Loaders {
  using Rows = RowsLoader<T, Tiles>;
  using Columns = ColumnsLoader<T, Tiles>;
};
template <class T, class Tiles>
struct Loaders<T, Tiles, false> {
  using Rows = ShiftedRowsLoader<T, Tiles>;
  using Columns = ShiftedColumnsLoader<T, Tiles>;
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_SHIFTED_LOADER_CUH_
