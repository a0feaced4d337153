// Instruction sets with tile registers, which multiply matrices of bfloat16:
// what they replace in the table of an instruction set without.
//
// A tile has 16 rows of 64 bytes. sums += left right for left [16, 32] and
// right [32, 16] of bfloat16, where two rows of `right` share one row of the
// tile: each of its 16 words holds one element of both. Sums are floats.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_KERNELS_H_

#include <cstdint>

#include "custom_calls/cpu/isa/kernels.h"

namespace bk {

inline constexpr int64_t kTileSize = 16;  // rows and columns of sums
inline constexpr int64_t kTileStep = 32;  // products of one sum in one step
inline constexpr int64_t kTileBytes = 1024;

// Sums of Gram entries leave their tile for double after this many products.
// Intel describes the order of additions in two ways that differ (the manual:
// even and odd products apart; the intrinsics guide: one after the other), so
// the bound allows for every order, and the number of products is what counts.
inline constexpr int64_t kTileDepth = 128;

// With fewer positions the vector kernels are used: padding to whole tiles and
// lining up operands would cost more than tiles save. Counted, not measured.
inline constexpr int64_t kTilePositions = 32;

struct TileKernels {
  decltype(ElementKernels<BFloat16>::ghost_tile_row) ghost_tile_row;
  decltype(ElementKernels<BFloat16>::spread) spread;
  decltype(ElementKernels<BFloat16>::clipped_gemm_tile) clipped_gemm_tile;
  decltype(ElementKernels<BFloat16>::product_tile) product_tile;
};

extern const TileKernels kAmxKernels;         // x86-64 only
extern const TileKernels kAvx512Bf16Kernels;  // the same by vectors of pairs
// The same bodies with tiles made of ordinary code, for tests on any CPU.
extern const TileKernels kSoftTileKernels;

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_KERNELS_H_
