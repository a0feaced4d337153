// A tile of the Gram matrix x x^T of bfloat16 rows in double, by tile
// registers: floats over at most kTileDepth features, the rest is double.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_GRAM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_GRAM_INL_H_

#include <cstdint>

#include "custom_calls/cpu/amx/dot_block-inl.h"
#include "custom_calls/cpu/amx/tile_pack-inl.h"
#include "custom_calls/cpu/dense/gram_tile-inl.h"
#include "custom_calls/cpu/isa/kernels.h"

namespace bk::BK_ISA {

static_assert(kGramDepth % kTileDepth == 0 && kTileDepth % kTileStep == 0);
inline constexpr int64_t kGramSteps = kGramDepth / kTileStep;
inline constexpr int64_t kGramPanels = (kGramTile + kTileSize - 1) / kTileSize;
// Panels of all rows, and of one block of columns.
static_assert((kGramPanels + 2) * kGramSteps * kTileBytes <=
              kGramScratch * static_cast<int64_t>(sizeof(float)));

// gram[0:rows, 0:columns] += sums, or = if `first`.
inline void AddBlock(const float* sums, int64_t rows, int64_t columns,
                     bool first, double* gram) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = sums + i * kBlockSize;
    double* to = gram + i * kGramTile;
    for (int64_t j = 0; j < columns; ++j) {
      to[j] = (first ? 0 : to[j]) + static_cast<double>(from[j]);
    }
  }
}

// gram[:, j:j + columns] of one block of columns; blocks entirely below the
// diagonal, which is `offset` columns to the left, are left out.
inline void GramBlocks(Tiles& tiles, const TileOperands& from, int64_t steps,
                       int64_t rows, int64_t j, int64_t columns, int64_t offset,
                       bool first, double* gram) {
  constexpr int64_t kSteps = kTileDepth / kTileStep;
  alignas(64) float sums[kBlockSize * kBlockSize];
  for (int64_t i = 0; i < rows && i < j + columns + offset; i += kBlockSize) {
    const int64_t height = Min(kBlockSize, rows - i);
    const uint8_t* left = from.left + i / kTileSize * from.panel;
    for (int64_t k = 0; k < steps; k += kSteps) {
      const int64_t skip = k * kTileBytes;
      DotBlock(tiles, {left + skip, from.right + skip, from.panel},
               Min(kSteps, steps - k), height, columns, sums);
      AddBlock(sums, height, columns, first && k == 0,
               gram + i * kGramTile + j);
    }
  }
}

// Gram matrices for GhostTileRow.
struct TileGrams {
  // Per feature, of the squared norm of a row that is not zero: covers denormal
  // numbers that tiles take for zero, see ghost_norm.cc.
  static constexpr double kFloor = 0x1p-100;

  // gram[kGramTile, kGramTile] = x[rows] x[columns]^T for x [*, width].
  static void Make(const BFloat16* x, int64_t width, Positions rows,
                   Positions columns, float* scratch, double* gram) {
    auto* left = reinterpret_cast<uint8_t*>(scratch);
    uint8_t* right = left + kGramPanels * kGramSteps * kTileBytes;
    if (width == 0) {
      __builtin_memset(gram, 0, sizeof(double) * kGramTile * kGramTile);
      return;
    }
    const int64_t blocks = (width + kGramDepth - 1) / kGramDepth;
    const int64_t depth = PadTo((width + blocks - 1) / blocks, kTileStep);
    Tiles tiles;
    for (int64_t k0 = 0; k0 < width; k0 += depth) {
      const Range features = {k0, Min(k0 + depth, width)};
      const int64_t steps = TilesFor(features.Size(), kTileStep);
      PackRows<false>(x, width, {rows.begin, rows.end}, features, left);
      for (int64_t j = columns.begin; j < columns.end; j += kBlockSize) {
        const int64_t end = Min(j + kBlockSize, columns.end);
        PackRows<true>(x, width, {j, end}, features, right);
        GramBlocks(tiles, {left, right, steps * kTileBytes}, steps,
                   rows.end - rows.begin, j - columns.begin, end - j,
                   columns.begin - rows.begin, k0 == 0, gram);
      }
    }
  }
};

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_GRAM_INL_H_
