// The machine instructions of the dense kernels, one function each: in PTX, or
// in the emulation (tests/cuda_on_cpu/instructions.h), where a body checks what
// a GPU demands. Above them everything is plain C++, the same for both.
//
//   Multiply            mma.sync m16n8k16 (bf16, f16), m16n8k8 (tf32)
//   LoadMatrices        ldmatrix.x4, as it lies and transposed
//   CopyAsync           cp.async with zeros for what is not read
//   CommitCopies, WaitForCopies   groups of copies
//   StoreShared         st.shared.v4
//
// All lanes of a warp call Multiply and LoadMatrices together. Lane l has of a
// fragment, with row r = l / 4 and pair c = l % 4 (two 16-bit or one 32-bit
// element to a register):
//
//   left  16 x k    [0] (r, c)  [1] (r + 8, c)  [2] (r, c + 4)  [3] (r+8, c+4)
//   right k x 8     [0] (c, column r)  [1] (c + 4, column r)
//   sums  16 x 8    [0] (r, 2c)  [1] (r, 2c + 1)  [2], [3] the same of r + 8
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_INSTRUCTIONS_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_INSTRUCTIONS_CUH_

#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/element.h"

#if defined(BK_CUDA_ON_CPU)
#include "tests/cuda_on_cpu/instructions.h"
#endif

namespace bk::cuda {

// An address of shared memory, as instructions take it.
using SharedAddress = uint32_t;

// What the tensor core reads of float: its leading 19 bits.
struct Tf32 {};

#if defined(BK_CUDA_ON_CPU)

inline SharedAddress SharedAddressOf(const void* pointer) {
  return emulator::SharedAddressOf(pointer);
}
inline void Multiply(BFloat16 /*type*/, const uint32_t (&left)[4],
                     const uint32_t (&right)[2], float (&sums)[4]) {
  emulator::MultiplyBFloat16(left, right, sums);
}
inline void Multiply(Float16 /*type*/, const uint32_t (&left)[4],
                     const uint32_t (&right)[2], float (&sums)[4]) {
  emulator::MultiplyFloat16(left, right, sums);
}
inline void Multiply(Tf32 /*type*/, const uint32_t (&left)[4],
                     const uint32_t (&right)[2], float (&sums)[4]) {
  emulator::MultiplyTf32(left, right, sums);
}
template <bool kTransposed>
inline void LoadMatrices(SharedAddress row, uint32_t (&to)[4]) {
  emulator::LoadMatrices(row, kTransposed, to);
}
template <int kBytes>
inline void CopyAsync(SharedAddress to, const void* from, int bytes) {
  emulator::CopyAsync(to, from, kBytes, bytes);
}
inline void CommitCopies() { emulator::CommitCopies(); }
template <int kPending>
inline void WaitForCopies() {
  emulator::WaitForCopies(kPending);
}
inline void StoreShared(SharedAddress to, const uint32_t (&words)[4]) {
  struct alignas(16) Unit {
    uint32_t word[4];
  };
  *reinterpret_cast<Unit*>(emulator::SharedBase() +
                           to) = {{words[0], words[1], words[2], words[3]}};
}
inline uint32_t RoundToTf32(float x) { return emulator::RoundToTf32(x); }

#else

__device__ inline SharedAddress SharedAddressOf(const void* pointer) {
  return static_cast<SharedAddress>(__cvta_generic_to_shared(pointer));
}

// sums += left right.
#define BK_MULTIPLY(Type, shape)                                           \
  __device__ inline void Multiply(Type /*type*/, const uint32_t(&left)[4], \
                                  const uint32_t(&right)[2],               \
                                  float(&sums)[4]) {                       \
    asm("mma.sync.aligned." shape                                          \
        " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])       \
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]),          \
          "r"(right[0]), "r"(right[1]));                                   \
  }
BK_MULTIPLY(BFloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
BK_MULTIPLY(Float16, "m16n8k16.row.col.f32.f16.f16.f32")
BK_MULTIPLY(Tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef BK_MULTIPLY

// Four matrices of 8 rows of 16 bytes: lane l brings the address of row l % 8
// of matrix l / 8, and gets of matrix m the 4 bytes l % 4 of row l / 4; or, of
// 16-bit elements, (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4).
template <bool kTransposed>
__device__ inline void LoadMatrices(SharedAddress row, uint32_t (&to)[4]) {
  if constexpr (kTransposed) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, "
        "[%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(row)
        : "memory");
  } else {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
        : "r"(row)
        : "memory");
  }
}

// Starts a copy of `bytes` <= kBytes from global memory; the rest of kBytes
// becomes 0. Both addresses are multiples of kBytes. With bytes = 0 nothing is
// read.
template <int kBytes>
__device__ inline void CopyAsync(SharedAddress to, const void* from,
                                 int bytes) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "r"(bytes)
                 : "memory");
  } else {
    static_assert(kBytes == 4 || kBytes == 8);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

// Closes the group of the copies that this thread has started since the last.
__device__ inline void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups are on their way; the
// bytes of other threads are there after a barrier.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Stores 16 bytes.
__device__ inline void StoreShared(SharedAddress to,
                                   const uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// x to 11 bits, ties away from zero, in the place of a float.
__device__ inline uint32_t RoundToTf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

#endif

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_INSTRUCTIONS_CUH_
