// lhs^T rhs in register tiles over packed panels: the core of every product
// whose reduction runs over rows (clipped gemm, direct norm, per-sample
// gradient).
//
// The rows of both operands are the reduction, so they are in the order that a
// micro-tile wants. Packing lines up columns: kOuterRows columns of lhs or
// kOuterColumns columns of rhs make a panel, row after row. It also converts to
// the accumulator type and may scale.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_OUTER_PRODUCT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_OUTER_PRODUCT_INL_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

template <class Acc>
inline constexpr int64_t kOuterColumns = kOuterVectors* kLanes<Acc>;

static_assert(kGemmRows % kOuterRows == 0);
static_assert(kGemmStrip % kOuterColumns<float> == 0);
static_assert(kGemmStrip % kOuterColumns<double> == 0);

// What a block of the reduction does to the result: the first one overwrites.
enum class Update { kOverwrite, kAdd };

// Elements from one panel of `group` columns to the next. An odd number of
// cache lines: a row is written to all panels in turn, and lines a multiple of
// 4 KB apart would fight for the same few places of L1.
template <class Acc>
BK_INLINE int64_t PanelStride(int64_t group, int64_t depth) {
  constexpr int64_t kLine = 64 / sizeof(Acc);
  return (PadTo(group * depth, kLine) / kLine | 1) * kLine;
}

// to[0:kGroup] = scale * from[0:kGroup], of which `count` exist and the others
// are zeros. Whole vectors are written, over the end of `to` if kGroup is not
// a multiple of a vector, unless `exact`.
template <int64_t kGroup, class T>
BK_INLINE void PackGroup(const T* from, int64_t count, Accumulator<T> scale,
                         bool exact, Accumulator<T>* to) {
  using Acc = Accumulator<T>;
  constexpr int64_t kVectors = (kGroup + kLanes<Acc> - 1) / kLanes<Acc>;
  Vec<Acc> row[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = count - v * kLanes<Acc>;
    row[v] = left >= kLanes<Acc> ? Load(from + v * kLanes<Acc>) * scale
             : left > 0 ? LoadPartial(from + v * kLanes<Acc>, left) * scale
                        : Vec<Acc>{};
  }
  if (exact && kVectors * kLanes<Acc> != kGroup) {
    __builtin_memcpy(to, row, kGroup * sizeof(Acc));
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) Store(row[v], to + v * kLanes<Acc>);
}

// Asks for the row that is packed kPrefetchRows later: rows of a wide array lie
// too far apart for the hardware to guess.
inline constexpr int64_t kPrefetchRows = 8;
template <class T>
BK_INLINE void PrefetchRow(const T* from, int64_t width, int64_t columns) {
  constexpr int64_t kLine = 64 / sizeof(T);
  // As a number, since there may be no such row.
  const auto row = reinterpret_cast<uintptr_t>(from) +
                   static_cast<uintptr_t>(kPrefetchRows * width) * sizeof(T);
  for (int64_t k = 0; k < columns; k += kLine) {
    const uintptr_t address = row + static_cast<uintptr_t>(k) * sizeof(T);
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    __builtin_prefetch(reinterpret_cast<const void*>(address));
  }
}

// Row k of all panels of `columns` columns. A vector may read columns beyond
// the last one as long as they exist: `available` of them follow `from`. What
// it writes over the end of a row is overwritten by the next row of the panel;
// the last row is written exactly.
template <int64_t kGroup, class T>
BK_INLINE void PackRow(const T* from, int64_t columns, int64_t available,
                       Accumulator<T> scale, int64_t k, int64_t depth,
                       Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  constexpr int64_t kWhole = PadTo(kGroup, kLanes<Acc>);
  const int64_t stride = PanelStride<Acc>(kGroup, depth);
  Acc* to = packed + k * kGroup;
  int64_t column = 0;
  if (k + 1 < depth) {
    const int64_t safe = Min(columns - kGroup, available - kWhole);
    for (; column <= safe; column += kGroup, to += stride) {
      PackGroup<kGroup>(from + column, kWhole, scale, false, to);
    }
  }
  for (; column < columns; column += kGroup, to += stride) {
    PackGroup<kGroup>(from + column, Min(columns - column, kGroup), scale, true,
                      to);
  }
}

// tile[kOuterRows][kOuterVectors] = lhs^T rhs over `depth` packed rows.
template <class Acc>
BK_INLINE void OuterProducts(const Acc* lhs, const Acc* rhs, int64_t depth,
                             Vec<Acc> (&tile)[kOuterRows][kOuterVectors]) {
#pragma GCC unroll 2
  for (int64_t k = 0; k < depth; ++k) {
    Vec<Acc> column[kOuterVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) {
      column[v] = Load(rhs + v * kLanes<Acc>);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kOuterVectors; ++v) {
        tile[i][v] += lhs[i] * column[v];
      }
    }
    lhs += kOuterRows;
    rhs += kOuterColumns<Acc>;
  }
}

// Where a micro-tile goes: out[0:rows, 0:columns], rows `stride` apart, or
// nowhere if `out` is null.
template <class Acc>
struct TileOutput {
  Acc* out;
  int64_t stride, rows, columns;
  Update update;
};

template <class Acc>
using RegisterTile = Vec<Acc>[kOuterRows][kOuterVectors];

// Stores a whole micro-tile; afterwards it holds what was stored.
template <Update kUpdate, class Acc>
BK_INLINE void StoreTile(RegisterTile<Acc>& tile, int64_t stride, Acc* out) {
#pragma GCC unroll 8
  for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) {
      Acc* entry = out + i * stride + v * kLanes<Acc>;
      if (kUpdate == Update::kAdd) tile[i][v] += Load(entry);
      Store(tile[i][v], entry);
    }
  }
}

// Stores a micro-tile that sticks out of the result; returns the sum of squares
// of what it stored.
template <class Acc>
double StoreEdge(const Acc* tile, const TileOutput<Acc>& to) {
  double squares = 0;
  for (int64_t i = 0; i < to.rows; ++i) {
    for (int64_t j = 0; j < to.columns; ++j) {
      const Acc sum = tile[i * kOuterColumns<Acc> + j];
      Acc& entry = to.out[i * to.stride + j];
      entry = to.update == Update::kAdd ? entry + sum : sum;
      squares += static_cast<double>(entry) * static_cast<double>(entry);
    }
  }
  return squares;
}

// Sum of squares of a micro-tile; panels are filled up with zeros, so what
// sticks out adds nothing.
template <class Acc>
BK_INLINE double SquareTile(const RegisterTile<Acc>& tile) {
  Vec<Acc> sums[kOuterVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kOuterVectors; ++v) {
    sums[v] = Vec<Acc>{};
#pragma GCC unroll 8
    for (int i = 0; i < kOuterRows; ++i) sums[v] += tile[i][v] * tile[i][v];
  }
#pragma GCC unroll 8
  for (int v = 1; v < kOuterVectors; ++v) sums[0] += sums[v];
  return static_cast<double>(Sum<Acc>(sums[0]));
}

// The micro-tile: sums stay in registers, hence every loop over them is
// unrolled and edges are stored from a copy. Returns the sum of squares of the
// result if kSquare.
template <bool kSquare, class Acc>
double OuterTile(const Acc* lhs, const Acc* rhs, int64_t depth,
                 const TileOutput<Acc>& to) {
  const bool store = to.out != nullptr;
  if (store) {
    for (int64_t i = 0; i < to.rows; ++i) {
      __builtin_prefetch(to.out + i * to.stride, 1);
    }
  }
  RegisterTile<Acc> tile;
#pragma GCC unroll 8
  for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) tile[i][v] = Vec<Acc>{};
  }
  OuterProducts(lhs, rhs, depth, tile);
  if (store && (to.rows < kOuterRows || to.columns < kOuterColumns<Acc>)) {
    Acc edge[kOuterRows * kOuterColumns<Acc>];
    StoreTile<Update::kOverwrite>(tile, kOuterColumns<Acc>, edge);
    return StoreEdge(edge, to);
  }
  if (store && to.update == Update::kAdd) {
    StoreTile<Update::kAdd>(tile, to.stride, to.out);
  } else if (store) {
    StoreTile<Update::kOverwrite>(tile, to.stride, to.out);
  }
  return kSquare ? SquareTile<Acc>(tile) : 0;
}

// All micro-tiles of packed panels: lhs panels come from L2, the rhs panel
// stays in L1. Returns the sum of squares of the result if kSquare.
template <bool kSquare, class Acc>
double MultiplyPanels(const Acc* lhs, const Acc* rhs, int64_t depth,
                      const TileOutput<Acc>& to) {
  const int64_t lhs_stride = PanelStride<Acc>(kOuterRows, depth);
  const int64_t rhs_stride = PanelStride<Acc>(kOuterColumns<Acc>, depth);
  double squares = 0;
  for (int64_t j = 0; j < to.columns; j += kOuterColumns<Acc>) {
    for (int64_t i = 0; i < to.rows; i += kOuterRows) {
      TileOutput<Acc> tile = to;
      if (to.out != nullptr) tile.out = to.out + i * to.stride + j;
      tile.rows = Min(kOuterRows, to.rows - i);
      tile.columns = Min(kOuterColumns<Acc>, to.columns - j);
      squares += OuterTile<kSquare>(lhs + i / kOuterRows * lhs_stride, rhs,
                                    depth, tile);
    }
    rhs += rhs_stride;
  }
  return squares;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_OUTER_PRODUCT_INL_H_
