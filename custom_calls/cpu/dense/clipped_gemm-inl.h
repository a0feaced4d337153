// Clipped gemm bodies: the rows of all live examples are one long reduction,
// taken in blocks; lhs is multiplied by the factor of its example while it is
// packed.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_INL_H_

#include "custom_calls/cpu/dense/outer_product-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

// Calls pack(row, factor, k - k0) for rows [k0, k1) of the reduction: row k is
// position k % T of live example k / T.
template <class T, class Pack>
BK_INLINE void ForEachRow(const GemmTask<T>& task, int64_t k0, int64_t k1,
                          Pack pack) {
  int64_t live = k0 / task.positions;
  int64_t position = k0 % task.positions;
  for (int64_t k = k0; k < k1; ++k) {
    const auto& example = task.live[live];
    pack((example.index * task.weights + task.weight) * task.positions +
             position,
         example.factor, k - k0);
    if (++position == task.positions) {
      position = 0;
      ++live;
    }
  }
}

template <class T>
void PackLhs(const GemmTask<T>& task, int64_t k0, int64_t k1,
             Accumulator<T>* packed) {
  ForEachRow(task, k0, k1, [&](int64_t row, auto factor, int64_t k) {
    const T* from = task.lhs + row * task.m + task.tile.m0;
    PrefetchRow(from, task.m, task.tile.m1 - task.tile.m0);
    PackRow<kOuterRows>(from, task.tile.m1 - task.tile.m0,
                        task.m - task.tile.m0, factor, k, k1 - k0, packed);
  });
}

template <class T>
void PackRhs(const GemmTask<T>& task, int64_t n0, int64_t n1, int64_t k0,
             int64_t k1, Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  ForEachRow(task, k0, k1, [&](int64_t row, auto, int64_t k) {
    const T* from = task.rhs + row * task.n + n0;
    PrefetchRow(from, task.n, n1 - n0);
    PackRow<kOuterColumns<Acc>>(from, n1 - n0, task.n - n0, Acc{1}, k, k1 - k0,
                                packed);
  });
}

template <class T>
void ClippedGemmTile(const GemmTask<T>& task, Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  Acc* lhs = scratch;
  Acc* rhs = scratch + kGemmLhsScratch;
  const int64_t depth = task.live_count * task.positions;
  const int64_t blocks = (depth + kGemmDepth - 1) / kGemmDepth;
  const int64_t step = (depth + blocks - 1) / blocks;
  for (int64_t k0 = 0; k0 < depth; k0 += step) {
    const int64_t k1 = Min(k0 + step, depth);
    const bool add = k0 > 0 || task.accumulate;
    PackLhs(task, k0, k1, lhs);
    for (int64_t n0 = task.tile.n0; n0 < task.tile.n1; n0 += kGemmStrip) {
      const int64_t n1 = Min(n0 + kGemmStrip, task.tile.n1);
      PackRhs(task, n0, n1, k0, k1, rhs);
      MultiplyPanels<false, Acc>(lhs, rhs, k1 - k0,
                                 {task.out + task.tile.m0 * task.n + n0, task.n,
                                  task.tile.m1 - task.tile.m0, n1 - n0,
                                  add ? Update::kAdd : Update::kOverwrite});
    }
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_INL_H_
