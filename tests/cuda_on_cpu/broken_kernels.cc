#include "tests/cuda_on_cpu/broken_kernels.h"

namespace bk::broken {
namespace {

constexpr int kThreads = 64;

struct Shared {
  float values[kThreads];
};

__global__ void Kernel(Mistake mistake, const float* in, float* out) {
  BK_SHARED(Shared, shared);
  const int t = static_cast<int>(threadIdx.x);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + t;
  const bool unset = mistake == Mistake::kSharedUnset && t == 5;
  if (!unset) {
    shared.values[t] = in[mistake == Mistake::kReadPastEnd ? i + 1 : i];
  }
  if (mistake == Mistake::kSomeReturn && t % 2 == 1) return;
  if (mistake == Mistake::kTwoBarriers && t < 32) {
    __syncthreads();
  } else if (mistake != Mistake::kNoBarrier) {
    __syncthreads();
  }
  const int next =
      mistake == Mistake::kSharedPastEnd ? t + 1 : (t + 1) % kThreads;
  float sum = shared.values[t] + shared.values[next];
  if (mistake == Mistake::kLanesMissing && t % 2 == 0) {
    sum = __shfl_down_sync(~0u, sum, 1);
  }
  const int64_t shift = mistake == Mistake::kWritePastEnd ? 1 : 0;
  out[mistake == Mistake::kSameOutput ? t : i + shift] = sum;
}

}  // namespace

cudaError_t NeighbourSums(Mistake mistake, int64_t count, const float* in,
                          float* out) {
  return cuda::Launch(Kernel, count / kThreads, kThreads, nullptr, mistake, in,
                      out);
}

}  // namespace bk::broken
