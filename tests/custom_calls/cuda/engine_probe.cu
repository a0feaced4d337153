// The smallest kernels around the main loop and TensorEngine::Add: one block,
// one chunk.
#include "custom_calls/cuda/engine.cuh"
#include "custom_calls/cuda/gram.cuh"
#include "custom_calls/cuda/tiles.cuh"
#include "tests/custom_calls/cuda/engine_probe.h"

namespace bk::cuda {
namespace {

template <class T>
struct ProbeShared {
  Piece<T, Layout::kRows> left, right;
  TileOf<float> tile;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    ProbeKernel(const T* left, const T* right, float* out) {
  BK_SHARED(ProbeShared<T>, shared);
  Carried<T, Layout::kRows> piece;
  const Window all = {0, kTile, 0, kDepth<T>};
  piece.Load(PlainRows<T>{left, kDepth<T>}, all, IsAligned(left, kDepth<T>));
  piece.Store(shared.left);
  piece.Load(PlainRows<T>{right, kDepth<T>}, all, IsAligned(right, kDepth<T>));
  piece.Store(shared.right);
  __syncthreads();
  float sums[kSums] = {};
  TensorEngine<T>::template Add<Layout::kRows>(shared.left, shared.right,
                                               kDepth<T>, 1, sums);
  TensorEngine<T>::Store(sums, shared.tile);
  __syncthreads();
  for (int k = ThreadIndex(); k < kTile * kTile; k += kThreads) {
    out[k] = shared.tile.at[k / kTile * TileOf<float>::kStride + k % kTile];
  }
}

template <class T>
__global__ void __launch_bounds__(SmallTiling::kThreads)
    LoopProbeKernel(const T* left, const T* right, float* out) {
  using Chunks = GramChunks<T, SmallTiling, RowsLoader<T, SmallTiling>>;
  BK_DYNAMIC_SHARED(StagesShared<SmallTiling>, shared);
  constexpr int64_t kSide = SmallTiling::kSide, kTerms = kChunkTerms<T>;
  HeldGram sum;
  ForEachGram<T, SmallTiling>(
      shared,
      Chunks({left, 0, kSide, kTerms, {left, left + kSide * kTerms}},
             {right, 0, kSide, kTerms, {right, right + kSide * kTerms}}),
      sum);
  StoreTile<SmallTiling>(sum.held, 0, kSide, 0, kSide, false, out);
}

}  // namespace

template <class T>
cudaError_t ChunkProduct(const T* left, const T* right, float* out,
                         cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    return LaunchWithShared(LoopProbeKernel<T>, 1, SmallTiling::kThreads,
                            sizeof(StagesShared<SmallTiling>), stream, left,
                            right, out);
  } else {
    return Launch(ProbeKernel<T>, 1, kThreads, stream, left, right, out);
  }
}

template <class T>
ChunkCounts CountsOfChunk() {
  if constexpr (sizeof(T) == 2) {
    return {kChunkTerms<T>, ChainRoundings(kChunkTerms<T>), kInstructionTerms,
            kLoopInstructions};
  } else {
    using E = TensorEngine<T>;
    return {kDepth<T>, E::kChunkRoundings, Mma<T>::kTerms, E::kInstructions};
  }
}

#define BK_INSTANTIATE(T)                                                      \
  template cudaError_t ChunkProduct(const T*, const T*, float*, cudaStream_t); \
  template ChunkCounts CountsOfChunk<T>();
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)

}  // namespace bk::cuda
