// Clipped gemm bodies: an outer-product gemm over packed panels. The rows of
// both operands are the reduction (example and position), so they are already
// in the order that the micro-tile wants; packing converts to the accumulator
// type, multiplies lhs by the factor of its example, and lines up columns.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CLIPPED_GEMM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CLIPPED_GEMM_INL_H_

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/vector-inl.h"

namespace bk::BK_ISA {

template <class Acc>
inline constexpr int64_t kOuterColumns = kOuterVectors* kLanes<Acc>;

static_assert(kGemmRows % kOuterRows == 0);
static_assert(kGemmColumns % kOuterColumns<float> == 0);
static_assert(kGemmColumns % kOuterColumns<double> == 0);

// What a block of the reduction does to the result: the first one overwrites.
enum class Update { kOverwrite, kAdd };

// row[0:count] = scale * from[0:count], then zeros up to `padded`.
template <class T>
BK_INLINE void ConvertRow(const T* from, int64_t count, int64_t padded,
                          Accumulator<T> scale, Accumulator<T>* row) {
  using Acc = Accumulator<T>;
  int64_t k = 0;
  for (; k + kLanes<Acc> <= count; k += kLanes<Acc>) {
    Store(Load(from + k) * scale, row + k);
  }
  if (k < count) {
    Store(LoadPartial(from + k, count - k) * scale, row + k);
    k += kLanes<Acc>;
  }
  for (; k < padded; ++k) row[k] = 0;
}

// One row of a panel: groups of kGroup columns, `depth` rows apart.
template <int64_t kGroup, class T>
BK_INLINE void PackRow(const T* from, int64_t columns, Accumulator<T> scale,
                       int64_t depth, Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  static_assert(kGemmRows <= kGemmColumns);
  Acc row[kGemmColumns + kLanes<Acc>];
  ConvertRow(from, columns, RoundUp(columns, kGroup), scale, row);
  for (int64_t column = 0; column < columns; column += kGroup) {
    __builtin_memcpy(packed, row + column, kGroup * sizeof(Acc));
    packed += kGroup * depth;
  }
}

// Packs rows [k0, k1) of the reduction: row k is position k % T of live
// example k / T.
template <class T>
void PackPanels(const GemmTask<T>& task, int64_t k0, int64_t k1,
                Accumulator<T>* lhs, Accumulator<T>* rhs) {
  using Acc = Accumulator<T>;
  int64_t live = k0 / task.positions;
  int64_t position = k0 % task.positions;
  for (int64_t k = k0; k < k1; ++k) {
    const LiveExample<Acc>& example = task.live[live];
    const int64_t row =
        (example.index * task.weights + task.weight) * task.positions +
        position;
    PackRow<kOuterRows>(task.lhs + row * task.m + task.m0, task.m1 - task.m0,
                        example.factor, k1 - k0, lhs + (k - k0) * kOuterRows);
    PackRow<kOuterColumns<Acc>>(task.rhs + row * task.n + task.n0,
                                task.n1 - task.n0, Acc{1}, k1 - k0,
                                rhs + (k - k0) * kOuterColumns<Acc>);
    if (++position == task.positions) {
      position = 0;
      ++live;
    }
  }
}

// tile[kOuterRows][kOuterVectors] = lhs^T rhs over `depth` packed rows.
template <class Acc>
BK_INLINE void OuterProducts(const Acc* lhs, const Acc* rhs, int64_t depth,
                             Vec<Acc> (&tile)[kOuterRows][kOuterVectors]) {
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

// out[0:rows, 0:columns] of a micro-tile that sticks out of the result.
template <class Acc>
void StoreEdge(const Acc* tile, Update update, int64_t rows, int64_t columns,
               int64_t n, Acc* out) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const Acc sum = tile[i * kOuterColumns<Acc> + j];
      out[i * n + j] = update == Update::kAdd ? out[i * n + j] + sum : sum;
    }
  }
}

// The micro-tile: sums stay in registers, hence every loop over them is
// unrolled and edges are stored from a copy.
template <class Acc>
void OuterTile(const Acc* lhs, const Acc* rhs, int64_t depth, Update update,
               int64_t rows, int64_t columns, int64_t n, Acc* out) {
  Vec<Acc> tile[kOuterRows][kOuterVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) tile[i][v] = Vec<Acc>{};
  }
  OuterProducts(lhs, rhs, depth, tile);
  const bool whole = rows == kOuterRows && columns == kOuterColumns<Acc>;
  Acc edge[kOuterRows * kOuterColumns<Acc>];
  Acc* to = whole ? out : edge;
  const int64_t stride = whole ? n : kOuterColumns<Acc>;
  const bool add = whole && update == Update::kAdd;
#pragma GCC unroll 8
  for (int i = 0; i < kOuterRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kOuterVectors; ++v) {
      Acc* entry = to + i * stride + v * kLanes<Acc>;
      Store(add ? Load(entry) + tile[i][v] : tile[i][v], entry);
    }
  }
  if (!whole) StoreEdge(edge, update, rows, columns, n, out);
}

template <class T>
void ClippedGemmTile(const GemmTask<T>& task, Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  Acc* lhs = scratch;
  Acc* rhs = scratch + kGemmRows * kGemmDepth;
  const int64_t depth = task.live_count * task.positions;
  for (int64_t k0 = 0; k0 < depth; k0 += kGemmDepth) {
    const int64_t k1 = Min(k0 + kGemmDepth, depth);
    PackPanels(task, k0, k1, lhs, rhs);
    const Update update = k0 == 0 ? Update::kOverwrite : Update::kAdd;
    for (int64_t j = task.n0; j < task.n1; j += kOuterColumns<Acc>) {
      for (int64_t i = task.m0; i < task.m1; i += kOuterRows) {
        OuterTile(lhs + (i - task.m0) * (k1 - k0),
                  rhs + (j - task.n0) * (k1 - k0), k1 - k0, update,
                  Min(kOuterRows, task.m1 - i),
                  Min(kOuterColumns<Acc>, task.n1 - j), task.n,
                  task.out + i * task.n + j);
      }
    }
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CLIPPED_GEMM_INL_H_
