// What device sources find instead of the CUDA headers when the host compiler
// compiles them: the words of the language, its built-in variables and
// functions, and the few types of the runtime that launchers need.
//
// Only what bk_jax uses is here; a kernel that needs more does not compile.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_CUDA_ON_CPU_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_CUDA_ON_CPU_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "custom_calls/cuda/loading.h"
#include "tests/cuda_on_cpu/emulator.h"

// NOLINTBEGIN: these names are CUDA's
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict

// With CUDA's own names of types, so that a test that was compiled with these
// can be linked with the kernels of a GPU.
using cudaStream_t = struct CUstream_st*;
enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchFailure = 719,
};
using cudaError_t = cudaError;
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                   int /*kind*/, cudaStream_t /*stream*/) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                                   cudaStream_t /*stream*/) {
  if (bytes != 0) std::memset(to, value, bytes);
  return cudaSuccess;
}
constexpr int cudaMemcpyDeviceToDevice = 3;

struct uint3 {
  unsigned x, y, z;
};
inline uint3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

#define BK_SITE (::bk::emulator::Site{__FILE__, __LINE__})
#define __syncthreads() ::bk::emulator::SyncThreads(BK_SITE)
#define __syncwarp() ::bk::emulator::SyncWarp(~0u, BK_SITE)
#define __shfl_sync(mask, value, lane) \
  ::bk::emulator::Shuffle(mask, value, (lane)&31, BK_SITE)
#define __shfl_down_sync(mask, value, delta)                                \
  ::bk::emulator::Shuffle(mask, value, ::bk::emulator::Lane() + int(delta), \
                          BK_SITE)
#define __shfl_up_sync(mask, value, delta)                                  \
  ::bk::emulator::Shuffle(mask, value, ::bk::emulator::Lane() - int(delta), \
                          BK_SITE)
#define __shfl_xor_sync(mask, value, lanes)                              \
  ::bk::emulator::Shuffle(mask, value, ::bk::emulator::Lane() ^ (lanes), \
                          BK_SITE)
#define __ballot_sync(mask, predicate) \
  ::bk::emulator::Ballot(mask, predicate, BK_SITE)
#define __any_sync(mask, predicate) (__ballot_sync(mask, predicate) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, !(predicate)) == 0)
#define __popc(x) __builtin_popcount(x)

// Shared memory of one block: one struct per kernel.
#define BK_SHARED(Type, name)                                  \
  static_assert(sizeof(Type) <= ::bk::emulator::kSharedLimit); \
  Type& name = *reinterpret_cast<Type*>(::bk::emulator::SharedOf(sizeof(Type)))

inline float __uint_as_float(unsigned bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline long long __double_as_longlong(double x) {
  long long bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
// NOLINTEND

namespace bk::emulator {

template <class T>
T Shuffle(uint32_t mask, T value, int from, Site site) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  Payload mine = {};
  std::memcpy(mine.words, &value, sizeof(T));
  const Payload* all = ExchangeInWarp(mask, mine, site);
  if (from < 0 || from >= kWarpSize || (mask >> from & 1) == 0) return value;
  std::memcpy(&value, all + from, sizeof(T));
  return value;
}

inline uint32_t Ballot(uint32_t mask, bool predicate, Site site) {
  const Payload mine = {{predicate ? uint64_t{1} : 0}};
  const Payload* all = ExchangeInWarp(mask, mine, site);
  uint32_t result = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const bool is_set = (mask >> lane & 1) != 0 && all[lane].words[0] != 0;
    if (is_set) result |= 1u << lane;
  }
  return result;
}

// Atomic operations on integers: threads run one at a time.
template <class T>
__attribute__((noinline, no_sanitize_thread)) T AtomicAdd(T* address, T value) {
  CheckAccess(address, sizeof(T), Access::kAtomic);
  const T before = *address;
  *address = before + value;
  return before;
}

}  // namespace bk::emulator

// NOLINTBEGIN
inline int atomicAdd(int* address, int value) {
  return bk::emulator::AtomicAdd(address, value);
}
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return bk::emulator::AtomicAdd(address, value);
}
// NOLINTEND

#include "tests/cuda_on_cpu/half.h"
#include "tests/cuda_on_cpu/wmma.h"

namespace bk::cuda {

// Emulates a launch; see platform.cuh.
template <class... Parameters, class... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), int64_t items, int threads,
                   cudaStream_t /*stream*/, Arguments... arguments) {
  const auto code = reinterpret_cast<emulator::KernelCode>(kernel);
  if (loading_only) {
    emulator::Load(code);
    return cudaSuccess;
  }
  if (threads > emulator::kMaxThreads) return cudaErrorInvalidConfiguration;
  if (!emulator::MayLaunch(code)) return cudaErrorLaunchFailure;
  const int64_t limit = emulator::MaxBlocks();
  const int64_t wanted = items > 0 ? items : 1;
  const int64_t blocks = limit > 0 && limit < wanted ? limit : wanted;
  const auto body = [=] { kernel(arguments...); };
  const bool good = emulator::Run(
      blocks, threads,
      [](const void* closure) { (*static_cast<decltype(body)*>(closure))(); },
      &body);
  return good ? cudaSuccess : cudaErrorLaunchFailure;
}

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_CUDA_ON_CPU_H_
