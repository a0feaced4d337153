// Clipped gemm bodies: the rows of all live examples are one long reduction.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_INL_H_

#include "custom_calls/cpu/dense/row_products-inl.h"
#include "custom_calls/cpu/isa/kernels.h"

namespace bk::BK_ISA {

template <class T>
void ClippedGemmTile(const GemmTask<T>& task, Accumulator<T>* scratch) {
  const auto [m0, m1, n0, n1] = task.tile;
  MultiplyRows<false>(task,
                      {task.out + m0 * task.n + n0, task.n, m1 - m0, n1 - n0,
                       task.accumulate ? Update::kAdd : Update::kOverwrite},
                      scratch);
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_INL_H_
