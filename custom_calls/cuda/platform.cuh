// What every device source includes: CUDA's device headers and a launch that
// reads the same on a GPU and in the emulation.
//
// A kernel walks over items, blocks with a stride of gridDim.x:
//
//   for (int64_t item = blockIdx.x; item < items; item += gridDim.x)
//
// so the grid may be smaller than the number of items (which is 64 bits wide).
// Without items there is one block, which finds nothing to do: a command buffer
// into which a call records no launch at all is an error for some versions of
// XLA.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_PLATFORM_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_PLATFORM_CUH_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"

#if !defined(BK_CUDA_ON_CPU)

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <mutex>
#include <set>
#include <utility>

// One struct holds all shared memory of a kernel; at most 48 KB.
#define BK_SHARED(Type, name) __shared__ Type name
// The same for up to 99 KB, with LaunchWithShared.
#define BK_DYNAMIC_SHARED(Type, name)                         \
  extern __shared__ __align__(1024) char bk_dynamic_shared[]; \
  Type& name = *reinterpret_cast<Type*>(bk_dynamic_shared)

namespace bk::cuda {

// Blocks of a grid, along x: the largest number that CUDA takes.
inline constexpr int64_t kMaxBlocks = 0x7fffffff;
inline constexpr int kSharedWithoutAsking = 48 * 1024;  // bytes

// Loads a kernel for the current device, the first time.
inline cudaError_t Load(const void* kernel) {
  static auto* const mutex = new std::mutex();
  static auto* const loaded = new std::set<std::pair<int, const void*>>();
  int device = 0;
  BK_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
  const std::lock_guard<std::mutex> lock(*mutex);
  if (!loaded->insert({device, kernel}).second) return cudaSuccess;
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

// Launches as many blocks as there are items, at least one and at most
// kMaxBlocks, with `shared` bytes of dynamic shared memory.
template <class... Parameters, class... Arguments>
cudaError_t LaunchWithShared(void (*kernel)(Parameters...), int64_t items,
                             int threads, int shared, cudaStream_t stream,
                             Arguments... arguments) {
  const auto* code = reinterpret_cast<const void*>(kernel);
  if (shared > kSharedWithoutAsking) {
    BK_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(
        code, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  }
  if (loading_only) return Load(code);
  const int64_t wanted = items > 0 ? items : 1;
  const auto blocks =
      static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  kernel<<<blocks, threads, shared, stream>>>(arguments...);
  return cudaGetLastError();
}

template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t items, int threads,
                   cudaStream_t stream, Arguments... arguments) {
  return LaunchWithShared(kernel, items, threads, 0, stream, arguments...);
}

}  // namespace bk::cuda

#else

// NOLINTBEGIN(bugprone-macro-parentheses): a type and a name
#define BK_DYNAMIC_SHARED(Type, name) \
  Type& name = ::bk::cuda::DynamicShared<Type>()
// NOLINTEND(bugprone-macro-parentheses)

namespace bk::cuda {

template <class Type>
Type& DynamicShared() {
  static_assert(sizeof(Type) <= emulator::kDynamicSharedLimit);
  return *reinterpret_cast<Type*>(emulator::DynamicSharedOf(sizeof(Type)));
}

template <class... Parameters, class... Arguments>
cudaError_t LaunchWithShared(void (*kernel)(Parameters...), int64_t items,
                             int threads, int shared, cudaStream_t stream,
                             Arguments... arguments) {
  emulator::AskForShared(shared);
  return Launch(kernel, items, threads, stream, arguments...);
}

}  // namespace bk::cuda

#endif

// A condition that seldom holds: its code goes out of the way.
#define BK_RARELY(condition) __builtin_expect(condition, 0)

namespace bk::cuda {

__host__ __device__ constexpr int64_t CeilDiv(int64_t x, int64_t y) {
  return (x + y - 1) / y;
}

// As a signed number, like all other indices.
__device__ inline int ThreadIndex() { return static_cast<int>(threadIdx.x); }

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_PLATFORM_CUH_
