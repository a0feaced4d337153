// The examples that enter a sum. One whose factor is 0 is not read, so a NaN or
// an infinity in it does no harm.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_LIVE_H_
#define BK_JAX_CUSTOM_CALLS_CPU_LIVE_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/dense/dense_kernels.h"

namespace bk {

template <class Acc>
std::vector<LiveExample<Acc>> FindLive(int64_t batch, const Acc* factor) {
  std::vector<LiveExample<Acc>> live;
  live.reserve(batch);
  for (int64_t i = 0; i < batch; ++i) {
    if (factor[i] != 0) live.push_back({i, factor[i]});
  }
  return live;
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_LIVE_H_
