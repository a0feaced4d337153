// Pieces of operands on their way from global to shared memory.
//
// A block of kThreads threads makes a 64 x 64 tile of a product. It walks along
// the summed dimension in chunks; a chunk of an operand is a piece of
// kRows x kColumns elements:
//
//   Layout::kRows     64 rows, a chunk of their columns:   X Y^T (Gram
//   matrices) Layout::kColumns  a chunk of rows, 64 of their columns: X^T Y
//   (gradients)
//
// While a chunk is being multiplied the next one is on its way in registers,
// 16 bytes at a time; then it goes to the other half of shared memory, so there
// is one barrier for each chunk.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_STAGING_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_STAGING_CUH_

#include <cstring>

#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/layout.cuh"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {

inline constexpr int kTile = 64;
inline constexpr int kThreads = 128;

// Elements of the summed dimension in one chunk: 64 bytes. More would not fit
// into the registers of a thread.
template <class S>
inline constexpr int kDepth = 64 / static_cast<int>(sizeof(S));

struct alignas(16) Words {
  uint32_t word[4];
};

// A piece in shared memory. 16 bytes of padding per row keep rows aligned for
// wmma and spread them over banks.
template <class S, Layout kLayout>
struct alignas(128) Piece {
  static constexpr int kRows = kLayout == Layout::kRows ? kTile : kDepth<S>;
  static constexpr int kColumns = kLayout == Layout::kRows ? kDepth<S> : kTile;
  static constexpr int kPerVector = 16 / static_cast<int>(sizeof(S));
  static constexpr int kStride = kColumns + kPerVector;
  static constexpr int kVectors = kRows * kColumns / kPerVector / kThreads;
  S at[kRows * kStride];
};

// Rows of a matrix [.., width] from row `first`, as they lie in memory.
template <class T>
struct PlainRows {
  const T* first;
  int64_t width;
  __device__ const T* Row(int64_t r) const { return first + r * width; }
  __device__ Accumulator<T> Scale(int64_t /*r*/) const { return 1; }
};

// Whether rows start at multiples of 16 bytes.
template <class T>
__device__ bool IsAligned(const T* rows, int64_t width) {
  return reinterpret_cast<uintptr_t>(rows) % 16 == 0 &&
         width * static_cast<int64_t>(sizeof(T)) % 16 == 0;
}

// Which part of a matrix a piece holds; what lies outside becomes 0.
struct Window {
  int64_t row, row_end, column, column_end;
};

// 16 bytes of S from row r of `rows`; one load if everything is aligned.
template <class S, class Rows>
__device__ Words LoadWords(const Rows& rows, int64_t r, int64_t column,
                           int64_t column_end, bool aligned) {
  constexpr int kCount = 16 / static_cast<int>(sizeof(S));
  Words words = {};
  const auto* row = rows.Row(r);
  if (row == nullptr) return words;
  using T = std::remove_cv_t<std::remove_pointer_t<decltype(row)>>;
  if constexpr (std::is_same_v<T, S>) {
    if (aligned) {
      if (column < column_end) {
        words = *reinterpret_cast<const Words*>(row + column);
      }
      return words;
    }
  }
  S values[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values[k] = S{};
    if (column + k < column_end) {
      if constexpr (std::is_same_v<T, S>) {
        values[k] = row[column + k];
      } else {
        values[k] = ToAccumulator(row[column + k]);
      }
    }
  }
  memcpy(&words, values, sizeof(words));
  return words;
}

// c * x for numbers; 16-bit elements are never scaled here.
template <class S>
__device__ void ScaleWords(Words& words, S scale) {
  constexpr int kCount = 16 / static_cast<int>(sizeof(S));
  S values[kCount];
  memcpy(values, &words, sizeof(words));
#pragma unroll
  for (int k = 0; k < kCount; ++k) values[k] *= scale;
  memcpy(&words, values, sizeof(words));
}

// What one thread carries of a piece.
template <class S, Layout kLayout, bool kScaled = false>
struct Carried {
  using P = Piece<S, kLayout>;
  Words words[P::kVectors];

  template <class Rows>
  __device__ void Load(const Rows& rows, const Window& window, bool aligned) {
    constexpr int kPerRow = P::kColumns / P::kPerVector;
#pragma unroll
    for (int v = 0; v < P::kVectors; ++v) {
      const int index = v * kThreads + static_cast<int>(threadIdx.x);
      const int64_t r = window.row + index / kPerRow;
      const int64_t column =
          window.column + index % kPerRow * int64_t{P::kPerVector};
      words[v] = Words{};
      if (r < window.row_end) {
        words[v] = LoadWords<S>(rows, r, column, window.column_end, aligned);
        if constexpr (kScaled) ScaleWords<S>(words[v], rows.Scale(r));
      }
    }
  }

  __device__ void Store(P& piece) const {
    constexpr int kPerRow = P::kColumns / P::kPerVector;
#pragma unroll
    for (int v = 0; v < P::kVectors; ++v) {
      const int index = v * kThreads + static_cast<int>(threadIdx.x);
      S* row = piece.at + index / kPerRow * P::kStride;
      *reinterpret_cast<Words*>(row + index % kPerRow * P::kPerVector) =
          words[v];
    }
  }
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_STAGING_CUH_
