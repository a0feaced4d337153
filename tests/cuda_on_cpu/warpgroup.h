// wgmma on the CPU: products of four warps from shared memory, as the GPUs of
// compute capability 9.0 have them (custom_calls/cuda/warpgroup.cuh).
//
// A product happens when its thread waits for its group, and no earlier. Till
// then nobody may write to the shared memory that it reads, and the sums of its
// thread are NaN: who reads them gets nothing, who writes them is found out.
//
//   operands whose writer has not said fence.proxy.async
//   since it wrote them                                   | "no proxy fence"
//   the first product without wgmma.fence                 | "wgmma.fence"
//   sums that changed before the wait                     | "sums changed"
//   products that nobody waited for                       | "never waited for"
//   warps of a group with unequal numbers of products     | "divergence"
//   a descriptor without the 128-byte swizzle             | "descriptor"
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_WARPGROUP_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_WARPGROUP_H_

#include <cstdint>
#include <string>

#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/formats.h"
#include "tests/cuda_on_cpu/instructions.h"

namespace bk::emulator {

// How an operand lies: rows of 128 bytes along the sum, or columns, transposed.
enum class Major { kSum, kOutside };

// fence.proxy.async of the running thread.
void FenceAsyncProxy();
// wgmma.fence, wgmma.commit_group, wgmma.wait_group.
void WarpgroupFence(Site site = Here());
void WarpgroupCommit(Site site = Here());
void WarpgroupWait(int pending, Site site = Here());

struct WarpgroupOperands {
  Format format;
  Major major;           // of both
  uint64_t left, right;  // descriptors
};

// wgmma.mma_async m64n128k16: sums = left right, or += .
inline constexpr int kWarpgroupSums = 64;
void WarpgroupMultiply(const WarpgroupOperands& operands, bool add, float* sums,
                       Site site = Here());

// For the emulator: before a block, and at its end, empty or what is left.
void ForgetProducts();
std::string UnfinishedProducts(int threads);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_WARPGROUP_H_
