// Clipped scatter body: all tokens of one row of the table, added in their
// order while the row is in registers.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_CLIPPED_SCATTER_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_CLIPPED_SCATTER_INL_H_

#include "custom_calls/cpu/isa/wide-inl.h"
#include "custom_calls/cpu/sparse/sparse_kernels.h"

namespace bk::BK_ISA {

// kVectors vectors of columns from `column` on; the last one may be partial.
template <int kVectors, class T>
BK_INLINE void ScatterBlock(const ScatterTask<T>& task, int64_t column) {
  using Acc = Accumulator<T>;
  const Segment<T>& segment = task.segment;
  Vec<Acc> sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t from = column + v * kLanes<Acc>;
    sums[v] = kVectors == 1 ? LoadUpTo(task.row, from, segment.column1)
                            : Load(task.row + from);
  }
  for (int64_t k = 0; k < segment.count; ++k) {
    const auto token = static_cast<int64_t>(segment.keys[k] & kTokenMask);
    const Acc factor = task.factor[token / task.positions];
    const T* row = segment.g + token * segment.p;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t from = column + v * kLanes<Acc>;
      sums[v] += factor * (kVectors == 1 ? LoadUpTo(row, from, segment.column1)
                                         : Load(row + from));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t from = column + v * kLanes<Acc>;
    const int64_t count = Min(kLanes<Acc>, segment.column1 - from);
    __builtin_memcpy(task.row + from, &sums[v],
                     static_cast<uint64_t>(count) * sizeof(Acc));
  }
}

template <class T>
void ScatterSegment(const ScatterTask<T>& task) {
  constexpr int kVectors = 8;
  constexpr int64_t kLane = kLanes<Accumulator<T>>;
  int64_t column = task.segment.column0;
  for (; column + kVectors * kLane <= task.segment.column1;
       column += kVectors * kLane) {
    ScatterBlock<kVectors>(task, column);
  }
  for (; column < task.segment.column1; column += kLane) {
    ScatterBlock<1>(task, column);
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_CLIPPED_SCATTER_INL_H_
