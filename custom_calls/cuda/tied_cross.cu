// Tiles of the inner products right_t . g_s, each weighted with left[t, id_s],
// which is gathered when the tile is done. Three kernels: lengths of rows,
// tiles, and the sum of an example's tiles. Tiles of 16-bit elements are made
// on tensor cores (tied_tiles.cuh), others by multiply-adds.
#include <cmath>
#include <limits>

#include "custom_calls/certified.h"
#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/fma_tile.cuh"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/tied_cross.h"
#include "custom_calls/cuda/tied_operands.cuh"
#include "custom_calls/cuda/tied_tiles.cuh"

namespace bk::cuda {
namespace {

constexpr int kWarps = kFmaThreads / 32;

// Side of the tiles of elements of type T.
template <class T>
int64_t SideOf(const TiedCrossShape& shape) {
  if (sizeof(T) != 2) return kFmaTile;
  return TileSide(shape.batch, shape.positions, shape.tokens);
}

// Roundings of the accumulator type in an inner product.
template <class T>
int64_t InnerRoundings(int64_t p) {
  if constexpr (sizeof(T) == 2) {
    return TiedRoundings<T>(p);
  } else {
    return p < kChain ? p : kChain;
  }
}

// kappa * u such that |computed - exact| <= kappa u X; the derivation is that
// of cpu/tied_cross.cc. What follows inner products is double: at most 64
// entries of a thread, 256 threads, tiles; also chains of features, and
// lengths.
template <class T>
double RelativeError(const TiedCrossShape& shape) {
  const int64_t inner = InnerRoundings<T>(shape.p) + 2;
  const int64_t wide =
      2 * shape.p + 256 + TiedTilesOf(shape, SideOf<T>(shape)).Count();
  return 1.02 * (static_cast<double>(inner) * kUnitRoundoff<Accumulator<T>> +
                 static_cast<double>(wide) * kUnitRoundoff<double>);
}

// Of the squared length of a row that is not zero, for each feature: it makes
// up for products that underflow, or that a tensor core flushes to zero.
template <class T>
constexpr double kLeastSquare =
    sizeof(T) == 2 ? kTensorTiny : std::numeric_limits<Accumulator<T>>::min();

// length[r] >= |x_r| up to rounding, one warp per row of x [rows, p]; a zero
// row is exactly 0.
template <class T>
__global__ void __launch_bounds__(kFmaThreads)
    LengthsKernel(int64_t rows, int64_t p, const T* x, double* length) {
  for (int64_t unit = blockIdx.x; unit * kWarps < rows; unit += gridDim.x) {
    const int64_t row = unit * kWarps + threadIdx.x / 32;
    double squares = 0;
    bool nonzero = false;
    for (int64_t k = threadIdx.x % 32; k < p && row < rows; k += 32) {
      const double v = ToAccumulator(x[row * p + k]);
      squares = Fma(v, v, squares);
      nonzero = nonzero || v != 0;
    }
    squares = WarpSum(squares);
    const bool any = __any_sync(kAllLanes, nonzero);
    if (threadIdx.x % 32 == 0 && row < rows) {
      const double least = static_cast<double>(p) * kLeastSquare<T>;
      length[row] = any ? sqrt(squares + least) : 0;
    }
  }
}

template <class Acc>
struct Shared {
  Slab<Acc> slab;
  double scratch[2][kWarps];
};

// Rows [first, first + kFmaTile) of x [rows, p], features [k0, k0 + kSlab):
// neighbouring threads read neighbouring features.
template <class T, class Acc>
__device__ void LoadSlab(const T* x, int64_t first, int64_t rows, int64_t p,
                         int64_t k0, Acc (&to)[kSlab][kFmaTile + 1]) {
  const int k = static_cast<int>(threadIdx.x) % kSlab;
#pragma unroll
  for (int r = 0; r < kFmaTile; r += kFmaThreads / kSlab) {
    const int row = r + static_cast<int>(threadIdx.x) / kSlab;
    const bool inside = first + row < rows && k0 + k < p;
    to[k][row] = inside ? ToAccumulator(x[(first + row) * p + k0 + k]) : Acc{0};
  }
}

// What this thread's inner products contribute.
template <class T>
__device__ TiedPartial Weigh(const TiedExample<T>& example, int64_t t0,
                             int64_t s0, const TileSums<Accumulator<T>>& sums) {
  TiedPartial partial = {0, 0};
#pragma unroll
  for (int j = 0; j < kFmaOwn; ++j) {
    const int64_t s = s0 + OwnColumn(j);
    if (!example.IsRead(s)) continue;
#pragma unroll
    for (int i = 0; i < kFmaOwn; ++i) {
      const int64_t t = t0 + OwnRow(i);
      if (t >= example.positions) continue;
      const double weight = example.Weight(t, s);
      partial.inner += weight * sums.total[i][j];
      partial.bound +=
          fabs(weight) * example.right_length[t] * example.g_length[s];
    }
  }
  return partial;
}

template <class T>
__global__ void __launch_bounds__(kFmaThreads)
    TilesKernel(TiedOperands<T> operands, TiedPartial* partials) {
  using Acc = Accumulator<T>;
  BK_SHARED(Shared<Acc>, shared);
  const TiedCrossShape& shape = operands.shape;
  const TiedTiles tiles = TiedTilesOf(shape, kFmaTile);
  for (int64_t item = blockIdx.x; item < shape.batch * tiles.Count();
       item += gridDim.x) {
    const TiedExample<T> example = operands.Of(item / tiles.Count());
    const int64_t t0 = item % tiles.Count() / tiles.columns * kFmaTile;
    const int64_t s0 = item % tiles.columns * kFmaTile;
    TileSums<Acc> sums;
    sums.Clear();
    for (int64_t k = 0; k < shape.p; k += kSlab) {
      LoadSlab(example.right, t0, shape.positions, shape.p, k,
               shared.slab.left);
      LoadSlab(example.g, s0, shape.tokens, shape.p, k, shared.slab.right);
      __syncthreads();
      sums.Add(shared.slab);
      if ((k + kSlab) % kChain == 0) sums.EndChain();
      __syncthreads();
    }
    sums.EndChain();
    const TiedPartial own = Weigh(example, t0, s0, sums);
    const TiedPartial sum = {BlockSum(own.inner, shared.scratch[0]),
                             BlockSum(own.bound, shared.scratch[1])};
    if (threadIdx.x == 0) partials[item] = sum;
    __syncthreads();
  }
}

// As Store of cpu/tied_cross.cc.
template <class Acc>
__device__ void Store(const TiedPartial& sum, double relative_error, Acc* cross,
                      Acc* cross_upper) {
  const double error = relative_error * sum.bound;
  if (!std::isfinite(sum.inner) || !std::isfinite(error)) {
    *cross = std::numeric_limits<Acc>::quiet_NaN();
    *cross_upper = *cross;
    return;
  }
  *cross = static_cast<Acc>(sum.inner);
  // Where the bound is zero, some factor of every term is: terms of floats do
  // not underflow in double, terms of doubles may.
  const bool zero = sum.bound == 0 && sizeof(Acc) < sizeof(double);
  const double floor = zero ? 0 : std::numeric_limits<Acc>::min();
  const double slack = 4 * kUnitRoundoff<double> * fabs(sum.inner);
  *cross_upper = RoundUp<Acc>(sum.inner + (error + slack + floor));
}

// One block per example.
template <class Acc>
__global__ void __launch_bounds__(kFmaThreads)
    FinishKernel(int64_t batch, int64_t tiles, double relative_error,
                 const TiedPartial* partials, Acc* cross, Acc* cross_upper) {
  BK_SHARED(Shared<Acc>, shared);
  for (int64_t i = blockIdx.x; i < batch; i += gridDim.x) {
    TiedPartial own = {0, 0};
    for (int64_t k = threadIdx.x; k < tiles; k += kFmaThreads) {
      own.inner += partials[i * tiles + k].inner;
      own.bound += partials[i * tiles + k].bound;
    }
    const TiedPartial sum = {BlockSum(own.inner, shared.scratch[0]),
                             BlockSum(own.bound, shared.scratch[1])};
    if (threadIdx.x == 0) {
      Store(sum, relative_error, cross + i, cross_upper + i);
    }
    __syncthreads();
  }
}

template <class T>
cudaError_t LaunchTiles(const TiedOperands<T>& operands, TiedPartial* partials,
                        cudaStream_t stream) {
  const TiedCrossShape& shape = operands.shape;
  if constexpr (sizeof(T) == 2) {
    return SideOf<T>(shape) == kLargeSide
               ? LaunchTiedTiles<T, LargeTiling>(operands, partials, stream)
               : LaunchTiedTiles<T, SmallTiling>(operands, partials, stream);
  } else {
    return Launch(TilesKernel<T>,
                  shape.batch * TiedTilesOf(shape, kFmaTile).Count(),
                  kFmaThreads, stream, operands, partials);
  }
}

}  // namespace

// Of the smallest tiles: large ones are fewer.
int64_t TiedCrossWorkspaceBytes(const TiedCrossShape& shape) {
  static_assert(kFmaTile == kSmallSide);
  return shape.batch *
         ((shape.positions + shape.tokens) * int64_t{sizeof(double)} +
          TiedTilesOf(shape, kSmallSide).Count() *
              int64_t{sizeof(TiedPartial)});
}

template <class T>
cudaError_t TiedCross(const TiedCrossShape& shape, const T* left,
                      const T* right, const int32_t* ids, const T* g,
                      Accumulator<T>* cross, Accumulator<T>* cross_upper,
                      void* workspace, cudaStream_t stream) {
  if (sizeof(T) == 2 && !HasOffsets(shape.positions, shape.tokens, shape.p)) {
    return cudaErrorInvalidValue;
  }
  const int64_t t_rows = shape.batch * shape.positions;
  const int64_t s_rows = shape.batch * shape.tokens;
  auto* right_length = static_cast<double*>(workspace);
  double* g_length = right_length + t_rows;
  auto* partials = reinterpret_cast<TiedPartial*>(g_length + s_rows);
  BK_RETURN_IF_CUDA_ERROR(Launch(LengthsKernel<T>, CeilDiv(t_rows, kWarps),
                                 kFmaThreads, stream, t_rows, shape.p, right,
                                 right_length));
  BK_RETURN_IF_CUDA_ERROR(Launch(LengthsKernel<T>, CeilDiv(s_rows, kWarps),
                                 kFmaThreads, stream, s_rows, shape.p, g,
                                 g_length));
  const TiedOperands<T> operands = {shape, left,         right,   ids,
                                    g,     right_length, g_length};
  BK_RETURN_IF_CUDA_ERROR(LaunchTiles(operands, partials, stream));
  return Launch(FinishKernel<Accumulator<T>>, shape.batch, kFmaThreads, stream,
                shape.batch, TiedTilesOf(shape, SideOf<T>(shape)).Count(),
                RelativeError<T>(shape), partials, cross, cross_upper);
}

#define BK_INSTANTIATE(T)                                                   \
  template cudaError_t TiedCross(const TiedCrossShape&, const T*, const T*, \
                                 const int32_t*, const T*, Accumulator<T>*, \
                                 Accumulator<T>*, void*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk::cuda
