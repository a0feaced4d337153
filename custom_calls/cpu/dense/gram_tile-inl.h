// A tile of the Gram matrix x x^T in double. An entry is a dot product of two
// rows: lanes accumulate in the accumulator type over at most kGramDepth
// features, a tree adds the lanes, the rest is double.
//
// kDotGroup rows that play the columns are copied to where they stay in L1;
// the rows themselves are read where they are when that is possible. Both are
// read along their features, so nothing is transposed.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_TILE_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_TILE_INL_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

static_assert(kGramTile % kDotGroup == 0 && kDotGroup % kDotColumns == 0);
static_assert(kGramTile + kDotRows <= kGramRows);

// Elements from one copied row to the next: an odd number of cache lines, so
// that rows do not fight for the same places of L1.
template <class Acc>
inline constexpr int64_t kGramStride = kGramDepth + 64 / sizeof(Acc);

// Blocks of features are equally deep, up to this: long ones, as every block
// ends in a sum over lanes.
inline constexpr int64_t kDepthStep = 64;
static_assert(kGramDepth % kDepthStep == 0);

// Positions [begin, end).
struct Positions {
  int64_t begin, end;
};

// Features [k0, k1) of x [*, width], filled up with zeros to whole vectors.
template <class Acc>
struct Features {
  int64_t k0, k1;
  int64_t Steps() const { return (k1 - k0 + kLanes<Acc> - 1) / kLanes<Acc>; }
};

// Copies `rows` of x and then zero rows until there are `count`.
template <class T>
void CopyRows(const T* x, int64_t width, Positions rows,
              Features<Accumulator<T>> features, int64_t count,
              Accumulator<T>* copy) {
  using Acc = Accumulator<T>;
  const auto [k0, k1] = features;
  for (int64_t i = 0; i < count; ++i, copy += kGramStride<Acc>) {
    if (rows.begin + i >= rows.end) {
      __builtin_memset(copy, 0, sizeof(Acc) * features.Steps() * kLanes<Acc>);
      continue;
    }
    const T* from = x + (rows.begin + i) * width + k0;
    int64_t k = 0;
    for (; k + kLanes<Acc> <= k1 - k0; k += kLanes<Acc>) {
      Store(Load(from + k), copy + k);
    }
    if (k < k1 - k0) Store(LoadPartial(from + k, k1 - k0 - k), copy + k);
  }
}

// totals[j] = the sum of the lanes of sums[j].
template <class Acc>
BK_INLINE void SumColumns(const Vec<Acc> (&sums)[kDotColumns],
                          Acc (&totals)[kDotColumns]) {
  if constexpr (kLanes<Acc> >= 4 && kDotColumns == 4) {
    Store(SumFour<Acc, BK_VECTOR_BYTES>(sums[0], sums[1], sums[2], sums[3]),
          totals);
  } else {
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) totals[j] = Sum<Acc>(sums[j]);
  }
}

// gram[0:kDotColumns] += the sums of the lanes of each vector.
template <class Acc>
BK_INLINE void AddSums(const Vec<Acc> (&sums)[kDotColumns], bool first,
                       double* gram) {
  Acc totals[kDotColumns];
  SumColumns<Acc>(sums, totals);
#pragma GCC unroll 8
  for (int j = 0; j < kDotColumns; ++j) {
    gram[j] = (first ? 0 : gram[j]) + static_cast<double>(totals[j]);
  }
}

// gram[kDotRows, kDotColumns] += rows columns^T over `steps` vectors, or = if
// `first`.
template <class Acc>
void DotTile(const Acc* rows, int64_t row_stride, const Acc* columns,
             int64_t steps, bool first, double* gram) {
  Vec<Acc> sums[kDotRows][kDotColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) sums[i][j] = Vec<Acc>{};
  }
  for (int64_t k = 0; k < steps * kLanes<Acc>; k += kLanes<Acc>) {
    Vec<Acc> row[kDotRows];
#pragma GCC unroll 8
    for (int i = 0; i < kDotRows; ++i) row[i] = Load(rows + i * row_stride + k);
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) {
      const Vec<Acc> column = Load(columns + j * kGramStride<Acc> + k);
#pragma GCC unroll 8
      for (int i = 0; i < kDotRows; ++i) sums[i][j] += row[i] * column;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i) {
    AddSums<Acc>(sums[i], first, gram + i * kGramTile);
  }
}

// The rows of one block of features: `whole` of them lie at `data`, `stride`
// apart; the last micro-tile, which needs more rows than there are, at `edge`.
template <class Acc>
struct GramRows {
  const Acc* data;
  int64_t stride, whole;
  const Acc* edge;
};

// Leaves rows where they are if they need no conversion and no zeros. Off the
// diagonal they are read so often that a copy pays: rows of a wide array would
// fight for the same places of L2.
template <class T>
GramRows<Accumulator<T>> FindRows(const T* x, int64_t width, Positions rows,
                                  Features<Accumulator<T>> features,
                                  bool on_diagonal, Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  const int64_t count = rows.end - rows.begin;
  if constexpr (sizeof(T) == sizeof(Acc)) {
    if (on_diagonal && (features.k1 - features.k0) % kLanes<Acc> == 0) {
      const int64_t whole = count / kDotRows * kDotRows;
      CopyRows(x, width, {rows.begin + whole, rows.end}, features,
               whole < count ? kDotRows : 0, scratch);
      return {x + rows.begin * width + features.k0, width, whole, scratch};
    }
  }
  const int64_t padded = PadTo(count, kDotRows);
  CopyRows(x, width, rows, features, padded, scratch);
  return {scratch, kGramStride<Acc>, padded, nullptr};
}

// Asks for rows that are copied soon, half a row for each micro-tile.
template <class T>
struct Prefetch {
  const T* x;
  int64_t width;
  Positions rows;
  Features<Accumulator<T>> features;
  int64_t half = 0;  // counts halves

  BK_INLINE void Next() {
    constexpr int64_t kLine = 64 / sizeof(T);
    const int64_t row = rows.begin + half / 2;
    if (row >= rows.end) return;
    const int64_t size = PadTo((features.k1 - features.k0) / 2, kLine);
    const int64_t k0 = features.k0 + half % 2 * size;
    const int64_t k1 = Min(k0 + size, features.k1);
    for (int64_t k = k0; k < k1; k += kLine) {
      __builtin_prefetch(x + row * width + k);
    }
    ++half;
  }
};

// gram[:, columns] of one group of columns, relative to the tile's first one;
// micro-tiles entirely below the diagonal, which is `offset` columns to the
// left, are left out.
template <class T>
void DotGroup(const GramRows<Accumulator<T>>& rows, int64_t height,
              const Accumulator<T>* group, Positions columns, int64_t offset,
              Features<Accumulator<T>> features, Prefetch<T> next,
              double* gram) {
  using Acc = Accumulator<T>;
  const int64_t end = Min(height, columns.end + offset);
  for (int64_t i = 0; i < end; i += kDotRows) {
    const bool whole = i < rows.whole;
    const Acc* from = whole ? rows.data + i * rows.stride : rows.edge;
    const int64_t stride = whole ? rows.stride : kGramStride<Acc>;
    for (int64_t j = columns.begin; j < columns.end; j += kDotColumns) {
      if (j + kDotColumns + offset <= i) continue;
      next.Next();
      DotTile(from, stride, group + (j - columns.begin) * kGramStride<Acc>,
              features.Steps(), features.k0 == 0, gram + i * kGramTile + j);
    }
  }
}

// gram[kGramTile, kGramTile] = x[rows] x[columns]^T for x [*, width].
template <class T>
void GramTile(const T* x, int64_t width, Positions rows, Positions columns,
              Accumulator<T>* scratch, double* gram) {
  using Acc = Accumulator<T>;
  Acc* group = scratch + kGramRows * kGramStride<Acc>;
  const int64_t offset = columns.begin - rows.begin;
  if (width == 0) {
    __builtin_memset(gram, 0, sizeof(double) * kGramTile * kGramTile);
  }
  const int64_t blocks = (width + kGramDepth - 1) / kGramDepth;
  const int64_t depth =
      blocks == 0 ? 1 : PadTo((width + blocks - 1) / blocks, kDepthStep);
  for (int64_t k0 = 0; k0 < width; k0 += depth) {
    const Features<Acc> features = {k0, Min(k0 + depth, width)};
    const auto source =
        FindRows(x, width, rows, features, offset == 0, scratch);
    for (int64_t j0 = columns.begin; j0 < columns.end; j0 += kDotGroup) {
      const int64_t j1 = Min(j0 + kDotGroup, columns.end);
      CopyRows(x, width, {j0, j1}, features, kDotGroup, group);
      DotGroup<T>(source, rows.end - rows.begin, group,
                  {j0 - columns.begin, j1 - columns.begin}, offset, features,
                  {x, width, {j1, Min(j1 + kDotGroup, columns.end)}, features},
                  gram);
    }
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_TILE_INL_H_
