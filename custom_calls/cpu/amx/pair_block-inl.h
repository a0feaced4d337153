// Blocks of two by two tiles of sums by VDPBF16PS, which multiplies the pairs
// of a tile's row with one pair. Operands lie as for tile registers.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_PAIR_BLOCK_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_PAIR_BLOCK_INL_H_

#include <cstdint>

#include "custom_calls/cpu/amx/soft_tile.h"
#include "custom_calls/cpu/amx/tile_pack-inl.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

// There is nothing to configure or to release.
struct Tiles {};

using TileSums = VectorOf<float, 64>::Type;

// sums += pair . right for every pair of `right`. Denormal numbers are taken
// for zero, as in tile registers.
BK_INLINE void DotPair(const uint8_t* pair, const TileRow& right,
                       TileSums& sums) {
#if defined(BK_JAX_SOFT_TILES)
  using namespace soft_tile;
  uint32_t left;
  __builtin_memcpy(&left, pair, sizeof left);
  for (int n = 0; n < kTileSize; ++n) {
    const float odd =
        AddProduct(Flush(sums[n]), HighHalf(left), HighHalf(right[n]));
    sums[n] = AddProduct(odd, LowHalf(left), LowHalf(right[n]));
  }
#else
  // Written out, so that other instructions of the extension cannot get in.
  asm("vdpbf16ps %2%{1to16%}, %1, %0"
      : "+v"(sums)
      : "v"(right), "m"(*reinterpret_cast<const uint32_t(*)[1]>(pair)));
#endif
}

// Rows of sums that registers hold at a time.
inline constexpr int kPairRows = 8;

// sums[kPairRows, kColumns * 16] = left right over `steps` steps, for rows of
// one panel of `left`.
template <int kColumns>
BK_INLINE void DotPairs(const TileOperands& from, int64_t steps, float* sums) {
  TileSums block[kPairRows][kColumns] = {};
  for (int64_t step = 0; step < steps * kTileBytes; step += kTileBytes) {
    for (int64_t word = 0; word < kTileSize; ++word) {
      TileRow right[kColumns];
#pragma GCC unroll 2
      for (int j = 0; j < kColumns; ++j) {
        right[j] = LoadBits<TileRow>(from.right + j * from.panel + step +
                                     word * sizeof right[j]);
      }
      const uint8_t* left = from.left + step + word * 4;
#pragma GCC unroll 8
      for (int i = 0; i < kPairRows; ++i) {
#pragma GCC unroll 2
        for (int j = 0; j < kColumns; ++j) {
          DotPair(left + i * sizeof right[j], right[j], block[i][j]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kPairRows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kColumns; ++j) {
      Store(block[i][j], sums + i * kBlockSize + j * kTileSize);
    }
  }
}

// The sums of `rows` x `columns`, at least one; more may be written.
inline void DotBlock(Tiles& /*tiles*/, const TileOperands& from, int64_t steps,
                     int64_t rows, int64_t columns, float* sums) {
  for (int64_t i = 0; i < rows; i += kPairRows) {
    TileOperands part = from;
    part.left += i / kTileSize * from.panel + i % kTileSize * sizeof(TileRow);
    float* to = sums + i * kBlockSize;
    if (columns > kTileSize) {
      DotPairs<2>(part, steps, to);
    } else {
      DotPairs<1>(part, steps, to);
    }
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_PAIR_BLOCK_INL_H_
