// Ghost norm bodies: <a a^T, g g^T> from tiles of the upper triangle of both
// Gram matrices.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_GHOST_NORM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_GHOST_NORM_INL_H_

#include "custom_calls/cpu/gram_tile-inl.h"
#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/vector-inl.h"

namespace bk::BK_ISA {

// Smallest normal number: below it rounding errors are absolute.
template <class Acc>
inline constexpr double kMinNormal = 0;
template <>
inline constexpr double kMinNormal<float> = 0x1p-126;
template <>
inline constexpr double kMinNormal<double> = 0x1p-1022;

// An upper bound of |x|, given its squared norm as computed. A row that is not
// zero has at least width * kMinNormal, which covers all absolute (underflow)
// errors of Gram entries, see ghost_norm.cc; a zero row is exactly 0.
template <class T>
double RowBound(const T* x, int64_t width, double sq_norm) {
  using Acc = Accumulator<T>;
  if (sq_norm == 0) {
    bool zero = true;
    for (int64_t k = 0; k < width && zero; k += kLanes<Acc>) {
      const auto v = k + kLanes<Acc> <= width ? Load(x + k)
                                              : LoadPartial(x + k, width - k);
      for (int64_t lane = 0; lane < kLanes<Acc>; ++lane) zero &= v[lane] == 0;
    }
    if (zero) return 0;
  }
  return __builtin_sqrt(sq_norm + static_cast<double>(width) * kMinNormal<Acc>);
}

// Sum of the products of a tile right of the diagonal, which counts twice.
inline double OffDiagonalSum(int64_t rows, int64_t columns,
                             const double* gram_a, const double* gram_g) {
  double total = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const double* row_a = gram_a + i * kGramTile;
    const double* row_g = gram_g + i * kGramTile;
    Vec<double> sums = {};
    int64_t j = 0;
    for (; j + kLanes<double> <= columns; j += kLanes<double>) {
      sums += Load(row_a + j) * Load(row_g + j);
    }
    double row = Sum<double>(sums);
    for (; j < columns; ++j) row += row_a[j] * row_g[j];
    total += row;
  }
  return 2 * total;
}

// A tile on the diagonal: its diagonal counts once, what is above it twice.
template <class T>
GhostPartial DiagonalSum(const GhostPair<T>& pair, int64_t i0, int64_t i1,
                         const double* gram_a, const double* gram_g) {
  GhostPartial sum = {0, 0};
  for (int64_t i = 0; i < i1 - i0; ++i) {
    const double* row_a = gram_a + i * kGramTile;
    const double* row_g = gram_g + i * kGramTile;
    sum.inner += row_a[i] * row_g[i];
    sum.inner +=
        OffDiagonalSum(1, i1 - i0 - i - 1, row_a + i + 1, row_g + i + 1);
    sum.bound += RowBound(pair.a + (i0 + i) * pair.d, pair.d, row_a[i]) *
                 RowBound(pair.g + (i0 + i) * pair.p, pair.p, row_g[i]);
  }
  return sum;
}

template <class T>
GhostPartial GhostTileRow(const GhostPair<T>& pair, int64_t first_position,
                          double* grams, Accumulator<T>* scratch) {
  double* gram_a = grams;
  double* gram_g = grams + kGramTile * kGramTile;
  const int64_t i0 = first_position;
  const int64_t i1 = Min(i0 + pair.block, pair.positions);
  GhostPartial sum = {0, 0};
  for (int64_t j0 = i0; j0 < pair.positions; j0 += pair.block) {
    const int64_t j1 = Min(j0 + pair.block, pair.positions);
    GramTile(pair.a, pair.d, {i0, i1}, {j0, j1}, scratch, gram_a);
    GramTile(pair.g, pair.p, {i0, i1}, {j0, j1}, scratch, gram_g);
    if (j0 == i0) {
      sum = DiagonalSum(pair, i0, i1, gram_a, gram_g);
    } else {
      sum.inner += OffDiagonalSum(i1 - i0, j1 - j0, gram_a, gram_g);
    }
  }
  return sum;
}

// |x[0:count]|^2. Four sums hide the latency of the addition; their chains are
// no longer than those of DotTile.
template <class T>
Accumulator<T> SquaredNormBlock(const T* x, int64_t count) {
  using Acc = Accumulator<T>;
  Vec<Acc> sums[4] = {};
  int64_t k = 0;
  for (; k + 4 * kLanes<Acc> <= count; k += 4 * kLanes<Acc>) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Vec<Acc> v = Load(x + k + i * kLanes<Acc>);
      sums[i] += v * v;
    }
  }
  for (; k < count; k += kLanes<Acc>) {
    const Vec<Acc> v =
        k + kLanes<Acc> <= count ? Load(x + k) : LoadPartial(x + k, count - k);
    sums[0] += v * v;
  }
  return Sum<Acc>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T>
double SquaredNorm(const T* x, int64_t width) {
  double total = 0;
  for (int64_t k = 0; k < width; k += kGramDepth) {
    total += static_cast<double>(
        SquaredNormBlock(x + k, Min(kGramDepth, width - k)));
  }
  return total;
}

template <class T>
GhostPartial GhostSingle(const GhostPair<T>& pair) {
  const double a = SquaredNorm(pair.a, pair.d);
  const double g = SquaredNorm(pair.g, pair.p);
  return {a * g, RowBound(pair.a, pair.d, a) * RowBound(pair.g, pair.p, g)};
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_GHOST_NORM_INL_H_
