// The machine instructions of custom_calls/cuda/instructions.cuh on the CPU.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_INSTRUCTIONS_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_INSTRUCTIONS_H_

#include <cstdint>

namespace bk::emulator {

uint32_t SharedAddressOf(const void* pointer);
void MultiplyBFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                      float (&sums)[4]);
void MultiplyFloat16(const uint32_t (&left)[4], const uint32_t (&right)[2],
                     float (&sums)[4]);
void MultiplyTf32(const uint32_t (&left)[4], const uint32_t (&right)[2],
                  float (&sums)[4]);
void LoadMatrices(uint32_t row, bool transposed, uint32_t (&to)[4]);
// Bytes [bytes, size) become 0.
void CopyAsync(uint32_t to, const void* from, int size, int bytes);
void CommitCopies();
void WaitForCopies(int pending);
uint32_t RoundToTf32(float x);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_INSTRUCTIONS_H_
