// Tiles of gradients, their squares, and what the rounding of their entries may
// hide: custom_calls/cpu/dense/direct_norm.cc has the derivation of the bound;
// only the number of roundings differs, see engine.cuh.
#include "custom_calls/certified.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/product.cuh"
#include "custom_calls/cuda/product_tiles.cuh"

namespace bk::cuda {
namespace {

constexpr int64_t kSegment = 32;  // positions
constexpr int kSpreadThreads = 128;
// Blocks for the examples of a list, whose length only the device knows.
// Usually it is 0.
constexpr int64_t kListBlocks = 1024;

// |x|^2 of a row and whether it has an element that is not 0, by one warp. An
// element's square is exact in double unless it is a double itself.
template <class T>
__device__ double SquaredLength(const T* x, int64_t width, bool* nonzero) {
  double sum = 0;
  bool any = false;
  for (int64_t k = threadIdx.x % 32; k < width; k += 32) {
    const double value = ToAccumulator(x[k]);
    sum = Fma(value, value, sum);
    any = any || value != 0;
  }
  *nonzero = __any_sync(kAllLanes, any);
  return WarpSum(sum);
}

// A bound of |x|. A row that is not zero counts with width * tiny at least,
// which covers underflow in products.
template <class T>
__device__ double LengthBound(const T* x, int64_t width) {
  bool nonzero = false;
  const double square = SquaredLength(x, width, &nonzero);
  if (!nonzero) return square;  // 0
  return sqrt(square + static_cast<double>(width) * Engine<T>::kTiny);
}

struct SpreadShared {
  double sums[kSpreadThreads / 32];
};

// The sum of all tiles of one example and weight, if any is known not to be 0.
__device__ bool IsKnown(const TileSpreads& known, int64_t number, double* sum) {
  bool sure = false;
  *sum = 0;
  for (int64_t k = 0; k < known.tiles; ++k) {
    const double spread = known.at[number * known.tiles + k];
    sure = sure || spread > 0;
    *sum += fabs(spread);
  }
  return sure;
}

template <class T>
__global__ void __launch_bounds__(kSpreadThreads)
    SpreadKernel(DenseShape shape, BK_TABLE LayerPairs<T> layers,
                 TileSpreads known, double* spreads) {
  BK_SHARED(SpreadShared, shared);
  const int64_t segments = CeilDiv(shape.positions, kSegment);
  const int64_t items = shape.batch * shape.weights * segments;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    double all = 0;
    if (IsKnown(known, item / segments, &all)) {
      if (threadIdx.x == 0) spreads[item] = item % segments == 0 ? all : 0;
      continue;
    }
    const LayerPlace place = layers.Of(item / segments);
    const int64_t first = place.matrix * shape.positions;
    const T* a = layers.left[place.layer];
    const T* g = layers.right[place.layer];
    const int64_t begin = item % segments * kSegment;
    const int64_t end =
        begin + kSegment < shape.positions ? begin + kSegment : shape.positions;
    double sum = 0;
    for (int64_t t = begin + threadIdx.x / 32; t < end;
         t += kSpreadThreads / 32) {
      sum += LengthBound(a + (first + t) * shape.d, shape.d) *
             LengthBound(g + (first + t) * shape.p, shape.p);
    }
    // Every lane has the sum of its warp; one lane of each counts.
    const double total = BlockSum(threadIdx.x % 32 == 0 ? sum : 0, shared.sums);
    if (threadIdx.x == 0) spreads[item] = total;
    __syncthreads();
  }
}

// The bound of a norm from the sum of squares and from S.
struct DirectBound {
  double relative_error;  // of the norm, relative to S
  double roundings;       // of the double arithmetic
};

// One warp for each example.
template <class Acc>
__global__ void __launch_bounds__(kSpreadThreads)
    FinishKernel(DenseShape shape, int64_t example_tiles, DirectBound bound,
                 ExampleList wanted, const double* squares,
                 const double* spreads, Acc* sq_norm, Acc* sq_norm_upper) {
  const int64_t tiles = shape.weights * example_tiles;
  const int64_t segments = CeilDiv(shape.positions, kSegment);
  constexpr int64_t kWarps = kSpreadThreads / 32;
  const int64_t count = wanted.Count(shape.batch);
  for (int64_t number = blockIdx.x * kWarps + threadIdx.x / 32; number < count;
       number += gridDim.x * kWarps) {
    const int64_t i = wanted.At(number);
    double sum = 0;
    for (int64_t k = threadIdx.x % 32; k < tiles; k += 32) {
      sum += squares[i * tiles + k];
    }
    sum = WarpSum(sum);
    double spread = 0;  // sum over weights of S^2
    bool zero = true;
    for (int64_t n = 0; n < shape.weights; ++n) {
      double s = 0;
      for (int64_t k = threadIdx.x % 32; k < segments; k += 32) {
        s += spreads[(i * shape.weights + n) * segments + k];
      }
      s = WarpSum(s);
      spread += s * s;
      zero = zero && s == 0;
    }
    if (threadIdx.x % 32 != 0) continue;
    const ComputedNorm norm = {sum, bound.relative_error * sqrt(spread),
                               bound.roundings, zero};
    Acc estimate, upper;
    StoreCertified(norm, &estimate, &upper);
    if (wanted.numbers != nullptr && !(upper < sq_norm_upper[i])) continue;
    sq_norm[i] = estimate;
    sq_norm_upper[i] = upper;
  }
}

template <class T>
int64_t EntryRoundings(const DenseShape& shape) {
  if constexpr (sizeof(T) == 2) {
    return ProductRoundings<T>(shape.positions);
  } else {
    return Engine<T>::Roundings(shape.positions);
  }
}

// See cpu/direct_norm.cc. Tensor cores may flush small products to zero: a
// position hides at most sqrt(d p) 2^-126, and counts with sqrt(d p) 2^-100 in
// S at least. 2 % cover higher orders and the double arithmetic of S.
template <class T>
DirectBound BoundOf(const DenseShape& shape) {
  const double u = kUnitRoundoff<Accumulator<T>>;
  const double error = static_cast<double>(EntryRoundings<T>(shape)) * u;
  const int64_t additions =
      kOwnSums + 16 + shape.weights * ProductTileCount(shape, sizeof(T));
  return {1.02 * (error / (1 - error) + u), static_cast<double>(additions)};
}

// Of tiles of 16-bit elements.
int64_t ProductSide(const DenseShape& shape) {
  return TileSide(shape.batch * shape.weights, shape.d, shape.p);
}

int64_t Segments(const DenseShape& shape) {
  return CeilDiv(shape.positions, kSegment);
}

}  // namespace

int64_t SpreadSegments(const DenseShape& shape) { return Segments(shape); }
int64_t ProductTileCount(const DenseShape& shape) {
  return ProductTiles(shape);
}
int64_t ProductTileCount(const DenseShape& shape, int64_t element_bytes) {
  if (element_bytes != 2) return ProductTiles(shape);
  const int64_t side = ProductSide(shape);
  return CeilDiv(shape.d, side) * CeilDiv(shape.p, side);
}

int64_t DirectNormWorkspaceBytes(const DenseShape& shape) {
  const int64_t doubles =
      shape.batch * shape.weights * (Segments(shape) + ProductTiles(shape));
  return doubles * static_cast<int64_t>(sizeof(double));
}

template <class T>
cudaError_t Spreads(const DenseShape& shape, const LayerPairs<T>& layers,
                    TileSpreads known, double* spreads, cudaStream_t stream) {
  return Launch(SpreadKernel<T>, shape.batch * shape.weights * Segments(shape),
                kSpreadThreads, stream, shape, layers, known, spreads);
}

template <class T>
cudaError_t ProductSquares(const DenseShape& shape, const LayerPairs<T>& layers,
                           ExampleList wanted, double* squares,
                           Accumulator<T>* grad, cudaStream_t stream) {
  const int64_t items =
      shape.batch * shape.weights * ProductTileCount(shape, sizeof(T));
  const bool all = wanted.numbers == nullptr;
  const int64_t blocks = all || items < kListBlocks ? items : kListBlocks;
  if constexpr (sizeof(T) == 2) {
    const LayerRows<T> rows = {layers, shape.batch, shape.positions, shape.d,
                               shape.p};
    return ProductSide(shape) == kLargeSide
               ? LaunchProductTiles<T, LargeTiling>(rows, wanted, blocks,
                                                    squares, grad, stream)
               : LaunchProductTiles<T, SmallTiling>(rows, wanted, blocks,
                                                    squares, grad, stream);
  } else {
    return Launch(ProductKernel<T, Engine<T>>, blocks, kThreads, stream, shape,
                  layers, wanted, squares, grad);
  }
}

template <class T>
cudaError_t DirectNormWhere(const DenseShape& shape,
                            const LayerPairs<T>& layers, ExampleList wanted,
                            const double* spreads, double* squares,
                            Accumulator<T>* sq_norm,
                            Accumulator<T>* sq_norm_upper,
                            cudaStream_t stream) {
  BK_RETURN_IF_CUDA_ERROR(ProductSquares(shape, layers, wanted, squares,
                                         static_cast<Accumulator<T>*>(nullptr),
                                         stream));
  return Launch(FinishKernel<Accumulator<T>>, CeilDiv(shape.batch, 4),
                kSpreadThreads, stream, shape,
                ProductTileCount(shape, sizeof(T)), BoundOf<T>(shape), wanted,
                squares, spreads, sq_norm, sq_norm_upper);
}

template <class T>
cudaError_t DirectNorm(const DenseShape& shape, const T* a, const T* g,
                       void* workspace, Accumulator<T>* sq_norm,
                       Accumulator<T>* sq_norm_upper, cudaStream_t stream) {
  auto* spreads = static_cast<double*>(workspace);
  double* squares = spreads + shape.batch * shape.weights * Segments(shape);
  const LayerPairs<T> layers(shape.weights, a, g);
  BK_RETURN_IF_CUDA_ERROR(
      Spreads(shape, layers, TileSpreads(), spreads, stream));
  return DirectNormWhere(shape, layers, ExampleList(), spreads, squares,
                         sq_norm, sq_norm_upper, stream);
}

#define BK_INSTANTIATE(T)                                                      \
  template cudaError_t Spreads(const DenseShape&, const LayerPairs<T>&,        \
                               TileSpreads, double*, cudaStream_t);            \
  template cudaError_t ProductSquares(const DenseShape&, const LayerPairs<T>&, \
                                      ExampleList, double*, Accumulator<T>*,   \
                                      cudaStream_t);                           \
  template cudaError_t DirectNormWhere(                                        \
      const DenseShape&, const LayerPairs<T>&, ExampleList, const double*,     \
      double*, Accumulator<T>*, Accumulator<T>*, cudaStream_t);                \
  template cudaError_t DirectNorm(const DenseShape&, const T*, const T*,       \
                                  void*, Accumulator<T>*, Accumulator<T>*,     \
                                  cudaStream_t);
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)
BK_INSTANTIATE(double)

}  // namespace bk::cuda
