// Bodies of the gradient of one example, lhs^T rhs, with the sum of its
// squares: kept in memory (per-sample gradient) or forgotten tile by tile
// (direct norm).
#ifndef BK_JAX_CUSTOM_CALLS_CPU_PRODUCT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_PRODUCT_INL_H_

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/outer_product-inl.h"
#include "custom_calls/cpu/row_norms-inl.h"
#include "custom_calls/cpu/vector-inl.h"

namespace bk::BK_ISA {

static_assert(kGemmColumns <= kGramDepth, "rows are squared in one block");

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

// Sum of squares of out[0:rows, 0:columns].
template <class Acc>
double SumOfSquares(const Acc* out, int64_t rows, int64_t columns,
                    int64_t stride) {
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    sum += static_cast<double>(SquaredNormBlock(out + i * stride, columns));
  }
  return sum;
}

// Strip after strip, so that a finished strip is squared while it is in L2.
template <class T>
double ProductTile(const ProductTask<T>& task, Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  Acc* lhs = scratch;
  Acc* rhs = scratch + kGemmLhsScratch;
  const int64_t rows = task.m1 - task.m0;
  const int64_t blocks = (task.positions + kGemmDepth - 1) / kGemmDepth;
  const int64_t step = (task.positions + blocks - 1) / blocks;
  double squares = 0;
  for (int64_t k0 = 0; k0 < task.positions; k0 += step) {
    const int64_t k1 = Min(k0 + step, task.positions);
    PackBlock<kOuterRows>(task.lhs, task.m, task.m0, task.m1, k0, k1, lhs);
    for (int64_t n0 = task.n0; n0 < task.n1; n0 += kGemmStrip) {
      const int64_t n1 = Min(n0 + kGemmStrip, task.n1);
      Acc* out = task.out + n0 - task.n0;
      PackBlock<kOuterColumns<Acc>>(task.rhs, task.n, n0, n1, k0, k1, rhs);
      MultiplyPanels(lhs, rhs, k1 - k0,
                     k0 == 0 ? Update::kOverwrite : Update::kAdd, rows, n1 - n0,
                     task.stride, out);
      if (k1 == task.positions) {
        squares += SumOfSquares(out, rows, n1 - n0, task.stride);
      }
    }
  }
  return squares;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_PRODUCT_INL_H_
