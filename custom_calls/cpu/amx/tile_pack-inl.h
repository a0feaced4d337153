// Operands in the order of tiles.
//
// A panel is what 16 rows or columns of a sum need, one tile for each step of
// 32 products, filled up with zeros. Panels follow each other.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_PACK_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_PACK_INL_H_

#include <cstdint>
#include <utility>

#include "custom_calls/cpu/amx/tile_kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

using TileRow = VectorOf<uint32_t, 64>::Type;
using TileHalfRow = VectorOf<uint16_t, 32>::Type;

// [begin, end)
struct Range {
  int64_t begin, end;
  int64_t Size() const { return end - begin; }
};

BK_INLINE int64_t TilesFor(int64_t size, int64_t step) {
  return (size + step - 1) / step;
}

// kRows x kColumns elements, rows `stride` elements apart.
struct TileSource {
  const BFloat16* data;
  int64_t stride;
};

// The elements of one tile, of which rows x columns exist: where they are, or
// in `copy` with zeros for those that do not.
template <int64_t kRows, int64_t kColumns>
BK_INLINE TileSource FillUp(const TileSource& x, int64_t rows, int64_t columns,
                            BFloat16* copy) {
  static_assert(kRows * kColumns * sizeof(BFloat16) == kTileBytes);
  if (rows >= kRows && columns >= kColumns) return x;
  const auto bytes =
      static_cast<uint64_t>(Min(columns, kColumns)) * sizeof *copy;
  __builtin_memset(copy, 0, kTileBytes);
  for (int64_t i = 0; i < Min(rows, kRows); ++i) {
    __builtin_memcpy(copy + i * kColumns, x.data + i * x.stride, bytes);
  }
  return {copy, kColumns};
}

// Exchanges the upper right with the lower left part of blocks of two by two
// parts, each of kStep words.
template <int kStep, int... kLane>
BK_INLINE void Exchange(TileRow& a, TileRow& b,
                        std::integer_sequence<int, kLane...> /*lanes*/) {
  const TileRow upper = __builtin_shufflevector(
      a, b, ((kLane & kStep) != 0 ? 16 + kLane - kStep : kLane)...);
  const TileRow lower = __builtin_shufflevector(
      a, b, ((kLane & kStep) != 0 ? 16 + kLane : kLane + kStep)...);
  a = upper;
  b = lower;
}

template <int kStep>
BK_INLINE void ExchangeAll(TileRow (&rows)[kTileSize]) {
#pragma GCC unroll 16
  for (int i = 0; i < kTileSize; ++i) {
    if ((i & kStep) != 0) continue;
    Exchange<kStep>(rows[i], rows[i + kStep],
                    std::make_integer_sequence<int, kTileSize>());
  }
}

// Words, hence pairs of elements, change rows with columns.
BK_INLINE void Transpose(TileRow (&rows)[kTileSize]) {
  ExchangeAll<1>(rows);
  ExchangeAll<2>(rows);
  ExchangeAll<4>(rows);
  ExchangeAll<8>(rows);
}

BK_INLINE void StoreRows(const TileRow (&rows)[kTileSize], uint8_t* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kTileSize; ++i) Store(rows[i], to + i * sizeof rows[i]);
}

// Panels of rows of x [*, width] whose products run over `features`: as they
// are for a left operand, transposed for a right one.
template <bool kRight>
void PackRows(const BFloat16* x, int64_t width, Range rows, Range features,
              uint8_t* to) {
  alignas(64) BFloat16 copy[kTileSize * kTileStep];
  for (int64_t i = rows.begin; i < rows.end; i += kTileSize) {
    for (int64_t k = features.begin; k < features.end; k += kTileStep) {
      const auto from = FillUp<kTileSize, kTileStep>(
          {x + i * width + k, width}, rows.end - i, features.end - k, copy);
      TileRow tile[kTileSize];
#pragma GCC unroll 16
      for (int row = 0; row < kTileSize; ++row) {
        tile[row] = LoadBits<TileRow>(from.data + row * from.stride);
      }
      if (kRight) Transpose(tile);
      StoreRows(tile, to);
      to += kTileBytes;
    }
  }
}

// Panels of columns of x [*, width] whose products run over `positions`:
// as pairs for a right operand, transposed for a left one.
template <bool kRight>
void PackColumns(const BFloat16* x, int64_t width, Range columns,
                 Range positions, uint8_t* to) {
  alignas(64) BFloat16 copy[kTileStep * kTileSize];
  for (int64_t j = columns.begin; j < columns.end; j += kTileSize) {
    for (int64_t k = positions.begin; k < positions.end; k += kTileStep) {
      const auto from = FillUp<kTileStep, kTileSize>(
          {x + k * width + j, width}, positions.end - k, columns.end - j, copy);
      TileRow tile[kTileSize];
#pragma GCC unroll 16
      for (int64_t row = 0; row < kTileSize; ++row) {
        const BFloat16* first = from.data + 2 * row * from.stride;
        const auto low = LoadBits<TileHalfRow>(first);
        const auto high = LoadBits<TileHalfRow>(first + from.stride);
        tile[row] = __builtin_convertvector(low, TileRow) |
                    (__builtin_convertvector(high, TileRow) << 16);
      }
      if (!kRight) Transpose(tile);
      StoreRows(tile, to);
      to += kTileBytes;
    }
  }
}

// Where the panels of a block lie: `panel` bytes from one to the next.
struct TileOperands {
  const uint8_t* left;
  const uint8_t* right;
  int64_t panel;
};

// The sums of a block of up to two by two tiles.
inline constexpr int64_t kBlockSize = 2 * kTileSize;
inline constexpr int64_t kBlockStride = kBlockSize * sizeof(float);

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILE_PACK_INL_H_
