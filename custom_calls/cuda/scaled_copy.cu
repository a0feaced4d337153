// One block for a part of an example, one thread for every so many elements of
// it.
#include <cmath>

#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/scaled_copy.h"

namespace bk::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPart = int64_t{16} * kThreads;  // elements of a block

struct AnyShared {
  int any[kThreads / 32];
};

int64_t Parts(int64_t size) { return CeilDiv(size, kPart); }

__global__ void __launch_bounds__(kThreads)
    ScaledCopyKernel(ScaledCopyShape shape, int64_t parts, const float* x,
                     const float* factor, float* out) {
  const int64_t items = shape.batch * parts;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const float scale = factor[item / parts];
    const int64_t first = item / parts * shape.size;
    const int64_t begin = item % parts * kPart;
    const int64_t end = begin + kPart < shape.size ? begin + kPart : shape.size;
    for (int64_t k = begin + threadIdx.x; k < end; k += kThreads) {
      out[first + k] = scale == 0 ? 0 : scale * x[first + k];
    }
  }
}

// Whether a thread of the block says so; thread 0 gets it. A barrier comes
// before the next use of shared memory.
__device__ bool AnyOfBlock(bool mine, AnyShared& shared) {
  const bool any = __any_sync(kAllLanes, mine);
  if (threadIdx.x % 32 == 0) shared.any[threadIdx.x / 32] = any ? 1 : 0;
  __syncthreads();
  int sum = 0;
  if (threadIdx.x == 0) {
    for (int warp : shared.any) sum += warp;
  }
  return sum != 0;
}

// found [batch, parts]
__global__ void __launch_bounds__(kThreads)
    SpoilersKernel(ScaledCopyShape shape, int64_t parts, const float* x,
                   const float* factor, int32_t* found) {
  BK_SHARED(AnyShared, shared);
  const int64_t items = shape.batch * parts;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t first = item / parts * shape.size;
    const int64_t begin = item % parts * kPart;
    const int64_t limit =
        begin + kPart < shape.size ? begin + kPart : shape.size;
    const int64_t end = factor[item / parts] == 0 ? limit : begin;
    bool spoils = false;
    for (int64_t k = begin + threadIdx.x; k < end; k += kThreads) {
      spoils = spoils || !std::isfinite(x[first + k]);
    }
    const bool any = AnyOfBlock(spoils, shared);
    if (threadIdx.x == 0) found[item] = any ? 1 : 0;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    AnyKernel(int64_t count, const int32_t* found, int32_t* result) {
  BK_SHARED(AnyShared, shared);
  bool mine = false;
  for (int64_t k = threadIdx.x; k < count; k += kThreads) {
    mine = mine || found[k] != 0;
  }
  const bool any = AnyOfBlock(mine, shared);
  if (threadIdx.x == 0 && blockIdx.x == 0) *result = any ? 1 : 0;
}

__global__ void __launch_bounds__(kThreads)
    CopyIfKernel(const int32_t* wanted, int64_t size, const float* from,
                 float* to) {
  if (*wanted == 0) return;
  const int64_t chunks = CeilDiv(size, kThreads);
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t k = chunk * kThreads + threadIdx.x;
    if (k < size) to[k] = from[k];
  }
}

}  // namespace

cudaError_t ScaledCopy(const ScaledCopyShape& shape, const float* x,
                       const float* factor, float* out, cudaStream_t stream) {
  const int64_t parts = Parts(shape.size);
  return Launch(ScaledCopyKernel, shape.batch * parts, kThreads, stream, shape,
                parts, x, factor, out);
}

int64_t FindSpoilersWorkspaceBytes(const ScaledCopyShape& shape) {
  return shape.batch * Parts(shape.size) *
         static_cast<int64_t>(sizeof(int32_t));
}

cudaError_t FindSpoilers(const ScaledCopyShape& shape, const float* x,
                         const float* factor, void* workspace, int32_t* spoils,
                         cudaStream_t stream) {
  auto* found = static_cast<int32_t*>(workspace);
  const int64_t parts = Parts(shape.size);
  BK_RETURN_IF_CUDA_ERROR(Launch(SpoilersKernel, shape.batch * parts, kThreads,
                                 stream, shape, parts, x, factor, found));
  return Launch(AnyKernel, 1, kThreads, stream, shape.batch * parts, found,
                spoils);
}

cudaError_t CopyIf(const int32_t* wanted, int64_t size, const float* from,
                   float* to, cudaStream_t stream) {
  return Launch(CopyIfKernel, CeilDiv(size, kThreads), kThreads, stream, wanted,
                size, from, to);
}

}  // namespace bk::cuda
