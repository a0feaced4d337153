// a^T g of every example and weight, one 64 x 64 tile per item: the sum of its
// squares, and the tile itself if it is wanted.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_PRODUCT_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_PRODUCT_CUH_

#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/engine.cuh"
#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/squares.cuh"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// Tiles of [d, p].
__host__ __device__ inline int64_t ProductTiles(const DenseShape& shape) {
  return CeilDiv(shape.d, kTile) * CeilDiv(shape.p, kTile);
}

template <class E>
struct ProductShared {
  union {
    struct {
      Piece<typename E::Stage, Layout::kColumns> left[2], right[2];
    } pieces;
    TileOf<typename E::Acc> tile;
  };
  double scratch[kThreads / 32];
};

// sums += left[rows]^T right[rows] for rows [begin, end) and the columns of one
// tile. Ends with a barrier.
template <class E, bool kScaled, class Left, class Right, class Pieces>
__device__ void AddProduct(const Left& left, const Right& right, Window a,
                           Window b, bool a_aligned, bool b_aligned,
                           typename E::Acc scale, Pieces& pieces,
                           typename E::Acc (&sums)[kSums]) {
  using S = typename E::Stage;
  Carried<S, Layout::kColumns> a_next;
  Carried<S, Layout::kColumns, kScaled> b_next;
  const int64_t end = a.row_end;
  a_next.Load(left, a, a_aligned);
  b_next.Load(right, b, b_aligned);
  a_next.Store(pieces.left[0]);
  b_next.Store(pieces.right[0]);
  __syncthreads();
  int half = 0;
  for (; a.row < end; half ^= 1) {
    const int64_t depth = end - a.row;
    a.row += kDepth<S>;
    b.row += kDepth<S>;
    const bool more = a.row < end;
    if (more) {
      a_next.Load(left, a, a_aligned);
      b_next.Load(right, b, b_aligned);
    }
    E::template Add<Layout::kColumns>(pieces.left[half], pieces.right[half],
                                      depth, scale, sums);
    if (more) {
      a_next.Store(pieces.left[half ^ 1]);
      b_next.Store(pieces.right[half ^ 1]);
    }
    __syncthreads();
  }
}

// Copies the valid part of a tile to out [rows, columns], at (row, column).
template <class Acc>
__device__ void CopyTile(const TileOf<Acc>& tile, int64_t row, int64_t rows,
                         int64_t column, int64_t columns, bool add, Acc* out) {
  for (int index = ThreadIndex(); index < kTile * kTile; index += kThreads) {
    const int64_t i = row + index / kTile;
    const int64_t j = column + index % kTile;
    if (i >= rows || j >= columns) continue;
    const Acc x = tile.at[index / kTile * TileOf<Acc>::kStride + index % kTile];
    Acc& to = out[i * columns + j];
    to = add ? to + x : x;
  }
}

// squares [B, weights, tiles], and grad [B, weights, d, p] unless that is null,
// of the examples in `wanted`; the weights of all layers.
template <class T, class E>
__global__ void __launch_bounds__(kThreads)
    ProductKernel(DenseShape shape, BK_TABLE LayerPairs<T> layers,
                  ExampleList wanted, double* squares, Accumulator<T>* grad) {
  BK_SHARED(ProductShared<E>, shared);
  const int64_t column_tiles = CeilDiv(shape.p, kTile);
  const int64_t tiles = ProductTiles(shape);
  const int64_t items = wanted.Count(shape.batch) * shape.weights * tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t number = item / tiles;
    const int64_t pair = wanted.At(number / shape.weights) * shape.weights +
                         number % shape.weights;
    const LayerPlace place = layers.Of(pair);
    const T* a = layers.left[place.layer];
    const T* g = layers.right[place.layer];
    const int64_t row = item % tiles / column_tiles * kTile;
    const int64_t column = item % column_tiles * kTile;
    const int64_t t0 = place.matrix * shape.positions;
    const int64_t t1 = t0 + shape.positions;
    typename E::Acc sums[kSums] = {};
    AddProduct<E, false>(PlainRows<T>{a, shape.d}, PlainRows<T>{g, shape.p},
                         {t0, t1, row, shape.d}, {t0, t1, column, shape.p},
                         IsAligned(a, shape.d), IsAligned(g, shape.p), 1,
                         shared.pieces, sums);
    const double total = BlockSum(Squares(sums), shared.scratch);
    if (threadIdx.x == 0) squares[pair * tiles + item % tiles] = total;
    if (grad != nullptr) {
      E::Store(sums, shared.tile);
      __syncthreads();
      CopyTile(shared.tile, row, shape.d, column, shape.p, false,
               grad + pair * shape.d * shape.p);
    }
    __syncthreads();
  }
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_PRODUCT_CUH_
