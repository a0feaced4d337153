// a^T g of every example and weight on the main loop, one tile per item: the
// sum of its squares, and the tile itself if it is wanted. 16-bit elements.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_PRODUCT_TILES_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_PRODUCT_TILES_CUH_

#include "custom_calls/cuda/chain.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/example_rows.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/squares.cuh"
#include "custom_calls/cuda/tiles.cuh"
#include "custom_calls/cuda/warpgroup_loop.cuh"

namespace bk::cuda {

// Chunks that a tensor core adds up: 256 terms, 768 roundings at most.
inline constexpr int kProductChunks = 4;

// Roundings of an entry of a^T g.
template <class T>
int64_t ProductRoundings(int64_t positions) {
  return ChainedRoundings(positions, kProductChunks * kChunkTerms<T>);
}

// squares [B, weights, tiles], and grad [B, weights, d, p] unless that is null,
// of the examples in `wanted`; the weights of all layers.
template <class T, class Shape, bool kAligned>
__global__ void __launch_bounds__(Shape::kThreads)
    ProductTilesKernel(BK_TABLE LayerRows<T> layers, ExampleList wanted,
                       double* squares, float* grad) {
  using Tiles = typename TilingOnGpu<Shape, kAligned>::Type;
  using Loader = typename Loaders<T, Tiles, kAligned>::Columns;
  BK_DYNAMIC_SHARED(StagesShared<Tiles>, shared);
  const int64_t d = layers.left_width, p = layers.right_width;
  const int64_t weights = layers.Weights();
  const int64_t down = CeilDiv(d, Tiles::kSide);
  const int64_t across = CeilDiv(p, Tiles::kSide);
  const int64_t tiles = down * across;
  const int64_t items = wanted.Count(layers.examples) * weights * tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t number = item / tiles;
    const int64_t example = wanted.At(number / weights);
    const int64_t weight = number % weights;
    const int64_t pair = example * weights + weight;
    const RowPairs<T> rows = layers.Of(weight);
    const TilePlace place = PlaceOf(item % tiles, down, across);
    const int64_t row = place.row * Tiles::kSide;
    const int64_t column = place.column * Tiles::kSide;
    const ExampleRange examples = {weight % rows.weights, example, example + 1};
    WarpSums sums = {};
    SumOfProducts<kProductChunks, T, Tiles, Loader>(shared, rows, examples, row,
                                                    column, sums);
    const double total = BlockSum(Squares(AsList(sums)), shared.scratch);
    if (threadIdx.x == 0) squares[pair * tiles + item % tiles] = total;
    if (grad != nullptr) {
      StoreTile<Tiles>(sums, row, d, column, p, false, grad + pair * d * p);
    }
    __syncthreads();
  }
}

template <class T, class Tiles>
cudaError_t LaunchProductTiles(const LayerRows<T>& rows, ExampleList wanted,
                               int64_t blocks, double* squares, float* grad,
                               cudaStream_t stream) {
  if (!HasOffsets(rows.positions, rows.left_width, rows.right_width)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = rows.AreAligned() ? ProductTilesKernel<T, Tiles, true>
                                        : ProductTilesKernel<T, Tiles, false>;
  return LaunchWithShared(kernel, blocks, Tiles::kThreads,
                          sizeof(StagesShared<Tiles>), stream, rows, wanted,
                          squares, grad);
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_PRODUCT_TILES_CUH_
