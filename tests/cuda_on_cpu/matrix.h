// ldmatrix and mma.sync on the CPU, with the layouts of the PTX ISA. Lane l has
//
//   mma      a register of A         of B              of C and D
//   m16n8k16 2 of row g or g + 8     2 of column g     2 of row g or g + 8
//   m16n8k8  1 of row g or g + 8     1 of column g     2 of row g or g + 8
//
// with g = l / 4 and t = l % 4: matrix.cc says which. All lanes of the warp
// have to come to the same call. tensor_core.h adds the products.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_MATRIX_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_MATRIX_H_

#include <cstdint>

#include "tests/cuda_on_cpu/emulator.h"

namespace bk::emulator {

enum class Format { kBFloat16, kFloat16, kTf32 };

// mma.sync.aligned.m16n8k16 (bf16, f16) and m16n8k8 (tf32), sums in float:
// d = a b + c, which may be the same array as d.
void MmaSync(Format format, float (&d)[4], const uint32_t (&a)[4],
             const uint32_t (&b)[2], const float (&c)[4], Site site);

// ldmatrix.sync.aligned.m8n8.xN.shared.b16, N = 1, 2, 4: row r of matrix m
// starts at the address of lane 8 m + r, a multiple of 16 bytes. Lane l gets
// two neighbours of row l / 4; with `transposed`, of column l / 4.
void LoadMatrices(uint32_t* registers, int count, bool transposed,
                  const void* row, Site site);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_MATRIX_H_
