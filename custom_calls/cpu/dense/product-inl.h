// Bodies of the gradient of one example, lhs^T rhs, with the sum of its
// squares: kept in memory (per-sample gradient) or forgotten tile by tile
// (direct norm).
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_INL_H_

#include "custom_calls/cpu/dense/outer_product-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

// Rows [k0, k1) and columns [c0, c1) of x [*, width] as panels.
template <int64_t kGroup, class T>
void PackBlock(const T* x, int64_t width, int64_t c0, int64_t c1, int64_t k0,
               int64_t k1, Accumulator<T>* packed) {
  for (int64_t k = k0; k < k1; ++k) {
    const T* from = x + k * width + c0;
    PrefetchRow(from, width, c1 - c0);
    PackRow<kGroup>(from, c1 - c0, width - c0, Accumulator<T>{1}, k - k0,
                    k1 - k0, packed);
  }
}

template <class T>
double ProductTile(const ProductTask<T>& task, Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  Acc* lhs = scratch;
  Acc* rhs = scratch + kGemmLhsScratch;
  const int64_t blocks = (task.positions + kGemmDepth - 1) / kGemmDepth;
  const int64_t step = (task.positions + blocks - 1) / blocks;
  double squares = 0;
  for (int64_t k0 = 0; k0 < task.positions; k0 += step) {
    const int64_t k1 = Min(k0 + step, task.positions);
    PackBlock<kOuterRows>(task.lhs, task.m, task.tile.m0, task.tile.m1, k0, k1,
                          lhs);
    for (int64_t n0 = task.tile.n0; n0 < task.tile.n1; n0 += kGemmStrip) {
      const int64_t n1 = Min(n0 + kGemmStrip, task.tile.n1);
      const TileOutput<Acc> to = {
          task.out == nullptr ? nullptr : task.out + n0 - task.tile.n0,
          task.stride, task.tile.m1 - task.tile.m0, n1 - n0,
          k0 == 0 ? Update::kOverwrite : Update::kAdd};
      PackBlock<kOuterColumns<Acc>>(task.rhs, task.n, n0, n1, k0, k1, rhs);
      if (k1 == task.positions) {
        squares += MultiplyPanels<true>(lhs, rhs, k1 - k0, to);
      } else {
        MultiplyPanels<false>(lhs, rhs, k1 - k0, to);
      }
    }
  }
  return squares;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_INL_H_
