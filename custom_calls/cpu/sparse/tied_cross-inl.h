// Tied cross term body: tiles of the inner products right_t . g_s, each
// weighted with left[t, id_s], which is gathered. Rows are read where they
// are; lanes accumulate in the accumulator type over at most kCrossDepth
// features, the rest in double.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TIED_CROSS_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TIED_CROSS_INL_H_

#include "custom_calls/cpu/isa/wide-inl.h"
#include "custom_calls/cpu/sparse/sparse_kernels.h"

namespace bk::BK_ISA {

// Sums of 3 x 4 inner products fit the registers of every instruction set.
inline constexpr int64_t kCrossRows = 3;
inline constexpr int64_t kCrossColumns = 4;
static_assert(kCrossTile % kCrossRows == 0 && kCrossTile % kCrossColumns == 0);

// Rows [row, row + kRows) of x [*, p]; those from `end` on repeat the last.
template <int64_t kRows, class T>
BK_INLINE void RowPointers(const T* x, int64_t p, int64_t row, int64_t end,
                           const T* (&pointers)[kRows]) {
  for (int64_t i = 0; i < kRows; ++i) {
    pointers[i] = x + Min(row + i, end - 1) * p;
  }
}

// products[kCrossRows, kCrossColumns] += inner products over [k0, k1).
template <class T>
void CrossDots(const T* const (&rows)[kCrossRows],
               const T* const (&columns)[kCrossColumns], int64_t k0, int64_t k1,
               double* products) {
  using Acc = Accumulator<T>;
  Vec<Acc> sums[kCrossRows][kCrossColumns] = {};
  int64_t k = k0;
  for (; k + kLanes<Acc> <= k1; k += kLanes<Acc>) {
    Vec<Acc> row[kCrossRows];
#pragma GCC unroll 8
    for (int i = 0; i < kCrossRows; ++i) row[i] = Load(rows[i] + k);
#pragma GCC unroll 8
    for (int j = 0; j < kCrossColumns; ++j) {
      const Vec<Acc> column = Load(columns[j] + k);
#pragma GCC unroll 8
      for (int i = 0; i < kCrossRows; ++i) sums[i][j] += row[i] * column;
    }
  }
  for (int i = 0; i < kCrossRows; ++i) {
    for (int j = 0; j < kCrossColumns; ++j) {
      if (k < k1) {
        sums[i][j] += LoadPartial(rows[i] + k, k1 - k) *
                      LoadPartial(columns[j] + k, k1 - k);
      }
      products[i * kCrossTile + j] += static_cast<double>(Sum<Acc>(sums[i][j]));
    }
  }
}

// products[t - t0, s - s0] = right_t . g_s.
template <class T>
void CrossTile(const CrossTask<T>& task, int64_t t0, int64_t t1, int64_t s0,
               int64_t s1, double* products) {
  __builtin_memset(products, 0, sizeof(double) * kCrossTile * kCrossTile);
  for (int64_t k0 = 0; k0 < task.p; k0 += kCrossDepth) {
    const int64_t k1 = Min(k0 + kCrossDepth, task.p);
    for (int64_t t = t0; t < t1; t += kCrossRows) {
      const T* rows[kCrossRows];
      RowPointers(task.right, task.p, t, t1, rows);
      for (int64_t s = s0; s < s1; s += kCrossColumns) {
        const T* columns[kCrossColumns];
        RowPointers(task.g, task.p, s, s1, columns);
        CrossDots(rows, columns, k0, k1,
                  products + (t - t0) * kCrossTile + (s - s0));
      }
    }
  }
}

template <class T>
BK_INLINE double ToWide(const T* x) {
  return static_cast<double>(LoadPartial(x, 1)[0]);
}

// Adds what the tile contributes; `t_bound` and `s_bound` are bounds of the
// lengths of its rows.
template <class T>
void AddTile(const CrossTask<T>& task, int64_t t0, int64_t t1, int64_t s0,
             int64_t s1, const double* products, const double* t_bound,
             const double* s_bound, CrossPartial* sum) {
  for (int64_t t = t0; t < t1; ++t) {
    const T* left = task.left + t * task.rows;
    double inner = 0;
    double bound = 0;
    for (int64_t s = s0; s < s1; ++s) {
      const int64_t id = task.ids[s];
      if (id < 0 || id >= task.rows) continue;
      const double weight = ToWide(left + id);
      inner += weight * products[(t - t0) * kCrossTile + (s - s0)];
      bound += __builtin_fabs(weight) * s_bound[s - s0];
    }
    sum->inner += inner;
    sum->bound += bound * t_bound[t - t0];
  }
}

// Entries of left are far apart: asked for before the inner products of the
// tile are made, they are there when these are done.
template <class T>
void PrefetchLeft(const CrossTask<T>& task, int64_t t0, int64_t t1, int64_t s0,
                  int64_t s1) {
  for (int64_t t = t0; t < t1; ++t) {
    const T* left = task.left + t * task.rows;
    for (int64_t s = s0; s < s1; ++s) {
      const int64_t id = task.ids[s];
      if (id >= 0 && id < task.rows) __builtin_prefetch(left + id);
    }
  }
}

template <class T>
CrossPartial CrossTileRow(const CrossTask<T>& task, int64_t first_position) {
  double products[kCrossTile * kCrossTile];
  double t_bound[kCrossTile];
  double s_bound[kCrossTile];
  const int64_t t0 = first_position;
  const int64_t t1 = Min(t0 + kCrossTile, task.positions);
  for (int64_t t = t0; t < t1; ++t) {
    t_bound[t - t0] = LengthBound(task.right + t * task.p, task.p);
  }
  CrossPartial sum = {0, 0};
  for (int64_t s0 = 0; s0 < task.tokens; s0 += kCrossTile) {
    const int64_t s1 = Min(s0 + kCrossTile, task.tokens);
    PrefetchLeft(task, t0, t1, s0, s1);
    for (int64_t s = s0; s < s1; ++s) {
      s_bound[s - s0] = LengthBound(task.g + s * task.p, task.p);
    }
    CrossTile(task, t0, t1, s0, s1, products);
    AddTile(task, t0, t1, s0, s1, products, t_bound, s_bound, &sum);
  }
  return sum;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TIED_CROSS_INL_H_
