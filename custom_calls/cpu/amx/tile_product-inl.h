// lhs^T rhs of bfloat16 operands by tile registers, for products over the
// positions of one example: direct norm, per-sample gradient, and the clipped
// gemm, which scales the float sums of each example. Scaled operands would have
// to be rounded to bfloat16, and the clipped sum would not be that of the
// gradients whose norms are known.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_PRODUCT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_PRODUCT_INL_H_

#include <cstdint>

#include "custom_calls/cpu/amx/dot_block-inl.h"
#include "custom_calls/cpu/amx/tile_pack-inl.h"
#include "custom_calls/cpu/dense/clipped_gemm-inl.h"
#include "custom_calls/cpu/dense/product-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/wide-inl.h"

namespace bk::BK_ISA {

static_assert(kTileGemmDepth % kTileStep == 0);
static_assert(kGemmRows % kBlockSize == 0 && kGemmStrip % kBlockSize == 0);
// Elements of bfloat16 take half the room of floats.
static_assert(kGemmRows * kTileGemmDepth * 2 <= kGemmLhsScratch * 4);
static_assert(kGemmStrip * kTileGemmDepth * 2 <= kGemmRhsScratch * 4);

// out[0:count] = scale * sums, added to what is there or not, and stored unless
// `out` is null. Returns the sum of squares, made in double, if kSquare.
template <bool kSquare>
BK_INLINE double FinishRow(const float* sums, int64_t count, float scale,
                           Update update, float* out) {
  const bool add = update == Update::kAdd;
  Vec<double> squares = {};
  int64_t j = 0;
  for (; j + kLanes<float> <= count; j += kLanes<float>) {
    Vec<float> v = Load(sums + j) * scale;
    if (add) v += Load(out + j);
    if (out != nullptr) Store(v, out + j);
    if (!kSquare) continue;
    Vec<double> parts[kParts<float>];
    Widen(v, parts);
    for (int i = 0; i < kParts<float>; ++i) squares += parts[i] * parts[i];
  }
  double total = Sum<double>(squares);
  for (; j < count; ++j) {
    float value = sums[j] * scale;
    if (add) value += out[j];
    if (out != nullptr) out[j] = value;
    total += static_cast<double>(value) * static_cast<double>(value);
  }
  return total;
}

// All blocks of packed panels: the panels of lhs come from L2, two of rhs stay
// in L1. Returns the sum of squares of the result if kSquare.
template <bool kSquare>
double MultiplyTiles(Tiles& tiles, const TileOperands& from, int64_t steps,
                     float scale, const TileOutput<float>& to) {
  alignas(64) float sums[kBlockSize * kBlockSize];
  double squares = 0;
  for (int64_t j = 0; j < to.columns; j += kBlockSize) {
    const int64_t width = Min(kBlockSize, to.columns - j);
    for (int64_t i = 0; i < to.rows; i += kBlockSize) {
      const int64_t height = Min(kBlockSize, to.rows - i);
      DotBlock(tiles,
               {from.left + i / kTileSize * from.panel,
                from.right + j / kTileSize * from.panel, from.panel},
               steps, height, width, sums);
      for (int64_t row = 0; row < height; ++row) {
        float* out =
            to.out == nullptr ? nullptr : to.out + (i + row) * to.stride + j;
        squares += FinishRow<kSquare>(sums + row * kBlockSize, width, scale,
                                      to.update, out);
      }
    }
  }
  return squares;
}

// The task's product times `scale`; `update` says what its first block of
// positions does to the result. Returns the sum of squares of the result if
// kSquare.
template <bool kSquare>
double ScaledProduct(const ProductTask<BFloat16>& task, float scale,
                     Update update, float* scratch) {
  auto* left = reinterpret_cast<uint8_t*>(scratch);
  auto* right = reinterpret_cast<uint8_t*>(scratch + kGemmLhsScratch);
  const int64_t blocks = (task.positions + kTileGemmDepth - 1) / kTileGemmDepth;
  const int64_t depth =
      PadTo((task.positions + blocks - 1) / blocks, kTileStep);
  double squares = 0;
  Tiles tiles;
  for (int64_t k0 = 0; k0 < task.positions; k0 += depth) {
    const Range positions = {k0, Min(k0 + depth, task.positions)};
    const int64_t steps = TilesFor(positions.Size(), kTileStep);
    squares = 0;  // of what is there after the last block
    PackColumns<false>(task.lhs, task.m, {task.tile.m0, task.tile.m1},
                       positions, left);
    for (int64_t n0 = task.tile.n0; n0 < task.tile.n1; n0 += kGemmStrip) {
      const Range columns = {n0, Min(n0 + kGemmStrip, task.tile.n1)};
      PackColumns<true>(task.rhs, task.n, columns, positions, right);
      squares += MultiplyTiles<kSquare>(
          tiles, {left, right, steps * kTileBytes}, steps, scale,
          {task.out == nullptr ? nullptr : task.out + n0 - task.tile.n0,
           task.stride, task.tile.m1 - task.tile.m0, columns.Size(),
           k0 == 0 ? update : Update::kAdd});
    }
  }
  return squares;
}

inline double TileProduct(const ProductTask<BFloat16>& task, float* scratch) {
  if (task.positions < kTilePositions) return ProductTile(task, scratch);
  return ScaledProduct<true>(task, 1, Update::kOverwrite, scratch);
}

inline void TileClippedGemm(const GemmTask<BFloat16>& task, float* scratch) {
  if (task.positions < kTilePositions) return ClippedGemmTile(task, scratch);
  bool add = task.accumulate;
  for (int64_t k = 0; k < task.live_count; ++k) {
    const int64_t row =
        (task.live[k].index * task.weights + task.weight) * task.positions;
    ScaledProduct<false>(
        {.lhs = task.lhs + row * task.m,
         .rhs = task.rhs + row * task.n,
         .positions = task.positions,
         .m = task.m,
         .n = task.n,
         .tile = task.tile,
         .out = task.out + task.tile.m0 * task.n + task.tile.n0,
         .stride = task.n},
        task.live[k].factor, add ? Update::kAdd : Update::kOverwrite, scratch);
    add = true;
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_PRODUCT_INL_H_
