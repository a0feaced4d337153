// The machine instructions of a warpgroup, four warps of a GPU of compute
// capability 9.0 (compiled for sm_90a): in PTX, or in the emulation
// (tests/cuda_on_cpu/warpgroup.h).
//
//   WarpgroupMultiply     wgmma.mma_async m64n128k16 (bf16, f16)
//   WarpgroupFence, WarpgroupCommit, WarpgroupWait   its groups
//   FenceAsyncProxy       fence.proxy.async
//
// Products read shared memory through the asynchronous proxy: a thread that
// wrote operands, by stores or by cp.async, calls FenceAsyncProxy before the
// barrier after which they are read. Sums belong to the tensor core from
// WarpgroupMultiply to the WarpgroupWait of its group.
//
// Thread t has, of 64 x 128 sums, with lane l = t % 32 and warp w = t / 32 % 4,
// at[i][j][e] = (16 w + l / 4 + 8 (e / 2), 32 i + 8 j + 2 (l % 4) + e % 2).
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_WARPGROUP_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_WARPGROUP_CUH_

#include "custom_calls/cuda/instructions.cuh"
#include "custom_calls/cuda/layout.cuh"

#if defined(BK_CUDA_ON_CPU)
#include "tests/cuda_on_cpu/warpgroup.h"
#endif

// Whether this code is for a GPU with these instructions. The emulation is one
// device or the other.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(BK_EMULATED_SM90)
#define BK_HAS_WARPGROUPS 1
#else
#define BK_HAS_WARPGROUPS 0
#endif

namespace bk::cuda {

// A matrix in shared memory for WarpgroupMultiply, in rows of 128 bytes whose
// 16-byte units are exchanged: unit u of row r lies at u ^ (r % 8).
//
//   kRows     lines (rows of the left operand, columns of the right one) are
//             rows; `stride` bytes from 8 lines to the next 8, `leading` is not
//             used. 16 terms on along the sum are 32 bytes.
//   kColumns  rows are terms of the sum with 64 lines each; `stride` bytes from
//             8 terms to the next 8, `leading` bytes from 64 lines to the next.
__host__ __device__ constexpr uint64_t MatrixDescriptor(SharedAddress start,
                                                        int leading,
                                                        int stride) {
  constexpr int kSwizzle128 = 1;
  return uint64_t{(start & 0x3ffff) >> 4} |
         static_cast<uint64_t>(leading >> 4) << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | uint64_t{kSwizzle128} << 62;
}

#if defined(BK_CUDA_ON_CPU)

inline void FenceAsyncProxy() { emulator::FenceAsyncProxy(); }
inline void WarpgroupFence() { emulator::WarpgroupFence(); }
inline void WarpgroupCommit() { emulator::WarpgroupCommit(); }
template <int kPending>
inline void WarpgroupWait() {
  emulator::WarpgroupWait(kPending);
}
inline emulator::Format FormatOf(BFloat16 /*type*/) {
  return emulator::Format::kBFloat16;
}
inline emulator::Format FormatOf(Float16 /*type*/) {
  return emulator::Format::kFloat16;
}
template <Layout kLayout, class T>
inline void WarpgroupMultiply(T type, uint64_t left, uint64_t right, bool add,
                              float (&sums)[4][4][4]) {
  const auto major = kLayout == Layout::kRows ? emulator::Major::kSum
                                              : emulator::Major::kOutside;
  emulator::WarpgroupMultiply({FormatOf(type), major, left, right}, add,
                              &sums[0][0][0]);
}

#elif BK_HAS_WARPGROUPS

__device__ inline void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void WarpgroupFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// sums = left right, or sums += left right.
#define BK_FOUR(x) "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])
#define BK_SIXTEEN(x) BK_FOUR(x[0]), BK_FOUR(x[1]), BK_FOUR(x[2]), BK_FOUR(x[3])
#define BK_WARPGROUP_MULTIPLY(Type, types)                               \
  template <Layout kLayout>                                              \
  __device__ inline void WarpgroupMultiply(Type /*type*/, uint64_t left, \
                                           uint64_t right, bool add,     \
                                           float(&sums)[4][4][4]) {      \
    constexpr int kTransposed = kLayout == Layout::kColumns;             \
    asm volatile(                                                        \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                     \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." types             \
        " "                                                              \
        "{%0, %1, %2, %3, %4, %5, %6, %7, "                              \
        " %8, %9, %10, %11, %12, %13, %14, %15, "                        \
        " %16, %17, %18, %19, %20, %21, %22, %23, "                      \
        " %24, %25, %26, %27, %28, %29, %30, %31, "                      \
        " %32, %33, %34, %35, %36, %37, %38, %39, "                      \
        " %40, %41, %42, %43, %44, %45, %46, %47, "                      \
        " %48, %49, %50, %51, %52, %53, %54, %55, "                      \
        " %56, %57, %58, %59, %60, %61, %62, %63}, "                     \
        "%64, %65, p, 1, 1, %67, %67;\n}\n"                              \
        : BK_SIXTEEN(sums[0]), BK_SIXTEEN(sums[1]), BK_SIXTEEN(sums[2]), \
          BK_SIXTEEN(sums[3])                                            \
        : "l"(left), "l"(right), "r"(static_cast<int>(add)),             \
          "n"(kTransposed));                                             \
  }
BK_WARPGROUP_MULTIPLY(BFloat16, "bf16.bf16")
BK_WARPGROUP_MULTIPLY(Float16, "f16.f16")
#undef BK_WARPGROUP_MULTIPLY
#undef BK_SIXTEEN
#undef BK_FOUR

#endif

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_WARPGROUP_CUH_
