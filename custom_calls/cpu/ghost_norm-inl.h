// Ghost norm bodies: <a a^T, g g^T> from tiles of the upper triangle of both
// Gram matrices. A Gram entry is a dot product of two rows: lanes accumulate
// in the accumulator type over at most kGramDepth features, the rest in double.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_GHOST_NORM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_GHOST_NORM_INL_H_

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/vector-inl.h"

namespace bk::BK_ISA {

static_assert(kGramTile % kDotRows == 0 && kGramTile % kDotColumns == 0);

// Smallest normal number: below it rounding errors are absolute.
template <class Acc>
inline constexpr double kMinNormal = 0;
template <>
inline constexpr double kMinNormal<float> = 0x1p-126;
template <>
inline constexpr double kMinNormal<double> = 0x1p-1022;

// Converts rows [row0, row1) and features [k0, k1) of x [*, width] into groups
// of kGroup rows, in each group vector by vector: [step][kGroup][kLanes].
// Missing rows and features become zeros.
template <int kGroup, class T>
void PackRows(const T* x, int64_t width, int64_t row0, int64_t row1, int64_t k0,
              int64_t k1, Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  for (int64_t group = row0; group < row1; group += kGroup) {
    for (int64_t k = k0; k < k1; k += kLanes<Acc>) {
      for (int64_t row = group; row < group + kGroup; ++row) {
        Vec<Acc> v = {};
        const T* from = x + row * width + k;
        if (row < row1) {
          v = k + kLanes<Acc> <= k1 ? Load(from) : LoadPartial(from, k1 - k);
        }
        Store(v, packed);
        packed += kLanes<Acc>;
      }
    }
  }
}

// gram[kDotRows, kDotColumns] += rows * columns^T over `steps` vectors.
template <class Acc>
void DotTile(const Acc* rows, const Acc* columns, int64_t steps, double* gram) {
  Vec<Acc> sums[kDotRows][kDotColumns] = {};
  for (int64_t step = 0; step < steps; ++step) {
    Vec<Acc> row[kDotRows];
#pragma GCC unroll 8
    for (int i = 0; i < kDotRows; ++i) row[i] = Load(rows + i * kLanes<Acc>);
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) {
      const Vec<Acc> column = Load(columns + j * kLanes<Acc>);
#pragma GCC unroll 8
      for (int i = 0; i < kDotRows; ++i) sums[i][j] += row[i] * column;
    }
    rows += kDotRows * kLanes<Acc>;
    columns += kDotColumns * kLanes<Acc>;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) {
      gram[i * kGramTile + j] += static_cast<double>(Sum<Acc>(sums[i][j]));
    }
  }
}

// gram[kGramTile, kGramTile] = x[i0:i1] x[j0:j1]^T for x [*, width].
template <class T>
void GramTile(const T* x, int64_t width, int64_t i0, int64_t i1, int64_t j0,
              int64_t j1, Accumulator<T>* scratch, double* gram) {
  using Acc = Accumulator<T>;
  Acc* rows = scratch;
  Acc* columns = scratch + kGramTile * kGramDepth;
  __builtin_memset(gram, 0, sizeof(double) * kGramTile * kGramTile);
  for (int64_t k0 = 0; k0 < width; k0 += kGramDepth) {
    const int64_t k1 = Min(k0 + kGramDepth, width);
    const int64_t steps = RoundUp(k1 - k0, kLanes<Acc>) / kLanes<Acc>;
    PackRows<kDotRows>(x, width, i0, i1, k0, k1, rows);
    PackRows<kDotColumns>(x, width, j0, j1, k0, k1, columns);
    for (int64_t i = 0; i < i1 - i0; i += kDotRows) {
      for (int64_t j = 0; j < j1 - j0; j += kDotColumns) {
        // Entirely below the diagonal: nobody reads it.
        if (j0 + j + kDotColumns <= i0 + i) continue;
        DotTile(rows + i * steps * kLanes<Acc>,
                columns + j * steps * kLanes<Acc>, steps,
                gram + i * kGramTile + j);
      }
    }
  }
}

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
inline double OffDiagonalSum(const double* gram_a, const double* gram_g) {
  Vec<double> sum = {};
  for (int64_t k = 0; k < kGramTile * kGramTile; k += kLanes<double>) {
    sum += Load(gram_a + k) * Load(gram_g + k);
  }
  return 2 * Sum<double>(sum);
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
    double above = 0;
    for (int64_t j = i + 1; j < i1 - i0; ++j) above += row_a[j] * row_g[j];
    sum.inner += 2 * above;
    sum.bound += RowBound(pair.a + (i0 + i) * pair.d, pair.d, row_a[i]) *
                 RowBound(pair.g + (i0 + i) * pair.p, pair.p, row_g[i]);
  }
  return sum;
}

template <class T>
GhostPartial GhostTileRow(const GhostPair<T>& pair, int64_t first_position,
                          Accumulator<T>* scratch) {
  double gram_a[kGramTile * kGramTile];
  double gram_g[kGramTile * kGramTile];
  const int64_t i0 = first_position;
  const int64_t i1 = Min(i0 + kGramTile, pair.positions);
  GhostPartial sum = {0, 0};
  for (int64_t j0 = i0; j0 < pair.positions; j0 += kGramTile) {
    const int64_t j1 = Min(j0 + kGramTile, pair.positions);
    GramTile(pair.a, pair.d, i0, i1, j0, j1, scratch, gram_a);
    GramTile(pair.g, pair.p, i0, i1, j0, j1, scratch, gram_g);
    if (j0 == i0) {
      sum = DiagonalSum(pair, i0, i1, gram_a, gram_g);
    } else {
      sum.inner += OffDiagonalSum(gram_a, gram_g);
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
