// Bodies of the gradient of one example, lhs^T rhs, with the sum of its
// squares: kept in memory (per-sample gradient) or forgotten tile by tile
// (direct norm).
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_INL_H_

#include "custom_calls/cpu/dense/row_products-inl.h"
#include "custom_calls/cpu/isa/kernels.h"

namespace bk::BK_ISA {

template <class T>
double ProductTile(const ProductTask<T>& task, Accumulator<T>* scratch) {
  const LiveExample<Accumulator<T>> only = {0, 1};
  const auto [m0, m1, n0, n1] = task.tile;
  return MultiplyRows<true>(
      GemmTask<T>{.lhs = task.lhs,
                  .rhs = task.rhs,
                  .live = &only,
                  .live_count = 1,
                  .weight = 0,
                  .weights = 1,
                  .positions = task.positions,
                  .m = task.m,
                  .n = task.n,
                  .tile = task.tile,
                  .out = nullptr,
                  .accumulate = false},
      {task.out, task.stride, m1 - m0, n1 - n0, Update::kOverwrite}, scratch);
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_PRODUCT_INL_H_
