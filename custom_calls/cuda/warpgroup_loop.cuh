// The main loop (main_loop.cuh) for GPUs with warpgroups: two of them have 64 x
// 128 entries of a tile each, and read operands where the copies put them. No
// registers are loaded, one instruction adds 16 terms of 64 x 128 entries.
//
// Copies are those of the other loop (cp.async; a tensor map for the bulk
// copies of this GPU would have to be made by the driver, for each operand). A
// chunk costs one barrier, as there. While its products run, the threads start
// the copies of the chunk after the next, and the other warpgroup adds up its
// sums.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_WARPGROUP_LOOP_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_WARPGROUP_LOOP_CUH_

#include "custom_calls/cuda/gram.cuh"
#include "custom_calls/cuda/main_loop.cuh"
#include "custom_calls/cuda/tile_loader.cuh"
#include "custom_calls/cuda/warpgroup.cuh"

namespace bk::cuda {

// The tiling of a kernel that was launched for `Shape`.
template <class Shape, bool kAligned>
struct TilingOnGpu {
  using Type = Shape;
};

#if BK_HAS_WARPGROUPS

// 128 x 128 entries, 8 warps: the shape of LargeTiling, with other entries for
// a thread.
struct WarpgroupTiling : LargeTiling {
  static constexpr int kGroupRows = 64;
  __device__ static int Group() { return ThreadIndex() / 128; }
};

template <>
struct TilingOnGpu<LargeTiling, true> {
  using Type = WarpgroupTiling;
};

template <>
struct Entries<WarpgroupTiling> {
  __device__ static int Row(int /*i*/, int e) {
    return ThreadIndex() / 32 * 16 + WarpgroupTiling::Lane() / 4 + e / 2 * 8;
  }
  __device__ static int Column(int i, int j, int e) {
    return 32 * i + 8 * j + WarpgroupTiling::Lane() % 4 * 2 + e % 2;
  }
};

// Two entries on the diagonal, for some threads of every warp.
template <>
struct Diagonal<WarpgroupTiling> {
  int place;  // in fragments along the diagonal, even
  int entry;  // 0 or 1, else there are none

  __device__ Diagonal() {
    const int lane = WarpgroupTiling::Lane();
    place = ThreadIndex() / 32 * 2;
    entry = lane / 4 - lane % 4 * 2;
  }
  __device__ bool Exists() const { return entry == 0 || entry == 1; }
  // Number j; 0 for those after the second.
  __device__ float Of(const WarpSums& sums, int j) const {
    float own = 0;
    if (j >= 2) return own;
#pragma unroll
    for (int p = 0; p < kDown * kAcross; p += 2) {
      const float(&at)[4] = sums.at[(p + j) / kAcross][(p + j) % kAcross];
      const int first = 2 * j;
      const float here = entry == 0 ? at[first] : at[first + 1];
      own = p == place ? here : own;
    }
    return own;
  }
  // The row of that entry in the tile; outside of it after the second.
  __device__ int Row(int j) const {
    if (j >= 2) return WarpgroupTiling::kSide;
    return place * 8 + WarpgroupTiling::Lane() / 4 + 8 * j;
  }
};

// Rows of 64 columns: the left half of all terms, then the right one.
template <class T>
struct ColumnsPlace<T, WarpgroupTiling> {
  static constexpr int kRowBytes = kChunkBytes;
  static constexpr int kHalfBytes = kChunkTerms<T> * kRowBytes;
  __device__ static uint32_t Of(int row, int unit) {
    return static_cast<uint32_t>(unit / 8 * kHalfBytes + row * kRowBytes +
                                 (unit % 8 ^ row % 8) * kUnit);
  }
};

template <class T, Layout kLayout>
class MainLoop<T, kLayout, WarpgroupTiling> {
 public:
  using Tiles = WarpgroupTiling;

  template <class Source>
  __device__ MainLoop(StagesShared<Tiles>& shared, Source& source)
      : ring_(shared, source) {}

  // sums += the product of the next chunk.
  template <class Source>
  __device__ void Multiply(Source& source, uint32_t right, WarpSums& sums) {
    WaitForNext();
    const Descriptors at(ring_.Next(), right);
    WarpgroupFence(sums.at);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) at.Add(step, sums);
    WarpgroupCommit();
    ring_.Advance(source);
    WarpgroupWait<0>(sums.at);
  }

  // The same for a chunk with only so many terms that are not 0.
  template <class Source>
  __device__ void MultiplyShort(Source& source, uint32_t right, int terms,
                                WarpSums& sums) {
    constexpr int kTerms = kChunkTerms<T> / kSteps;
    WaitForNext();
    const Descriptors at(ring_.Next(), right);
    ring_.Advance(source);
#pragma unroll 1
    for (int step = 0; step * kTerms < terms; ++step) {
      WarpgroupFence(sums.at);
      at.Add(step, sums);
      WarpgroupCommit();
      WarpgroupWait<0>(sums.at);
    }
  }

  // Everybody has left the stages.
  __device__ void End() { __syncthreads(); }

 private:
  // Both operands, in rows of 128 bytes; 16 terms on.
  struct Descriptors {
    static constexpr int kHalfBytes = ColumnsPlace<T, Tiles>::kHalfBytes;
    static constexpr int kRowsBytes = 8 * kChunkBytes;
    static constexpr int kStepBytes =
        kLayout == Layout::kRows ? 2 * kUnit : 2 * kRowsBytes;
    uint64_t left, right;

    // 64 lines of the left piece for each warpgroup: as large as a half.
    __device__ Descriptors(SharedAddress piece, uint32_t right_offset)
        : left(MatrixDescriptor(piece + Tiles::Group() * kHalfBytes, kHalfBytes,
                                kRowsBytes)),
          right(
              MatrixDescriptor(piece + right_offset, kHalfBytes, kRowsBytes)) {}
    __device__ void Add(int step, WarpSums& sums) const {
      const int on = step * kStepBytes / kUnit;
      WarpgroupMultiply<kLayout>(T{}, left + on, right + on, true, sums.at);
    }
  };

  __device__ void WaitForNext() {
    WaitForCopies<kStages - 2>();
    FenceAsyncProxy();
    __syncthreads();
  }

  StageRing<Tiles> ring_;
};

#endif

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_WARPGROUP_LOOP_CUH_
