// Products over the rows of live examples, block by block of the reduction:
// lhs is packed, times the factors of the examples; then each panel of rhs in
// turn is packed by the first micro-tile that needs it and meets all panels of
// lhs. Panels of lhs come from L2, so does the one of rhs if L1 is too small.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_ROW_PRODUCTS_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_ROW_PRODUCTS_INL_H_

#include "custom_calls/cpu/dense/outer_product-inl.h"
#include "custom_calls/cpu/isa/kernels.h"

namespace bk::BK_ISA {

// Micro-tiles before the end of a panel of rhs from which on the next one is
// asked for: enough to ask for all of it. Sooner, it would leave L2 again: the
// rows of a wide array share few places there.
inline constexpr int64_t kAskTiles = 10;

// Rows [k0, k1) of the reduction.
struct RowRange {
  int64_t k0, k1;
  int64_t Size() const { return k1 - k0; }
};

// One block of the reduction of a task: packed panels, and where they came
// from.
template <class T>
struct RowBlock {
  const GemmTask<T>& task;
  RowRange rows, next;
  Accumulator<T>* lhs;
  Accumulator<T>* rhs;

  Rows<T> Lhs(int64_t k) const { return {task, task.lhs, task.m, k}; }
  Rows<T> Rhs(int64_t k) const { return {task, task.rhs, task.n, k}; }
};

// Lines of columns [c0, c1) of `rows`, as if there were no gaps between live
// examples: a wrong guess costs time only.
template <class T>
Lines ColumnLines(const Rows<T>& first, int64_t width, const RowRange& rows,
                  int64_t c0, int64_t c1) {
  return {first.Row() + c0, width, rows.Size(), c1 - c0};
}

// What follows the panel of rhs at column n0.
template <class T>
Lines NextPanel(const RowBlock<T>& block, int64_t n0) {
  constexpr int64_t kColumns = kOuterColumns<Accumulator<T>>;
  const auto& [task, rows, next, lhs, rhs] = block;
  const int64_t n1 = n0 + kColumns;
  if (n1 < task.tile.n1) {
    return ColumnLines(block.Rhs(rows.k0), task.n, rows, n1,
                       Min(n1 + kColumns, task.tile.n1));
  }
  if (next.Size() <= 0) return {};
  return ColumnLines(block.Rhs(next.k0), task.n, next, task.tile.n0,
                     Min(task.tile.n0 + kColumns, task.tile.n1));
}

// All micro-tiles of the panel of rhs at column n0; `to` says where its columns
// go. Returns the sum of squares of the result if kSquare.
template <bool kSquare, class T>
double MultiplyPanel(const RowBlock<T>& block, int64_t n0,
                     const TileOutput<Accumulator<T>>& to, Soon& soon) {
  using Acc = Accumulator<T>;
  const int64_t depth = block.rows.Size();
  const Rows<T> rows = block.Rhs(block.rows.k0);
  const bool whole = to.columns == kOuterColumns<Acc>;
  if (!whole) {
    PackPanels<kOuterColumns<Acc>, false>(rows, block.task.n, n0,
                                          n0 + to.columns, depth, block.rhs);
  }
  const Acc* lhs = block.lhs;
  double squares = 0;
  for (int64_t left = to.rows; left > 0; left -= kOuterRows) {
    const int64_t i = to.rows - left;
    if (left <= kAskTiles * kOuterRows && left > (kAskTiles - 1) * kOuterRows) {
      soon.rhs = NextPanel(block, n0);
    }
    TileOutput<Acc> tile = to;
    if (to.out != nullptr) tile.out = to.out + i * to.stride;
    tile.rows = Min(kOuterRows, left);
    squares +=
        i == 0 && whole
            ? PackingTile<kSquare, T>(lhs, rows, n0, depth, block.rhs, tile)
            : OuterTile<kSquare, Acc>(lhs, block.rhs, depth, tile, soon);
    lhs += PanelStride<Acc>(kOuterRows, depth);
  }
  return squares;
}

template <bool kSquare, class T>
double MultiplyBlock(const RowBlock<T>& block,
                     const TileOutput<Accumulator<T>>& to) {
  using Acc = Accumulator<T>;
  const GemmTask<T>& task = block.task;
  const auto [m0, m1, n0, n1] = task.tile;
  PackPanels<kOuterRows, true>(block.Lhs(block.rows.k0), task.m, m0, m1,
                               block.rows.Size(), block.lhs);
  Soon soon;
  double squares = 0;
  for (int64_t n = n0; n < n1; n += kOuterColumns<Acc>) {
    TileOutput<Acc> panel = to;
    if (to.out != nullptr) panel.out = to.out + n - n0;
    panel.columns = Min(kOuterColumns<Acc>, n1 - n);
    if (n + kOuterColumns<Acc> >= n1 && block.next.Size() > 0) {
      soon.lhs =
          ColumnLines(block.Lhs(block.next.k0), task.m, block.next, m0, m1);
    }
    squares += MultiplyPanel<kSquare>(block, n, panel, soon);
  }
  return squares;
}

// The task's tile at `to`, whose update is what the first block does to it.
// Returns the sum of squares of the result if kSquare.
template <bool kSquare, class T>
double MultiplyRows(const GemmTask<T>& task, TileOutput<Accumulator<T>> to,
                    Accumulator<T>* scratch) {
  const int64_t depth = task.live_count * task.positions;
  const int64_t blocks = (depth + kGemmDepth - 1) / kGemmDepth;
  const int64_t step = (depth + blocks - 1) / blocks;
  double squares = 0;
  for (int64_t k0 = 0; k0 < depth; k0 += step) {
    const int64_t k1 = Min(k0 + step, depth);
    const RowBlock<T> block = {task,
                               {k0, k1},
                               {k1, Min(k1 + step, depth)},
                               scratch,
                               scratch + kGemmLhsScratch};
    squares = kSquare && k1 == depth ? MultiplyBlock<true>(block, to)
                                     : MultiplyBlock<false>(block, to);
    to.update = Update::kAdd;
  }
  return squares;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_ROW_PRODUCTS_INL_H_
