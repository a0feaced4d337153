// What this instruction set does with its class Tiles.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_TABLE_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_TABLE_INL_H_

#include "custom_calls/cpu/amx/tile_gram-inl.h"
#include "custom_calls/cpu/amx/tile_kernels.h"
#include "custom_calls/cpu/amx/tile_product-inl.h"
#include "custom_calls/cpu/dense/ghost_norm-inl.h"

namespace bk::BK_ISA {

inline GramPartial TileGhostRow(const GhostPair<BFloat16>& pair,
                                int64_t first_position, double* grams,
                                float* scratch) {
  if (pair.positions < kTilePositions) {
    return GhostTileRow(pair, first_position, grams, scratch);
  }
  return GhostTileRow<BFloat16, TileGrams>(pair, first_position, grams,
                                           scratch);
}

inline constexpr TileKernels kTileKernels = {
    TileGhostRow, Spread<BFloat16, TileGrams>, TileClippedGemm, TileProduct};

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_TABLE_INL_H_
