// Weighted sum bodies: a chunk of the result stays in L1 while the examples
// pass by.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_WEIGHTED_SUM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_WEIGHTED_SUM_INL_H_

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/vector-inl.h"

namespace bk::BK_ISA {

// out[0:count] = factor * x[0:count], or += unless `first`.
template <class T>
BK_INLINE void AddScaled(const T* x, Accumulator<T> factor, int64_t count,
                         bool first, Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  int64_t k = 0;
  for (; k + kLanes<Acc> <= count; k += kLanes<Acc>) {
    const Vec<Acc> old = first ? Vec<Acc>{} : Load(out + k);
    Store(old + Load(x + k) * factor, out + k);
  }
  if (k == count) return;
  Vec<Acc> old = {};
  if (!first) old = LoadPartial(out + k, count - k);
  const Vec<Acc> sum = old + LoadPartial(x + k, count - k) * factor;
  __builtin_memcpy(out + k, &sum, (count - k) * sizeof(Acc));
}

template <class T>
void WeightedSumChunk(const SumTask<T>& task, int64_t begin, int64_t end) {
  for (int64_t live = 0; live < task.live_count; ++live) {
    const auto& example = task.live[live];
    AddScaled(task.x + example.index * task.size + begin, example.factor,
              end - begin, live == 0, task.out + begin);
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_WEIGHTED_SUM_INL_H_
