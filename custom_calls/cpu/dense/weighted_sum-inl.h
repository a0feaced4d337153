// Weighted sum bodies: a chunk of the result stays in L1 while the examples
// pass by.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_WEIGHTED_SUM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_WEIGHTED_SUM_INL_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

template <int kCount>
struct Count {
  static constexpr int kValue = kCount;
};

// Examples that are added in one pass over the chunk: fewer would load and
// store it more often, more would be too many streams from memory.
inline constexpr int kStreams = 4;

// Adds kCount examples, in their order, to out[0:count], or starts with them.
template <int kCount, class T>
BK_INLINE void AddScaled(const T* const (&x)[kStreams],
                         const Accumulator<T> (&factor)[kStreams],
                         int64_t count, bool first, Accumulator<T>* out) {
  using Acc = Accumulator<T>;
  int64_t k = 0;
  for (; k + kLanes<Acc> <= count; k += kLanes<Acc>) {
    Vec<Acc> sum = {};
    if (!first) sum = Load(out + k);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) sum += Load(x[i] + k) * factor[i];
    Store(sum, out + k);
  }
  if (k == count) return;
  Vec<Acc> sum = {};
  if (!first) sum = LoadPartial(out + k, count - k);
  for (int i = 0; i < kCount; ++i) {
    sum += LoadPartial(x[i] + k, count - k) * factor[i];
  }
  __builtin_memcpy(out + k, &sum, (count - k) * sizeof(Acc));
}

template <class T>
void WeightedSumChunk(const SumTask<T>& task, int64_t begin, int64_t end) {
  for (int64_t live = 0; live < task.live_count; live += kStreams) {
    const int64_t streams = Min(kStreams, task.live_count - live);
    const T* x[kStreams] = {};
    Accumulator<T> factor[kStreams] = {};
    for (int64_t i = 0; i < streams; ++i) {
      x[i] = task.x + task.live[live + i].index * task.size + begin;
      factor[i] = task.live[live + i].factor;
    }
    const auto add = [&](auto count) {
      AddScaled<decltype(count)::kValue, T>(x, factor, end - begin, live == 0,
                                            task.out + begin);
    };
    if (streams == 4) add(Count<4>());
    if (streams == 3) add(Count<3>());
    if (streams == 2) add(Count<2>());
    if (streams == 1) add(Count<1>());
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_WEIGHTED_SUM_INL_H_
