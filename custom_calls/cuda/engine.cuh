// Multiplies two pieces of shared memory and adds the product to a 64 x 64 tile
// of sums, which lie in the registers of a block: kSums numbers per thread.
// Which entries of the tile a thread has is the engine's own business; two
// tiles of one engine have the same entries in the same places.
//
// TensorEngine<BFloat16 | Float16>: wmma, products exact, sums in float.
//
// TensorEngine<float>: wmma with tf32, x = hi + lo, three products.
//
// FmaEngine<float | double>: one multiply-add after the other.
//
// Roundings(n) bounds the error of a sum over n terms, in roundings of Acc
// relative to the sum of absolute values: those of one chunk, and one for the
// addition of every chunk to the sums.
// What is assumed of tensor cores stands in chain.h.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_ENGINE_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_ENGINE_CUH_

#if !defined(BK_CUDA_ON_CPU)
#include <cuda_bf16.h>
#include <mma.h>  // here only: it takes long to compile
#endif

#include "custom_calls/cuda/chain.h"
#include "custom_calls/cuda/staging.cuh"

namespace bk::cuda {

inline constexpr int kSums = kTile * kTile / kThreads;

// A finished tile in shared memory, with rows apart for wmma and for banks.
template <class Acc>
struct alignas(128) TileOf {
  static constexpr int kStride = kTile + 16 / static_cast<int>(sizeof(Acc));
  Acc at[kTile * kStride];
};

// wmma shapes of an element type. kTerms: the products along the sum of one
// machine instruction (HMMA.16816: 16, HMMA.1684: 4), of which wmma's m16n16
// needs two for its columns and kStep / kTerms along the sum.
template <class S>
struct Mma;
template <>
struct Mma<BFloat16> {
  using Type = __nv_bfloat16;
  using Memory = __nv_bfloat16;
  static constexpr int kStep = 16, kTerms = 16;
};
template <>
struct Mma<Float16> {
  using Type = __half;
  using Memory = __half;
  static constexpr int kStep = 16, kTerms = 16;
};
template <>
struct Mma<float> {
  using Type = nvcuda::wmma::precision::tf32;
  using Memory = float;
  static constexpr int kStep = 8, kTerms = 4;
};

template <Layout kLayout>
struct MmaLayouts;  // of the left and of the right operand
template <>
struct MmaLayouts<Layout::kRows> {
  using Left = nvcuda::wmma::row_major;
  using Right = nvcuda::wmma::col_major;
};
template <>
struct MmaLayouts<Layout::kColumns> {
  using Left = nvcuda::wmma::col_major;
  using Right = nvcuda::wmma::row_major;
};

// Four warps, 2 x 2, have 32 x 32 entries each: 2 x 2 fragments.
template <class S>
struct TensorEngine {
  using Stage = S;
  using Acc = float;
  using M = Mma<S>;
  static constexpr int kStep = M::kStep;
  static constexpr bool kSplit = sizeof(S) == 4;
  static_assert(M::kTerms % kStepTerms == 0 && kStep % M::kTerms == 0);
  // Machine instructions of a warp for one chunk: 2 x 2 fragments of 2 halves.
  static constexpr int kInstructions =
      8 * (kDepth<S> / M::kTerms) * (kSplit ? 3 : 1);
  // Of the products of one chunk, each sum of a fragment on its own.
  static constexpr int64_t kChunkRoundings = ChainRoundings(kDepth<S>);
  // tf32: lo * lo is dropped and lo is rounded to 11 bits, 3 * 2^-22 together;
  // the small products have sums of their own, whose error is nothing.
  static int64_t Roundings(int64_t length) {
    return kChunkRoundings + (kSplit ? 14 : 0) + 1 + CeilDiv(length, kDepth<S>);
  }
  static constexpr double kTiny = kTensorTiny;

  using Result =
      nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, kStep, float>;

  __device__ static int WarpRow() { return ThreadIndex() / 64 * 32; }
  __device__ static int WarpColumn() { return ThreadIndex() / 32 % 2 * 32; }

  // sums += scale * left * right over the first `depth` of the chunk.
  template <Layout kLayout>
  __device__ static void Add(const Piece<S, kLayout>& left,
                             const Piece<S, kLayout>& right, int64_t depth,
                             float scale, float (&sums)[kSums]) {
    Result chain[2][2], small[2][2];
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      nvcuda::wmma::fill_fragment(chain[f / 2][f % 2], 0.0f);
      if (kSplit) nvcuda::wmma::fill_fragment(small[f / 2][f % 2], 0.0f);
    }
#pragma unroll
    for (int k = 0; k < kDepth<S>; k += kStep) {
      if (k < depth) Step<kLayout>(left, right, k, chain, small);
    }
#pragma unroll
    for (int f = 0; f < 4; ++f) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float x = chain[f / 2][f % 2].x[e];
        if (kSplit) x += small[f / 2][f % 2].x[e];
        sums[f * 8 + e] = Fma(scale, x, sums[f * 8 + e]);
      }
    }
  }

  template <Layout kLayout>
  __device__ static void Step(const Piece<S, kLayout>& left,
                              const Piece<S, kLayout>& right, int k,
                              Result (&chain)[2][2], Result (&small)[2][2]) {
    namespace wmma = nvcuda::wmma;
    using Layouts = MmaLayouts<kLayout>;
    using Left = wmma::fragment<wmma::matrix_a, 16, 16, kStep, typename M::Type,
                                typename Layouts::Left>;
    using Right = wmma::fragment<wmma::matrix_b, 16, 16, kStep,
                                 typename M::Type, typename Layouts::Right>;
    constexpr int kStride = Piece<S, kLayout>::kStride;
    Left a[2], a_low[2];
    Right b[2], b_low[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = WarpRow() + 16 * i;
      const int column = WarpColumn() + 16 * i;
      const bool rows = kLayout == Layout::kRows;
      const S* x = left.at + (rows ? row * kStride + k : k * kStride + row);
      const S* y =
          right.at + (rows ? column * kStride + k : k * kStride + column);
      wmma::load_matrix_sync(
          a[i], reinterpret_cast<const typename M::Memory*>(x), kStride);
      wmma::load_matrix_sync(
          b[i], reinterpret_cast<const typename M::Memory*>(y), kStride);
      if constexpr (kSplit) {
        Split(a[i], a_low[i]);
        Split(b[i], b_low[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        wmma::mma_sync(chain[i][j], a[i], b[j], chain[i][j]);
        if constexpr (kSplit) {
          wmma::mma_sync(small[i][j], a_low[i], b[j], small[i][j]);
          wmma::mma_sync(small[i][j], a[i], b_low[j], small[i][j]);
        }
      }
    }
  }

  // x becomes its leading 11 bits, low the next 11.
  template <class Fragment>
  __device__ static void Split(Fragment& x, Fragment& low) {
#pragma unroll
    for (int e = 0; e < x.num_elements; ++e) {
      const float high = nvcuda::wmma::__float_to_tf32(x.x[e]);
      low.x[e] = nvcuda::wmma::__float_to_tf32(x.x[e] - high);
      x.x[e] = high;
    }
  }

  __device__ static void Store(const float (&sums)[kSums],
                               TileOf<float>& tile) {
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      Result result;
#pragma unroll
      for (int e = 0; e < 8; ++e) result.x[e] = sums[f * 8 + e];
      const int64_t row = WarpRow() + f / 2 * 16;
      const int64_t column = WarpColumn() + f % 2 * 16;
      nvcuda::wmma::store_matrix_sync(
          tile.at + row * TileOf<float>::kStride + column, result,
          TileOf<float>::kStride, nvcuda::wmma::mem_row_major);
    }
  }
};

// A thread has rows 8 y .. 8 y + 7 and columns x, x + 16, x + 32, x + 48.
template <class Real>
struct FmaEngine {
  using Stage = Real;
  using Acc = Real;
  static constexpr int kRows = 8, kColumns = 4;
  // double has no registers to spare for sums of a chunk.
  static constexpr bool kChained = sizeof(Real) == 4;
  static int64_t Roundings(int64_t length) {
    if (!kChained) return length + 1;
    return kDepth<Real> + 1 + CeilDiv(length, kDepth<Real>);
  }
  static constexpr double kTiny = sizeof(Real) == 4 ? 0x1p-126 : 0x1p-1022;

  // As above; double takes the scale 1 only.
  template <Layout kLayout>
  __device__ static void Add(const Piece<Real, kLayout>& left,
                             const Piece<Real, kLayout>& right, int64_t depth,
                             Real scale, Real (&sums)[kSums]) {
    constexpr int kStride = Piece<Real, kLayout>::kStride;
    constexpr int kAlong = kLayout == Layout::kRows ? 1 : kStride;
    constexpr int kAcross = kLayout == Layout::kRows ? kStride : 1;
    const Real* x = left.at + threadIdx.x / 16 * kRows * kAcross;
    const Real* y = right.at + threadIdx.x % 16 * kAcross;
    Real local[kSums] = {};
    Real(&chain)[kSums] = kChained ? local : sums;
    for (int k = 0; k < depth && k < kDepth<Real>; ++k) {
      Real b[kColumns];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        b[j] = y[k * kAlong + 16 * j * kAcross];
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const Real a = x[k * kAlong + i * kAcross];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          chain[i * kColumns + j] = Fma(a, b[j], chain[i * kColumns + j]);
        }
      }
    }
    if constexpr (kChained) {
#pragma unroll
      for (int e = 0; e < kSums; ++e) sums[e] = Fma(scale, local[e], sums[e]);
    }
  }

  __device__ static void Store(const Real (&sums)[kSums], TileOf<Real>& tile) {
#pragma unroll
    for (int e = 0; e < kSums; ++e) {
      const int row = ThreadIndex() / 16 * kRows + e / kColumns;
      const int column = ThreadIndex() % 16 + e % kColumns * 16;
      tile.at[row * TileOf<Real>::kStride + column] = sums[e];
    }
  }
};

// What multiplies elements of type T.
template <class T>
struct EngineOf {
  using Type = TensorEngine<T>;
};
template <>
struct EngineOf<double> {
  using Type = FmaEngine<double>;
};
template <class T>
using Engine = typename EngineOf<T>::Type;

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_ENGINE_CUH_
