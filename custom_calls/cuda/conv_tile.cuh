// Tiles of the gradient of a convolution kernel: implicit matrix products.
// Operands are gathered into shared memory, kSlab output pixels at a time.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CONV_TILE_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_CONV_TILE_CUH_

#include "custom_calls/cuda/conv_task.cuh"
#include "custom_calls/cuda/fma_tile.cuh"

namespace bk::cuda {

// Tiles of one slice: groups, tiles of (offset, input channel), tiles of output
// channels.
struct ConvTiles {
  int64_t groups, rows, columns;
  __host__ __device__ int64_t Count() const { return groups * rows * columns; }
};
__host__ __device__ inline ConvTiles ConvTilesOf(const ConvShape& s) {
  return {s.groups, CeilDiv(Volume(s.kernel) * s.cin, kFmaTile),
          CeilDiv(s.cout, kFmaTile)};
}

template <class Acc>
struct ConvShared {
  Slab<Acc> slab;
  OutputPixel pixels[kChain];
  double scratch[5][kFmaThreads / 32];
};

// A thread fills one row and one column of the tile, every fourth pixel.
struct ConvLane {
  bool row_inside, column_inside;
  Offset offset;
  int64_t x_channel, g_channel;
};
__device__ inline ConvLane LaneOf(const ConvShape& s, int64_t group,
                                  int64_t row0, int64_t column0) {
  const int64_t row = row0 + threadIdx.x % kFmaTile;
  const int64_t column = column0 + threadIdx.x % kFmaTile;
  return {row < Volume(s.kernel) * s.cin, column < s.cout,
          OffsetOf(s, row / s.cin), group * s.cin + row % s.cin,
          group * s.cout + column};
}

// Gathers pixels [t, t + kSlab) of an example; pixels[first] is that of t.
template <class T>
__device__ void GatherSlab(const ConvShape& s, const T* x, const T* g,
                           Accumulator<T> factor, const ConvLane& lane,
                           int64_t t, int64_t t_end, int first,
                           ConvShared<Accumulator<T>>& shared,
                           SquareSum<Accumulator<T>>& x_squares,
                           SquareSum<Accumulator<T>>& g_squares) {
  using Acc = Accumulator<T>;
  constexpr int kStep = kFmaThreads / kFmaTile;
  const int column = static_cast<int>(threadIdx.x) % kFmaTile;
#pragma unroll
  for (int k = static_cast<int>(threadIdx.x) / kFmaTile; k < kSlab;
       k += kStep) {
    Acc x_value = 0;
    Acc g_value = 0;
    if (t + k < t_end && lane.row_inside) {
      const int64_t at = InputPixel(s, shared.pixels[first + k], lane.offset);
      if (at >= 0) {
        x_value = ToAccumulator(x[at * s.groups * s.cin + lane.x_channel]);
      }
    }
    if (t + k < t_end && lane.column_inside) {
      g_value = factor *
                ToAccumulator(g[(t + k) * s.groups * s.cout + lane.g_channel]);
    }
    x_squares.Add(x_value);
    g_squares.Add(g_value);
    shared.slab.left[k][column] = x_value;
    shared.slab.right[k][column] = g_value;
  }
}

// Adds one example to the sums of the tile.
template <class T>
__device__ void AddExample(const ConvTask<T>& task, int64_t example,
                           const ConvLane& lane,
                           ConvShared<Accumulator<T>>& shared,
                           TileSums<Accumulator<T>>& sums,
                           SquareSum<Accumulator<T>>& x_squares,
                           SquareSum<Accumulator<T>>& g_squares) {
  const ConvShape& s = task.shape;
  const int64_t pixels = s.images * Volume(s.out);
  for (int64_t block = 0; block < pixels; block += kChain) {
    if (threadIdx.x < kChain && block + threadIdx.x < pixels) {
      shared.pixels[threadIdx.x] = PixelOf(s, block + threadIdx.x);
    }
    __syncthreads();
    for (int first = 0; first < kChain && block + first < pixels;
         first += kSlab) {
      GatherSlab(s, task.Image(example), task.Gradient(example),
                 task.Factor(example), lane, block + first, pixels, first,
                 shared, x_squares, g_squares);
      __syncthreads();
      sums.Add(shared.slab);
      __syncthreads();
    }
    sums.EndChain();
    x_squares.EndChain();
    g_squares.EndChain();
  }
}

// Stores this thread's entries; returns their squares.
template <class T>
__device__ double StoreTile(const ConvTask<T>& task, int64_t slice,
                            int64_t group, int64_t row0, int64_t column0,
                            const TileSums<Accumulator<T>>& sums) {
  const ConvShape& s = task.shape;
  double squares = 0;
#pragma unroll
  for (int i = 0; i < kFmaOwn; ++i) {
#pragma unroll
    for (int j = 0; j < kFmaOwn; ++j) {
      const int64_t row = row0 + OwnRow(i);
      const int64_t column = column0 + OwnColumn(j);
      if (row >= Volume(s.kernel) * s.cin || column >= s.cout) continue;
      const int64_t n = row * s.groups * s.cout + group * s.cout + column;
      squares += task.Store(slice, n, sums.total[i][j]);
    }
  }
  return squares;
}

// The squares of all threads, and the bound: entries (r, o) of the tile have
// sum_t x_tr^2 sum_t g_to^2, whose sum is the product of the two sums. Thread 0
// gets the result.
template <class T>
__device__ ConvPartial TilePartial(const ConvShape& s, double squares,
                                   const SquareSum<Accumulator<T>>& x_squares,
                                   const SquareSum<Accumulator<T>>& g_squares,
                                   ConvShared<Accumulator<T>>& shared) {
  using Acc = Accumulator<T>;
  const int64_t count = s.images * Volume(s.out) * kFmaTile;
  const double total = BlockSum(squares, shared.scratch[0]);
  const double x_total = BlockSum(x_squares.total, shared.scratch[1]);
  const double g_total = BlockSum(g_squares.total, shared.scratch[2]);
  const double x_nonzero =
      BlockSum(x_squares.nonzero ? 1 : 0, shared.scratch[3]);
  const double g_nonzero =
      BlockSum(g_squares.nonzero ? 1 : 0, shared.scratch[4]);
  return {total,
          WithSmallest<Acc>(x_total, count) * WithSmallest<Acc>(g_total, count),
          x_nonzero * g_nonzero};
}

// One block per multiprocessor is asked for, lest ptxas spills to have two.
template <class T>
__global__ void __launch_bounds__(kFmaThreads, 1)
    ConvTileKernel(ConvTask<T> task) {
  using Acc = Accumulator<T>;
  BK_SHARED(ConvShared<Acc>, shared);
  const ConvShape& s = task.shape;
  const ConvTiles tiles = ConvTilesOf(s);
  for (int64_t item = blockIdx.x; item < task.slices * tiles.Count();
       item += gridDim.x) {
    const int64_t slice = item / tiles.Count();
    const int64_t group = item % tiles.Count() / tiles.columns / tiles.rows;
    const int64_t row0 = item / tiles.columns % tiles.rows * kFmaTile;
    const int64_t column0 = item % tiles.columns * kFmaTile;
    const ConvLane lane = LaneOf(s, group, row0, column0);
    TileSums<Acc> sums;
    sums.Clear();
    SquareSum<Acc> x_squares, g_squares;
    for (int64_t i = task.Begin(slice); i < task.Begin(slice + 1); ++i) {
      if (task.Factor(i) == 0) continue;
      AddExample(task, i, lane, shared, sums, x_squares, g_squares);
    }
    const double squares = StoreTile(task, slice, group, row0, column0, sums);
    if (task.partials != nullptr) {
      const ConvPartial partial =
          TilePartial<T>(s, squares, x_squares, g_squares, shared);
      if (threadIdx.x == 0) task.partials[item] = partial;
    }
    __syncthreads();
  }
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CONV_TILE_CUH_
