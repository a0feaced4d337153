// The machine instructions of custom_calls/cuda/instructions.cuh on the CPU,
// which says what they do. Addresses of shared memory are offsets into it.
//
// Found, besides what memory.h finds in every access:
//
//   a lane that does not come to a Multiply or LoadMatrices | "divergence"
//   a row of LoadMatrices, source or destination of a copy
//   that is not a multiple of its size                      | "misaligned"
//   copies to what is not shared memory, or from it         | "cp.async"
//   copies that their thread did not wait for               | "never waited
//   for"
//
// The bytes of a copy arrive when their thread waits for its group, and no
// earlier. What may happen to them before: AsyncCopy in memory.h.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_INSTRUCTIONS_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_INSTRUCTIONS_H_

#include <cstdint>

#include "tests/cuda_on_cpu/emulator.h"

namespace bk::emulator {

// The line that calls the function of which this is a default argument.
constexpr Site Here(const char* file = __builtin_FILE(),
                    int line = __builtin_LINE()) {
  return {file, line};
}

uint32_t SharedAddressOf(const void* pointer);

void MultiplyBFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                      float (&sums)[4], Site site = Here());
void MultiplyFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                     float (&sums)[4], Site site = Here());
void MultiplyTf32(const uint32_t (&left)[4], const uint32_t (&right)[2],
                  float (&sums)[4], Site site = Here());
uint32_t RoundToTf32(float x);

void LoadMatrices(uint32_t row, bool transposed, uint32_t (&to)[4],
                  Site site = Here());

// A store of 16 bytes.
void StoreShared(uint32_t to, const uint32_t (&words)[4]);

// Bytes [bytes, size) become 0.
void CopyAsync(uint32_t to, const void* from, int size, int bytes);
// A group may be empty.
void CommitCopies();
// All but the last `pending` groups arrive.
void WaitForCopies(int pending);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_INSTRUCTIONS_H_
