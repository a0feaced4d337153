// Ghost norms of 16-bit elements. One block for each (example, layer, weight,
// pair of tiles I <= J of positions):
//
//   1. stream the features of x: the tile (I, J) of x x^T, held in registers
//   2. stream those of y: each chunk of 64 features makes a tile of its own,
//      which is multiplied with the first one entry by entry and added up, in
//      float over 16 entries, then in double; once or twice (I < J)
//
// x is the narrower of the two operands. Blocks with I = J also have the
// lengths of rows on the diagonals of both tiles.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_GRAM_KERNEL_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_GRAM_KERNEL_CUH_

#include "custom_calls/cuda/chain.h"
#include "custom_calls/cuda/gram.cuh"
#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/shifted_loader.cuh"
#include "custom_calls/cuda/tile_pairs.cuh"
#include "custom_calls/cuda/warpgroup_loop.cuh"

namespace bk::cuda {

// x [B, N, positions, x_width] and y [B, N, positions, y_width] of each layer,
// its left and its right operand.
template <class T>
struct GramOperands {
  LayerPairs<T> layers;
  int64_t batch, positions, x_width, y_width;

  int64_t Count() const { return batch * layers.count * layers.weights; }

  // Rows from `first` on of a matrix.
  __device__ RowTile<T> XTile(LayerPlace place, int64_t first) const {
    return Tile(layers.left[place.layer], place.matrix, first, x_width);
  }
  __device__ RowTile<T> YTile(LayerPlace place, int64_t first) const {
    return Tile(layers.right[place.layer], place.matrix, first, y_width);
  }

 private:
  __device__ RowTile<T> Tile(const T* array, int64_t matrix, int64_t first,
                             int64_t width) const {
    const int64_t size = positions * width;
    return {array + matrix * size,
            first,
            positions,
            width,
            {array, array + batch * layers.weights * size}};
  }
};

// inner [count, pairs]; spreads [count, tiles]: sums over the positions of a
// tile of bounds of |x_t| |y_t|, negative where no term is known not to be 0.
struct GramResults {
  double* inner;
  double* spreads;
};

// Entries outside of the matrix weigh nothing.
template <class Tiles>
__device__ void ClearOutside(int64_t rows, int64_t columns, WarpSums& sums) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (Entries<Tiles>::Row(i, e) >= rows ||
            Entries<Tiles>::Column(i, j, e) >= columns) {
          sums.at[i][j][e] = 0;
        }
      }
    }
  }
}

// What a thread has of the sum of |x_t| |y_t|.
struct Spread {
  double sum = 0;
  bool sure = false;  // that it is not 0
};

template <class T, class Tiles>
__device__ Spread SpreadOf(const GramOperands<T>& operands, int64_t rows,
                           const WarpSums& held, const float (&y)[kAcross]) {
  const Diagonal<Tiles> own;
  const double x_tiny = static_cast<double>(operands.x_width) * kTensorTiny;
  const double y_tiny = static_cast<double>(operands.y_width) * kTensorTiny;
  Spread spread;
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    if (!own.Exists() || own.Row(j) >= rows) continue;
    const float x = own.Of(held, j);
    spread.sum += sqrt(static_cast<double>(x) + x_tiny) *
                  sqrt(static_cast<double>(y[j]) + y_tiny);
    spread.sure = spread.sure || (x > 0 && y[j] > 0);
  }
  return spread;
}

template <class T, class Shape, bool kAligned>
__global__ void __launch_bounds__(Shape::kThreads)
    GramKernel(BK_TABLE GramOperands<T> operands, int64_t count,
               GramResults results) {
  using Tiles = typename TilingOnGpu<Shape, kAligned>::Type;
  using Chunks =
      GramChunks<T, Tiles, typename Loaders<T, Tiles, kAligned>::Rows>;
  BK_DYNAMIC_SHARED(StagesShared<Tiles>, shared);
  const int64_t positions = operands.positions;
  const int64_t pairs = TilePairs(positions, Tiles::kSide);
  for (int64_t item = blockIdx.x; item < count * pairs; item += gridDim.x) {
    const int64_t number = item / pairs;
    const LayerPlace place = operands.layers.Of(number);
    const TilePair pair = PairOf(item % pairs);
    const bool diagonal = pair.i == pair.j;
    HeldGram first;
    ForEachGram<T, Tiles>(shared,
                          Chunks(operands.XTile(place, pair.i * Tiles::kSide),
                                 operands.XTile(place, pair.j * Tiles::kSide)),
                          first);
    const int64_t rows = positions - pair.i * Tiles::kSide;
    ClearOutside<Tiles>(rows, positions - pair.j * Tiles::kSide, first.held);
    WeighedGram<Tiles> second = {first.held, diagonal};
    ForEachGram<T, Tiles>(shared,
                          Chunks(operands.YTile(place, pair.i * Tiles::kSide),
                                 operands.YTile(place, pair.j * Tiles::kSide)),
                          second);
    const double total = BlockSum(second.inner, shared.scratch);
    if (threadIdx.x == 0) results.inner[item] = diagonal ? total : 2 * total;
    __syncthreads();
    if (!diagonal) continue;
    const Spread own =
        SpreadOf<T, Tiles>(operands, rows, first.held, second.diagonal);
    const double sum = BlockSum(own.sum, shared.scratch);
    __syncthreads();
    const double sure = BlockSum(own.sure ? 1 : 0, shared.scratch);
    if (threadIdx.x == 0) {
      const int64_t tiles = CeilDiv(positions, Tiles::kSide);
      results.spreads[number * tiles + pair.i] = sure > 0 ? sum : -sum;
    }
    __syncthreads();
  }
}

template <class T, class Tiles>
cudaError_t LaunchGram(const GramOperands<T>& operands, GramResults results,
                       cudaStream_t stream) {
  if (!HasOffsets(operands.positions, operands.x_width, operands.y_width)) {
    return cudaErrorInvalidValue;
  }
  const bool aligned = operands.layers.All([&](const T* x, const T* y) {
    return RowsAreAligned(x, operands.x_width) &&
           RowsAreAligned(y, operands.y_width);
  });
  const auto kernel =
      aligned ? GramKernel<T, Tiles, true> : GramKernel<T, Tiles, false>;
  const int64_t count = operands.Count();
  return LaunchWithShared(kernel,
                          count * TilePairs(operands.positions, Tiles::kSide),
                          Tiles::kThreads, sizeof(StagesShared<Tiles>), stream,
                          operands, count, results);
}

// Roundings of float on the way of a term a_t a_s g_t g_s, all together: those
// of an entry of x x^T, of an entry of a chunk of y y^T, of the sum of their
// products. By Cauchy-Schwarz over chunks c, sum_c |y_tc| |y_sc| <= |y_t|
// |y_s|: the error is relative to the same S^2 as without them.
template <class T>
int64_t GramRoundings(int64_t x_width) {
  return ChainedRoundings(x_width, kChunkTerms<T>) +
         ChainRoundings(kChunkTerms<T>) + kInnerChain + 2;
}

// Products of entries may underflow in float: less than 2^-149 is lost each.
template <class T>
double GramUnderflow(int64_t positions, int64_t y_width) {
  const auto pairs = static_cast<double>(positions * positions);
  return pairs * static_cast<double>(CeilDiv(y_width, kChunkTerms<T>)) *
         0x1p-149;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_GRAM_KERNEL_CUH_
