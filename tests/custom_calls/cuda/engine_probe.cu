// The smallest kernel around TensorEngine::Add: one block, one chunk.
#include "custom_calls/cuda/engine.cuh"
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

}  // namespace

template <class T>
cudaError_t ChunkProduct(const T* left, const T* right, float* out,
                         cudaStream_t stream) {
  return Launch(ProbeKernel<T>, 1, kThreads, stream, left, right, out);
}

template <class T>
ChunkCounts CountsOfChunk() {
  using E = TensorEngine<T>;
  return {kDepth<T>, E::kChunkRoundings, Mma<T>::kTerms, E::kInstructions};
}

#define BK_INSTANTIATE(T)                                                      \
  template cudaError_t ChunkProduct(const T*, const T*, float*, cudaStream_t); \
  template ChunkCounts CountsOfChunk<T>();
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)

}  // namespace bk::cuda
