// Squared norms of rows: lanes accumulate in the accumulator type over at most
// kGramDepth features, the rest is double.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_ROW_NORMS_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_ROW_NORMS_INL_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/wide-inl.h"

namespace bk::BK_ISA {

// |x[0:count]|^2. Four sums hide the latency of the addition; their chains are
// no longer than those of DotTile.
template <class T>
Accumulator<T> SquaredNormBlock(const T* x, int64_t count) {
  using Acc = Accumulator<T>;
  Vec<Acc> sums[4] = {};
  int64_t k = 0;
  for (; k + 4 * kLanes<Acc> <= count; k += 4 * kLanes<Acc>) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Vec<Acc> v = Load(x + k + i * kLanes<Acc>);
      sums[i] += v * v;
    }
  }
  for (; k < count; k += kLanes<Acc>) {
    const Vec<Acc> v =
        k + kLanes<Acc> <= count ? Load(x + k) : LoadPartial(x + k, count - k);
    sums[0] += v * v;
  }
  return Sum<Acc>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class T>
double SquaredNorm(const T* x, int64_t width) {
  double total = 0;
  for (int64_t k = 0; k < width; k += kGramDepth) {
    total += static_cast<double>(
        SquaredNormBlock(x + k, Min(kGramDepth, width - k)));
  }
  return total;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_ROW_NORMS_INL_H_
