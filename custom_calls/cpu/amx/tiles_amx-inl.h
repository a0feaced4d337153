// The tile registers of AMX. Included once per instruction set;
// tiles_soft-inl.h has the same class in ordinary code.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_AMX_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_AMX_INL_H_

#include <cstdint>

#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

// What LDTILECFG reads.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Eight whole tiles, for as long as this object lives. Tiles are named by
// number and not by variables, so a compiler has nothing to spill. Instructions
// are written out because the intrinsics of GCC 12 do not say that a load reads
// memory.
class Tiles {
 public:
  Tiles() {
    alignas(64) const TileConfig config;
    asm volatile("ldtilecfg (%0)" : : "r"(&config) : "memory");
  }
  // A thread that goes on with live tiles would have them saved at every
  // switch.
  ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  BK_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // 16 rows of 64 bytes, `stride` bytes apart.
  template <int kTile>
  BK_INLINE void Load(const uint8_t* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  BK_INLINE void Store(float* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kSums, int kLeft, int kRight>
  BK_INLINE void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
};

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_AMX_INL_H_
