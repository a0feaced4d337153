// Tile registers in memory: what tiles_amx-inl.h does, on any CPU.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_SOFT_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_SOFT_INL_H_

#include <cstdint>

#include "custom_calls/cpu/amx/soft_tile.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

class Tiles {
 public:
  template <int kTile>
  void Zero() {
    __builtin_memset(&tiles_[kTile], 0, sizeof(SoftTile));
  }
  template <int kTile>
  void Load(const uint8_t* from, int64_t stride) {
    for (int64_t row = 0; row < 16; ++row) {
      __builtin_memcpy(tiles_[kTile].words[row], from + row * stride, 64);
    }
  }
  template <int kTile>
  void Store(float* to, int64_t stride) {
    for (int64_t row = 0; row < 16; ++row) {
      __builtin_memcpy(reinterpret_cast<uint8_t*>(to) + row * stride,
                       tiles_[kTile].words[row], 64);
    }
  }
  template <int kSums, int kLeft, int kRight>
  void Dot() {
    DotSoftTiles(tiles_[kLeft], tiles_[kRight], tiles_[kSums]);
  }

 private:
  SoftTile tiles_[8];
};

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_SOFT_INL_H_
