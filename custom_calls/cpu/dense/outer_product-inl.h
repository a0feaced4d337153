// lhs^T rhs in register tiles over packed panels: the core of every product
// whose reduction runs over rows (clipped gemm, direct norm, per-sample
// gradient).
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_OUTER_PRODUCT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_OUTER_PRODUCT_INL_H_

#include "custom_calls/cpu/dense/panels-inl.h"
#include "custom_calls/cpu/dense/soon-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

static_assert(kGemmRows % kOuterRows == 0);

// What a block of the reduction does to the result: the first one overwrites.
enum class Update { kOverwrite, kAdd };

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

// tile += lhs^T columns for one row of the reduction.
template <class Acc>
BK_INLINE void OuterStep(const Acc* lhs,
                         const Vec<Acc> (&column)[kOuterVectors],
                         RegisterTile<Acc>& tile) {
#pragma GCC unroll 8
  for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) tile[i][v] += lhs[i] * column[v];
  }
}

template <class Acc>
BK_INLINE void PackedStep(const Acc* lhs, const Acc* rhs,
                          RegisterTile<Acc>& tile) {
  Vec<Acc> column[kOuterVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kOuterVectors; ++v) {
    column[v] = Load(rhs + v * kLanes<Acc>);
  }
  OuterStep<Acc>(lhs, column, tile);
}

// What is read after the panels at hand: the columns of the next panel of rhs,
// and those of lhs in the next block of the reduction.
struct Soon {
  Lines rhs, lhs;
};

// Rows of the reduction between two requests, and the rows before the end from
// which on the result is asked for: sooner, it would leave L1 again.
inline constexpr int64_t kAskRows = 8;
inline constexpr int64_t kOutputRows = 128;

// Cache lines of a row of a micro-tile.
template <class Acc>
inline constexpr int kTileLines = kOuterColumns<Acc> * sizeof(Acc) / 64;

// tile = lhs^T rhs over `depth` packed rows.
template <class Acc>
BK_INLINE void OuterProducts(const Acc* lhs, const Acc* rhs, int64_t depth,
                             Lines out, Soon& soon, RegisterTile<Acc>& tile) {
  for (int64_t k = 0; k < depth;) {
    soon.rhs.Ask<Into::kL2, kTileLines<Acc>>();
    soon.lhs.Ask<Into::kL2, 4>();
    if (k + kOutputRows > depth) out.Ask<Into::kL1, kTileLines<Acc>>();
    for (const int64_t end = Min(k + kAskRows, depth); k < end; ++k) {
      PackedStep<Acc>(lhs, rhs, tile);
      lhs += kOuterRows;
      rhs += kOuterColumns<Acc>;
    }
  }
}

// The same over rows of rhs where they are, from `column` on, which are packed
// on the way: multiplications hide what packing costs.
template <class T>
BK_INLINE void PackProducts(const Accumulator<T>* lhs, Rows<T> rows,
                            int64_t column0, int64_t depth,
                            Accumulator<T>* packed,
                            RegisterTile<Accumulator<T>>& tile) {
  using Acc = Accumulator<T>;
  for (int64_t k = 0; k < depth; ++k, rows.Next()) {
    const T* from = rows.Row() + column0;
    Vec<Acc> column[kOuterVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) {
      column[v] = Load(from + v * kLanes<Acc>);
      Store(column[v], packed + v * kLanes<Acc>);
    }
    OuterStep<Acc>(lhs, column, tile);
    lhs += kOuterRows;
    packed += kOuterColumns<Acc>;
  }
}

template <class Acc>
BK_INLINE void ClearTile(RegisterTile<Acc>& tile) {
#pragma GCC unroll 8
  for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) tile[i][v] = Vec<Acc>{};
  }
}

// Stores a micro-tile where it goes. Sums stay in registers until here, hence
// every loop over them is unrolled and edges are stored from a copy. Returns
// the sum of squares of the result if kSquare.
template <bool kSquare, class Acc>
BK_INLINE double FinishTile(RegisterTile<Acc>& tile,
                            const TileOutput<Acc>& to) {
  const bool store = to.out != nullptr;
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

template <bool kSquare, class Acc>
double OuterTile(const Acc* lhs, const Acc* rhs, int64_t depth,
                 const TileOutput<Acc>& to, Soon& soon) {
  const Lines out = to.out == nullptr
                        ? Lines()
                        : Lines(to.out, to.stride, to.rows, to.columns);
  RegisterTile<Acc> tile;
  ClearTile<Acc>(tile);
  OuterProducts<Acc>(lhs, rhs, depth, out, soon, tile);
  return FinishTile<kSquare, Acc>(tile, to);
}

template <bool kSquare, class T>
double PackingTile(const Accumulator<T>* lhs, const Rows<T>& rows,
                   int64_t column0, int64_t depth, Accumulator<T>* packed,
                   const TileOutput<Accumulator<T>>& to) {
  RegisterTile<Accumulator<T>> tile;
  ClearTile<Accumulator<T>>(tile);
  PackProducts<T>(lhs, rows, column0, depth, packed, tile);
  return FinishTile<kSquare, Accumulator<T>>(tile, to);
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_OUTER_PRODUCT_INL_H_
