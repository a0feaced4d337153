// Blocks of two by two tiles of sums, by the class Tiles.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_BLOCK_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_BLOCK_INL_H_

#include <cstdint>

#include "custom_calls/cpu/amx/tile_pack-inl.h"
#include "custom_calls/cpu/isa/vector-inl.h"

#if defined(BK_JAX_SOFT_TILES)
#include "custom_calls/cpu/amx/tiles_soft-inl.h"
#else
#include "custom_calls/cpu/amx/tiles_amx-inl.h"
#endif

namespace bk::BK_ISA {

// sums[kRows * 16, kColumns * 16] = left right over `steps` steps: four tiles
// hold sums, two each the operands.
template <int kRows, int kColumns>
BK_INLINE void DotTiles(Tiles& tiles, const TileOperands& from, int64_t steps,
                        float* sums) {
  tiles.Zero<0>();
  if constexpr (kColumns == 2) tiles.Zero<1>();
  if constexpr (kRows == 2) tiles.Zero<2>();
  if constexpr (kRows == 2 && kColumns == 2) tiles.Zero<3>();
  for (int64_t k = 0; k < steps * kTileBytes; k += kTileBytes) {
    tiles.Load<4>(from.left + k, 64);
    tiles.Load<6>(from.right + k, 64);
    tiles.Dot<0, 4, 6>();
    if constexpr (kColumns == 2) tiles.Load<7>(from.right + from.panel + k, 64);
    if constexpr (kColumns == 2) tiles.Dot<1, 4, 7>();
    if constexpr (kRows == 2) tiles.Load<5>(from.left + from.panel + k, 64);
    if constexpr (kRows == 2) tiles.Dot<2, 5, 6>();
    if constexpr (kRows == 2 && kColumns == 2) tiles.Dot<3, 5, 7>();
  }
  constexpr int64_t kBelow = kTileSize * kBlockSize;
  tiles.Store<0>(sums, kBlockStride);
  if constexpr (kColumns == 2) tiles.Store<1>(sums + kTileSize, kBlockStride);
  if constexpr (kRows == 2) tiles.Store<2>(sums + kBelow, kBlockStride);
  if constexpr (kRows == 2 && kColumns == 2) {
    tiles.Store<3>(sums + kBelow + kTileSize, kBlockStride);
  }
}

// The same for the tiles that `rows` and `columns` need, at least one.
inline void DotBlock(Tiles& tiles, const TileOperands& from, int64_t steps,
                     int64_t rows, int64_t columns, float* sums) {
  if (rows > kTileSize) {
    if (columns > kTileSize) return DotTiles<2, 2>(tiles, from, steps, sums);
    return DotTiles<2, 1>(tiles, from, steps, sums);
  }
  if (columns > kTileSize) return DotTiles<1, 2>(tiles, from, steps, sums);
  return DotTiles<1, 1>(tiles, from, steps, sums);
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_BLOCK_INL_H_
