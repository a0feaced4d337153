// For tests of kernels that choose the side of their tiles by the shape.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_TILE_SIDES_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_TILE_SIDES_H_

#include <cstdint>

#include "custom_calls/cuda/tiling.h"
#include "tests/custom_calls/cuda/device_buffer.h"

namespace bk::cuda {

class TileSidesTest : public DeviceTest {
 protected:
  void TearDown() override {
    enough_large_tiles = before_;
    DeviceTest::TearDown();
  }
  // Tiles of 128 x 128 wherever both sides are longer than 64, or nowhere.
  static void UseLargeTiles(bool large) {
    enough_large_tiles = large ? 1 : int64_t{1} << 40;
  }

 private:
  const int64_t before_ = enough_large_tiles;
};

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_TILE_SIDES_H_
