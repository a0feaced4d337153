// Ghost norm bodies: <a a^T, g g^T> from tiles of the upper triangle of both
// Gram matrices.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_GHOST_NORM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_GHOST_NORM_INL_H_

#include "custom_calls/cpu/dense/gram_tile-inl.h"
#include "custom_calls/cpu/dense/row_norms-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

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

// How Gram matrices are made: by dot products of vectors.
template <class T>
struct DotGrams {
  // Per feature, of the squared norm of a row that is not zero.
  static constexpr double kFloor = kSmallestNormal<Accumulator<T>>;
  static void Make(const T* x, int64_t width, Positions rows, Positions columns,
                   Accumulator<T>* scratch, double* gram) {
    GramTile(x, width, rows, columns, scratch, gram);
  }
};

// A tile on the diagonal: its diagonal counts once, what is above it twice.
template <class T, class Grams>
GramPartial DiagonalSum(const GhostPair<T>& pair, int64_t i0, int64_t i1,
                        const double* gram_a, const double* gram_g) {
  GramPartial sum = {0, 0};
  for (int64_t i = 0; i < i1 - i0; ++i) {
    const double* row_a = gram_a + i * kGramTile;
    const double* row_g = gram_g + i * kGramTile;
    sum.inner += row_a[i] * row_g[i];
    sum.inner +=
        OffDiagonalSum(1, i1 - i0 - i - 1, row_a + i + 1, row_g + i + 1);
    sum.bound += LengthBound(pair.a + (i0 + i) * pair.d, pair.d, row_a[i],
                             Grams::kFloor) *
                 LengthBound(pair.g + (i0 + i) * pair.p, pair.p, row_g[i],
                             Grams::kFloor);
  }
  return sum;
}

template <class T, class Grams = DotGrams<T>>
GramPartial GhostTileRow(const GhostPair<T>& pair, int64_t first_position,
                         double* grams, Accumulator<T>* scratch) {
  double* gram_a = grams;
  double* gram_g = grams + kGramTile * kGramTile;
  const int64_t i0 = first_position;
  const int64_t i1 = Min(i0 + pair.block, pair.positions);
  GramPartial sum = {0, 0};
  for (int64_t j0 = i0; j0 < pair.positions; j0 += pair.block) {
    const int64_t j1 = Min(j0 + pair.block, pair.positions);
    Grams::Make(pair.a, pair.d, {i0, i1}, {j0, j1}, scratch, gram_a);
    Grams::Make(pair.g, pair.p, {i0, i1}, {j0, j1}, scratch, gram_g);
    if (j0 == i0) {
      sum = DiagonalSum<T, Grams>(pair, i0, i1, gram_a, gram_g);
    } else {
      sum.inner += OffDiagonalSum(i1 - i0, j1 - j0, gram_a, gram_g);
    }
  }
  return sum;
}

template <class T, class Grams = DotGrams<T>>
GramPartial GhostSingle(const GhostPair<T>& pair) {
  const double a = SquaredNorm(pair.a, pair.d);
  const double g = SquaredNorm(pair.g, pair.p);
  return {a * g, LengthBound(pair.a, pair.d, a, Grams::kFloor) *
                     LengthBound(pair.g, pair.p, g, Grams::kFloor)};
}

// S = sum_t |a_t| |g_t|, not below it by more than rounding.
template <class T, class Grams = DotGrams<T>>
double Spread(const GhostPair<T>& pair) {
  double spread = 0;
  for (int64_t t = 0; t < pair.positions; ++t) {
    GhostPair<T> single = pair;
    single.a += t * pair.d;
    single.g += t * pair.p;
    spread += GhostSingle<T, Grams>(single).bound;
  }
  return spread;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_GHOST_NORM_INL_H_
