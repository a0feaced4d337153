// One step of TDPBF16PS in ordinary code, after the description in Intel's
// manual: sums of even and of odd products by fused multiply-adds, rounded to
// nearest, denormal inputs and results taken for zero; then both sums together,
// then added to the tile. No rounding mode or flag of the caller matters, as
// long as it rounds to nearest and does not flush by itself.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_SOFT_TILE_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_SOFT_TILE_H_

#include <cstdint>

namespace bk {

// 16 rows of 64 bytes: floats, or pairs of bfloat16 with the first one below.
struct alignas(64) SoftTile {
  uint32_t words[16][16];
};

namespace soft_tile {

inline constexpr uint32_t kSignBit = 0x80000000,
                          kSmallestNormalBits = 0x00800000,
                          kInfinityBits = 0x7f800000;

static inline float FromBits(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t ToBits(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof x);
  return bits;
}

static inline float Flush(float x) {
  const uint32_t bits = ToBits(x);
  return (bits & ~kSignBit) < kSmallestNormalBits ? FromBits(bits & kSignBit)
                                                  : x;
}

// A product of two bfloat16 has 16 bits and is exact, unless it is too small or
// too large for a float; its sum is then rounded once, as if fused.
static inline float AddProduct(float sum, float x, float y) {
  const float product = x * y;
  const uint32_t magnitude = ToBits(product) & ~kSignBit;
  const bool exact =
      magnitude >= kSmallestNormalBits && magnitude < kInfinityBits;
  return Flush(exact ? sum + product : __builtin_fmaf(x, y, sum));
}

// The elements of a pair.
static inline float LowHalf(uint32_t pair) {
  return Flush(FromBits(pair << 16));
}
static inline float HighHalf(uint32_t pair) {
  return Flush(FromBits(pair & 0xffff0000));
}

}  // namespace soft_tile

// sums += left right.
static inline void DotSoftTiles(const SoftTile& left, const SoftTile& right,
                                SoftTile& sums) {
  using soft_tile::AddProduct, soft_tile::Flush;
  using soft_tile::FromBits, soft_tile::ToBits;
  using soft_tile::HighHalf, soft_tile::LowHalf;
  for (int m = 0; m < 16; ++m) {
    float even[16] = {}, odd[16] = {};
    for (int k = 0; k < 16; ++k) {
      const float x = LowHalf(left.words[m][k]), y = HighHalf(left.words[m][k]);
      for (int n = 0; n < 16; ++n) {
        even[n] = AddProduct(even[n], x, LowHalf(right.words[k][n]));
        odd[n] = AddProduct(odd[n], y, HighHalf(right.words[k][n]));
      }
    }
    for (int n = 0; n < 16; ++n) {
      const float before = Flush(FromBits(sums.words[m][n]));
      sums.words[m][n] = ToBits(Flush(before + Flush(even[n] + odd[n])));
    }
  }
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_SOFT_TILE_H_
