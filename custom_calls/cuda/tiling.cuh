// How a block of threads is cut: warps have 64 x 32 entries of a tile each, and
// operands pass through shared memory in chunks of 128 bytes along the sum.
//
//   LargeTiling   128 x 128 entries, 8 warps
//   SmallTiling    64 x  64 entries, 2 warps: short examples, few tiles
//
// tiling.h says which one a launch uses.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TILING_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TILING_CUH_

#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/tiling.h"

namespace bk::cuda {

inline constexpr int kUnit = 16;         // bytes of one copy
inline constexpr int kChunkBytes = 128;  // of the summed dimension
inline constexpr int kStages = 3;        // chunks in shared memory
// Unit u of row r of a piece lies at place u ^ (r % kTurns): the swizzle.
inline constexpr int kTurns = 8;
inline constexpr int kWarpRows = 64;
inline constexpr int kWarpColumns = 32;

// Terms of a chunk.
template <class T>
inline constexpr int kChunkTerms = kChunkBytes / static_cast<int>(sizeof(T));

template <int kWarpsDown, int kWarpsAcross>
struct Tiling {
  static constexpr int kSide = kWarpsDown * kWarpRows;
  static_assert(kSide == kWarpsAcross * kWarpColumns);
  static constexpr int kThreads = kWarpsDown * kWarpsAcross * 32;
  static constexpr int kPieceBytes = kSide * kChunkBytes;  // of one operand
  static constexpr int kStageBytes = 2 * kPieceBytes;

  __device__ static int Lane() { return ThreadIndex() % 32; }
  // Of the entries of this thread's warp in the tile.
  __device__ static int WarpRow() {
    return ThreadIndex() / 32 / kWarpsAcross * kWarpRows;
  }
  __device__ static int WarpColumn() {
    return ThreadIndex() / 32 % kWarpsAcross * kWarpColumns;
  }
};

using LargeTiling = Tiling<2, 4>;
using SmallTiling = Tiling<1, 2>;
static_assert(LargeTiling::kSide == kLargeSide);
static_assert(SmallTiling::kSide == kSmallSide);

// All shared memory of a dense kernel.
template <class Tiles>
struct alignas(1024) StagesShared {
  char stage[kStages][Tiles::kStageBytes];
  double scratch[Tiles::kThreads / 32];
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TILING_CUH_
