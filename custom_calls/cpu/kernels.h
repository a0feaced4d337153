// The table of functions that every instruction set fills, and the sizes that
// the drivers (ghost_norm.cc, clipped_gemm.cc) and the bodies (*-inl.h) share.
//
// Drivers own threads, scratch memory and the order of sums; they are compiled
// once. Bodies own arithmetic; they are compiled once per instruction set.
// Everything that crosses this line is a plain struct, because an inline
// function used on both sides could be emitted with instructions that the CPU
// lacks and then be picked by the linker for all.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_KERNELS_H_

#include <cstdint>

#include "custom_calls/cpu/conv_kernels.h"
#include "custom_calls/cpu/gram_partial.h"
#include "custom_calls/cpu/sparse_kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/noise.h"

namespace bk {

// Ghost norm: Gram matrices are made in square tiles of at most kGramTile
// positions, kGramDepth features at a time. Depth bounds the accumulation chain
// in float and therefore the certified error, see ghost_norm.cc. kDotGroup
// copied rows, 17 KB of floats, stay in L1; the tiles of both matrices and
// the rows of one block of features stay in L2.
inline constexpr int64_t kGramTile = 136;
inline constexpr int64_t kGramDepth = 512;
inline constexpr int64_t kDotGroup = 8;

// Products over rows: one task makes at most kGemmRows x kGemmColumns of the
// result, kGemmDepth rows of the operands at a time, kGemmStrip columns at a
// time. Multiples of every micro-tile (6 or 8 rows; 4, 8, 16, 24 or 48
// columns); the panels of lhs and a strip of rhs, 240 + 120 KB of floats, stay
// in L2, one panel of rhs in L1.
inline constexpr int64_t kGemmRows = 192;
inline constexpr int64_t kGemmColumns = 384;
inline constexpr int64_t kGemmStrip = 96;
inline constexpr int64_t kGemmDepth = 320;

// Scratch that a body may use, in elements of the accumulator type, aligned to
// kScratchAlignment bytes. Panels have at least 4 columns, and begin at an odd
// number of cache lines: at most 2 lines more than they hold.
inline constexpr int64_t kPanelSlack = 32;
inline constexpr int64_t kGemmLhsScratch =
    kGemmRows * kGemmDepth + kGemmRows / 4 * kPanelSlack;
inline constexpr int64_t kGemmRhsScratch =
    kGemmStrip * kGemmDepth + kGemmStrip / 4 * kPanelSlack;
// The direct norm of more than kGemmDepth positions keeps its tile there too.
inline constexpr int64_t kDirectColumns = kGemmColumns / 2;
inline constexpr int64_t kDirectScratch =
    kGemmLhsScratch + kGemmRhsScratch + kGemmRows * kDirectColumns;
inline constexpr int64_t kGramRows = kGramTile + 8;
inline constexpr int64_t kGramScratch =
    (kGramRows + kDotGroup) * (kGramDepth + kPanelSlack);
inline constexpr int64_t kGramDoubles = 2 * kGramTile * kGramTile;
inline constexpr int64_t kGemmScratch = kGemmLhsScratch + kGemmRhsScratch;
inline constexpr int64_t kScratchAlignment = 64;

// One weight of one example: a [T, d] and g [T, p], in tiles of `block`
// positions.
template <class T>
struct GhostPair {
  const T* a;
  const T* g;
  int64_t positions;
  int64_t d;
  int64_t p;
  int64_t block;
};

// An example that enters the clipped sum, in the order of the batch.
template <class Acc>
struct LiveExample {
  int64_t index;
  Acc factor;
};

// out[m0:m1, n0:n1] = sum over live examples i and positions t of
// factor_i * lhs[i, weight, t, m0:m1]^T rhs[i, weight, t, n0:n1], added to what
// is there if `accumulate`.
template <class T>
struct GemmTask {
  const T* lhs;  // [B, N, T, m]
  const T* rhs;  // [B, N, T, n]
  const LiveExample<Accumulator<T>>* live;
  int64_t live_count;
  int64_t weight, weights, positions, m, n;
  int64_t m0, m1, n0, n1;
  Accumulator<T>* out;  // [m, n] of this weight
  bool accumulate;
};

// out[i] = x[i] + stddev * normal(position + i), i < count.
template <class T>
struct GaussianTask {
  NoiseStream stream;
  Accumulator<T> stddev;
  uint64_t position;
  int64_t count;
  const T* x;
  T* out;
};

// out[i] = word position + i of the stream, i < count.
struct ChachaTask {
  NoiseStream stream;
  uint64_t position;
  int64_t count;
  uint32_t* out;
};

// out[i, j] = sum_t lhs[t, m0 + i] rhs[t, n0 + j] for one weight of one
// example, with rows `stride` apart.
template <class T>
struct ProductTask {
  const T* lhs;  // [T, m]
  const T* rhs;  // [T, n]
  int64_t positions, m, n;
  int64_t m0, m1, n0, n1;
  Accumulator<T>* out;
  int64_t stride;
};

// out = sum over live examples i of factor_i x[i], for x [B, size].
template <class T>
struct SumTask {
  const T* x;
  const LiveExample<Accumulator<T>>* live;
  int64_t live_count;
  int64_t size;
  Accumulator<T>* out;
};

template <class T>
struct ElementKernels {
  // Tiles (I, J >= I) of the Gram matrices, where tile row I starts at
  // `first_position`.
  GramPartial (*ghost_tile_row)(const GhostPair<T>& pair,
                                int64_t first_position, double* grams,
                                Accumulator<T>* scratch);
  // The same for T = 1, where the Gram matrices are numbers. No scratch.
  GramPartial (*ghost_single)(const GhostPair<T>& pair);
  // S = sum_t |a_t| |g_t|, not below it by more than rounding.
  double (*spread)(const GhostPair<T>& pair);
  void (*clipped_gemm_tile)(const GemmTask<T>& task, Accumulator<T>* scratch);
  // Returns the sum of squares of the result.
  double (*product_tile)(const ProductTask<T>& task, Accumulator<T>* scratch);
  // Elements [begin, end) of a sum with at least one live example.
  void (*weighted_sum_chunk)(const SumTask<T>& task, int64_t begin,
                             int64_t end);
  void (*gaussian)(const GaussianTask<T>& task);
  SparseKernels<T> sparse;
  ConvKernels<T> conv;
  // Whether products are made by tile registers, which add in an order of their
  // own and take denormal numbers for zero: see tile_kernels.h.
  bool tiles = false;
};

struct CpuKernels {
  const char* name;
  int64_t vector_bytes;
  ElementKernels<float> f32;
  ElementKernels<BFloat16> bf16;
  ElementKernels<Float16> f16;
  ElementKernels<double> f64;
  void (*chacha)(const ChachaTask& task) = nullptr;
};

extern const CpuKernels kBaselineKernels;
extern const CpuKernels kAvx2Kernels;    // x86-64 only
extern const CpuKernels kAvx512Kernels;  // x86-64 only

// The column of the table for element type T.
template <class T>
const ElementKernels<T>& KernelsFor(const CpuKernels& kernels);
template <>
inline const ElementKernels<float>& KernelsFor(const CpuKernels& kernels) {
  return kernels.f32;
}
template <>
inline const ElementKernels<BFloat16>& KernelsFor(const CpuKernels& kernels) {
  return kernels.bf16;
}
template <>
inline const ElementKernels<Float16>& KernelsFor(const CpuKernels& kernels) {
  return kernels.f16;
}
template <>
inline const ElementKernels<double>& KernelsFor(const CpuKernels& kernels) {
  return kernels.f64;
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_KERNELS_H_
