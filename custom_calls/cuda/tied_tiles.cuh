// The cross term of 16-bit elements: tiles of the inner products right_t . g_s
// on the main loop. When a tile is done, each of its entries is multiplied with
// left[t, id_s], which is gathered, and all are added up in double.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TIED_TILES_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TIED_TILES_CUH_

#include "custom_calls/cuda/chain.h"
#include "custom_calls/cuda/gram.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/shifted_loader.cuh"
#include "custom_calls/cuda/tied_operands.cuh"
#include "custom_calls/cuda/tiles.cuh"
#include "custom_calls/cuda/warpgroup_loop.cuh"

namespace bk::cuda {

// Roundings of float of an inner product: those of a chunk in the tensor core,
// and of the sum of chunks.
template <class T>
int64_t TiedRoundings(int64_t p) {
  return ChainedRoundings(p, kChunkTerms<T>);
}

// The tokens of a tile: each is looked up once, and read by all of its column.
template <class Tiles>
struct TileTokens {
  int32_t id[Tiles::kSide];     // negative: not read
  double length[Tiles::kSide];  // of g_s; 0 if not read

  template <class T>
  __device__ void Fill(const TiedExample<T>& example, int64_t first) {
    for (int k = ThreadIndex(); k < Tiles::kSide; k += Tiles::kThreads) {
      const bool read = example.IsRead(first + k);
      id[k] = read ? example.ids[first + k] : -1;
      length[k] = read ? example.g_length[first + k] : 0;
    }
  }
};

template <class Tiles>
struct TiedShared {
  StagesShared<Tiles> stages;
  TileTokens<Tiles> tokens;
};

// What entries (i, j, half) and (i, j, half + 1) of a thread contribute: a part
// of one row of the tile, of which `left` is the row of the table's inputs.
// Tokens that are not read take no part, whatever their inner products are. All
// loads are under way before one is waited for.
template <class T, class Tiles>
__device__ TiedPartial WeighRow(const T* left, const TileTokens<Tiles>& tokens,
                                int i, int half, const WarpSums& sums) {
  float weight[kAcross][2];
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int32_t id = tokens.id[Entries<Tiles>::Column(i, j, half + e)];
      weight[j][e] = id < 0 ? 0 : ToAccumulator(left[id]);
    }
  }
  TiedPartial row = {0, 0};
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = Entries<Tiles>::Column(i, j, half + e);
      const bool read = tokens.id[column] >= 0;
      const double entry = read ? sums.at[i][j][half + e] : 0;
      const double own = weight[j][e];
      row.inner = Fma(own, entry, row.inner);
      row.bound = Fma(fabs(own), tokens.length[column], row.bound);
    }
  }
  return row;
}

// What this thread's inner products contribute.
template <class T, class Tiles>
__device__ TiedPartial WeighTile(const TiedExample<T>& example, int64_t first,
                                 const TileTokens<Tiles>& tokens,
                                 const WarpSums& sums) {
  TiedPartial partial = {0, 0};
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
      const int64_t t = first + Entries<Tiles>::Row(i, half);
      if (t >= example.positions) continue;
      const T* left = example.left + t * example.rows;
      const TiedPartial row = WeighRow<T, Tiles>(left, tokens, i, half, sums);
      partial.inner += row.inner;
      partial.bound = Fma(row.bound, example.right_length[t], partial.bound);
    }
  }
  return partial;
}

// partials [batch, tiles].
template <class T, class Shape, bool kAligned>
__global__ void __launch_bounds__(Shape::kThreads)
    TiedTilesKernel(TiedOperands<T> operands, TiedPartial* partials) {
  using Tiles = typename TilingOnGpu<Shape, kAligned>::Type;
  using Chunks =
      GramChunks<T, Tiles, typename Loaders<T, Tiles, kAligned>::Rows>;
  BK_DYNAMIC_SHARED(TiedShared<Tiles>, shared);
  double* const scratch = shared.stages.scratch;
  const TiedTiles tiles = TiedTilesOf(operands.shape, Tiles::kSide);
  const int64_t items = operands.shape.batch * tiles.Count();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const TiedExample<T> example = operands.Of(item / tiles.Count());
    const TilePlace place =
        PlaceOf(item % tiles.Count(), tiles.rows, tiles.columns);
    const int64_t row = place.row * Tiles::kSide;
    const int64_t column = place.column * Tiles::kSide;
    shared.tokens.Fill(example, column);
    HeldGram products;
    ForEachGram<T, Tiles>(shared.stages,
                          Chunks(operands.RightTile(example, row),
                                 operands.GradientTile(example, column)),
                          products);
    const TiedPartial own =
        WeighTile<T, Tiles>(example, row, shared.tokens, products.held);
    const double inner = BlockSum(own.inner, scratch);
    __syncthreads();
    const double bound = BlockSum(own.bound, scratch);
    if (threadIdx.x == 0) partials[item] = {inner, bound};
    __syncthreads();
  }
}

template <class T, class Tiles>
cudaError_t LaunchTiedTiles(const TiedOperands<T>& operands,
                            TiedPartial* partials, cudaStream_t stream) {
  const TiedCrossShape& shape = operands.shape;
  const bool aligned = RowsAreAligned(operands.right, shape.p) &&
                       RowsAreAligned(operands.g, shape.p);
  const auto kernel = aligned ? TiedTilesKernel<T, Tiles, true>
                              : TiedTilesKernel<T, Tiles, false>;
  const int64_t items = shape.batch * TiedTilesOf(shape, Tiles::kSide).Count();
  return LaunchWithShared(kernel, items, Tiles::kThreads,
                          sizeof(TiedShared<Tiles>), stream, operands,
                          partials);
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TIED_TILES_CUH_
