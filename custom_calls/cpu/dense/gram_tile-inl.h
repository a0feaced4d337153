// A tile of the Gram matrix x x^T in double. An entry is a dot product of two
// rows: lanes accumulate in the accumulator type over at most kGramDepth
// features, a tree adds the lanes, the rest is double.
//
// kDotGroup rows that play the columns are copied to where they stay in L1, by
// the first micro-tile that reads them; the rows themselves are read where they
// are when that is possible. Both are read along their features, so nothing is
// transposed.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_TILE_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_TILE_INL_H_

#include "custom_calls/cpu/dense/soon-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/lane_sums-inl.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

static_assert(kGramTile % kDotGroup == 0 && kDotGroup % kDotColumns == 0);
static_assert(kGramTile + kDotRows <= kGramRows);

// Elements from one copied row to the next: an odd number of cache lines, so
// that rows do not fight for the same places of L1.
template <class Acc>
inline constexpr int64_t kGramStride = kGramDepth + 64 / sizeof(Acc);

// Depths of blocks are multiples of this. Long ones, as every block ends in a
// sum over lanes.
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

// gram[kDotRows, kDotColumns] += the sums of the lanes of each vector, or = if
// `first`.
template <class Acc>
BK_INLINE void AddSums(const Vec<Acc> (&sums)[kDotRows][kDotColumns],
                       bool first, double* gram) {
  Acc totals[kDotRows * kDotColumns];
  SumTile<Acc>(sums, totals);
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i, gram += kGramTile) {
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) {
      const auto total = static_cast<double>(totals[i * kDotColumns + j]);
      gram[j] = first ? total : gram[j] + total;
    }
  }
}

// The rows that play the columns of a micro-tile: copied, or still to be copied
// from where they are.
template <class T>
struct DotColumns {
  Accumulator<T>* copy;
  const T* from;
  int64_t stride;
};

// sums += rows columns^T for one vector of features; copies them if kCopy.
template <bool kCopy, class T>
BK_INLINE void DotStep(const Accumulator<T>* rows, int64_t row_stride,
                       const DotColumns<T>& columns, int64_t k,
                       Vec<Accumulator<T>> (&sums)[kDotRows][kDotColumns]) {
  using Acc = Accumulator<T>;
  Vec<Acc> row[kDotRows];
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i) row[i] = Load(rows + i * row_stride + k);
#pragma GCC unroll 8
  for (int j = 0; j < kDotColumns; ++j) {
    Acc* copy = columns.copy + j * kGramStride<Acc> + k;
    const Vec<Acc> column =
        kCopy ? Load(columns.from + j * columns.stride + k) : Load(copy);
    if (kCopy) Store(column, copy);
#pragma GCC unroll 8
    for (int i = 0; i < kDotRows; ++i) sums[i][j] += row[i] * column;
  }
}

inline constexpr int64_t kAskSteps = 8;

// gram[kDotRows, kDotColumns] += rows columns^T over `steps` vectors, or = if
// `first`. Asks for memory with every kAskSteps vectors.
template <bool kCopy, class T>
void DotTile(const Accumulator<T>* rows, int64_t row_stride,
             const DotColumns<T>& columns, int64_t steps, bool first,
             Lines& soon, double* gram) {
  using Acc = Accumulator<T>;
  Vec<Acc> sums[kDotRows][kDotColumns];
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) sums[i][j] = Vec<Acc>{};
  }
  for (int64_t k = 0; k < steps * kLanes<Acc>;) {
    soon.Ask<Into::kL2, 4>();
    const int64_t end = Min(k + kAskSteps * kLanes<Acc>, steps * kLanes<Acc>);
    for (; k < end; k += kLanes<Acc>) {
      DotStep<kCopy>(rows, row_stride, columns, k, sums);
    }
  }
  AddSums<Acc>(sums, first, gram);
}

// The rows of one block of features: `whole` of them lie at `data`, `stride`
// apart; the last micro-tile, which needs more rows than there are, at `edge`.
template <class Acc>
struct GramRows {
  const Acc* data;
  int64_t stride, whole;
  const Acc* edge;
};

// Whether rows are copied off the diagonal, where they are read most often.
// Rows of a wide array fight for the same places of an L2 of 512 KB; what comes
// with AVX-512 is larger, and a copy costs more than it saves.
inline constexpr bool kCopyRows = BK_VECTOR_BYTES < 64;

// Leaves rows where they are if they need no conversion and no zeros.
template <class T>
GramRows<Accumulator<T>> FindRows(const T* x, int64_t width, Positions rows,
                                  Features<Accumulator<T>> features,
                                  bool on_diagonal, Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  const int64_t count = rows.end - rows.begin;
  if constexpr (sizeof(T) == sizeof(Acc)) {
    if ((on_diagonal || !kCopyRows) &&
        (features.k1 - features.k0) % kLanes<Acc> == 0) {
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

// One block of features of a tile of the Gram matrix of x [*, width].
template <class T>
struct FeatureBlock {
  const T* x;
  int64_t width;
  Features<Accumulator<T>> features;
  Positions rows, columns;
  GramRows<Accumulator<T>> source;

  const T* From(int64_t column) const {
    return x + (columns.begin + column) * width + features.k0;
  }
  // Whether kDotColumns columns can be read in whole vectors where they are.
  bool IsWhole(int64_t column) const {
    const int64_t count = columns.end - columns.begin - column;
    const int64_t depth = features.k1 - features.k0;
    return count >= kDotColumns && depth % kLanes<Accumulator<T>> == 0;
  }
};

// gram[:, j0:j1] for one group of columns, counted from the tile's first one;
// micro-tiles entirely below the diagonal, which is `offset` columns to the
// left, are left out.
template <class T>
void DotGroup(const FeatureBlock<T>& block, int64_t j0, int64_t j1,
              Accumulator<T>* group, Lines& soon, double* gram) {
  using Acc = Accumulator<T>;
  const auto& [x, width, features, rows, columns, source] = block;
  const int64_t offset = columns.begin - rows.begin;
  const int64_t end = Min(rows.end - rows.begin, j1 + offset);
  for (int64_t i = 0; i < end; i += kDotRows) {
    const bool in_place = i < source.whole;
    const Acc* from = in_place ? source.data + i * source.stride : source.edge;
    const int64_t stride = in_place ? source.stride : kGramStride<Acc>;
    for (int64_t j = j0; j < j1; j += kDotColumns) {
      if (j + kDotColumns + offset <= i) continue;
      const DotColumns<T> copied = {group + (j - j0) * kGramStride<Acc>,
                                    block.From(j), width};
      const bool copies = i == 0 && block.IsWhole(j);
      (copies ? DotTile<true, T> : DotTile<false, T>)(from, stride, copied,
                                                      features.Steps(),
                                                      features.k0 == 0, soon,
                                                      gram + i * kGramTile + j);
    }
  }
}

// gram[kGramTile, kGramTile] += x[rows] x[columns]^T over one block of
// features, or = if it is the first one.
template <class T>
void MultiplyFeatures(const FeatureBlock<T>& block, Accumulator<T>* group,
                      double* gram) {
  using Acc = Accumulator<T>;
  const auto& [x, width, features, rows, columns, source] = block;
  const int64_t count = columns.end - columns.begin;
  Lines soon;  // the columns behind the first group
  if (count > kDotGroup) {
    soon = Lines(block.From(kDotGroup), width, count - kDotGroup,
                 features.k1 - features.k0);
  }
  for (int64_t j0 = 0; j0 < count; j0 += kDotGroup) {
    const int64_t j1 = Min(j0 + kDotGroup, count);
    for (int64_t j = j0; j < j1; j += kDotColumns) {
      if (block.IsWhole(j)) continue;
      CopyRows(x, width, {columns.begin + j, columns.end}, features,
               kDotColumns, group + (j - j0) * kGramStride<Acc>);
    }
    DotGroup<T>(block, j0, j1, group, soon, gram);
  }
}

// Blocks of features of x [*, width] are equally deep, at most kGramDepth.
BK_INLINE int64_t BlockDepth(int64_t width) {
  const int64_t blocks = (width + kGramDepth - 1) / kGramDepth;
  return blocks == 0 ? 1 : PadTo((width + blocks - 1) / blocks, kDepthStep);
}

// gram[kGramTile, kGramTile] = x[rows] x[columns]^T for x [*, width].
template <class T>
void GramTile(const T* x, int64_t width, Positions rows, Positions columns,
              Accumulator<T>* scratch, double* gram) {
  using Acc = Accumulator<T>;
  Acc* group = scratch + kGramRows * kGramStride<Acc>;
  if (width == 0) {
    __builtin_memset(gram, 0, sizeof(double) * kGramTile * kGramTile);
  }
  const int64_t depth = BlockDepth(width);
  const bool on_diagonal = rows.begin == columns.begin;
  for (int64_t k0 = 0; k0 < width; k0 += depth) {
    const Features<Acc> features = {k0, Min(k0 + depth, width)};
    const auto source =
        FindRows(x, width, rows, features, on_diagonal, scratch);
    MultiplyFeatures<T>({x, width, features, rows, columns, source}, group,
                        gram);
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_TILE_INL_H_
