// One block for each (layer, weight, tile of the sum, share of the rows).
// Where the factor comes in depends on the operands:
//
//   16-bit elements, T >= kLongExample
//     Each example is multiplied as it is, and its product is scaled when it is
//     added: nothing is rounded to 16 bits again.
//   all others
//     Rows are scaled in float or double while they are loaded, and then belong
//     to one long product over all examples.
//
// A sum of few tiles is cut into shares of the rows, so that there are enough
// blocks; a second kernel adds the shares in their order. How many there are is
// a function of the shape, so the bits do not depend on the GPU.
#include <algorithm>

#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/example_rows.cuh"
#include "custom_calls/cuda/product.cuh"
#include "custom_calls/cuda/tiles.cuh"
#include "custom_calls/cuda/warpgroup_loop.cuh"

namespace bk::cuda {
namespace {

constexpr int64_t kLongExample = 24;  // positions
constexpr int64_t kEnoughBlocks = 512;
constexpr int64_t kEnoughLarge = 216;
// Chunks of 64 rows that a tensor core adds up.
constexpr int kExampleChunks = 16;
constexpr int64_t kMaxShares = 16;
constexpr int64_t kMinRows = 256;  // of a share
constexpr int kAddThreads = 256;

// Below, shapes have the weights of all layers.
int64_t CountTiles(const ClippedGemmShape& shape, int64_t side) {
  return CeilDiv(shape.m, side) * CeilDiv(shape.n, side);
}

int64_t MostShares(const ClippedGemmShape& shape) {
  const int64_t rows = CeilDiv(shape.batch * shape.positions, kMinRows);
  const int64_t most = rows < kMaxShares ? rows : kMaxShares;
  return most > 0 ? most : 1;
}

int64_t Shares(const ClippedGemmShape& shape, int64_t side) {
  const int64_t blocks = shape.weights * CountTiles(shape, side);
  if (blocks == 0) return 1;
  const int64_t enough = side == kLargeSide ? kEnoughLarge : kEnoughBlocks;
  const int64_t wanted = CeilDiv(enough, blocks);
  const int64_t most = MostShares(shape);
  return wanted < most ? wanted : most;
}

// Whether each example is multiplied as it is.
template <class T>
bool IsLong(const ClippedGemmShape& shape) {
  return sizeof(T) == 2 && shape.positions >= kLongExample;
}

template <class T>
int64_t SideOf(const ClippedGemmShape& shape) {
  if (!IsLong<T>(shape)) return kTile;
  return TileSide(shape.weights * MostShares(shape), shape.m, shape.n);
}

// Rows of one weight over all examples: row r is position r % T of example
// r / T. Those of examples with the factor 0 are absent.
template <class T>
struct ScaledRows {
  const T* first;  // of this weight of example 0
  const Accumulator<T>* factor;
  int64_t positions, example_stride, width;
  __device__ const T* Row(int64_t r) const {
    const int64_t i = r / positions;
    if (factor[i] == 0) return nullptr;
    return first + i * example_stride + r % positions * width;
  }
  __device__ Accumulator<T> Scale(int64_t r) const {
    return factor[r / positions];
  }
};

// Which tile an item is.
struct GemmItem {
  int64_t weight, row, column, begin, end;  // examples, or rows
  int64_t share;
};

// Where sums go: to results [N, m, n] of each layer, or to shares of all of
// them, [shares, weights, m, n].
template <class Acc>
struct SumPlaces {
  Acc* shares;
  int64_t weights;  // N
  Acc* out[kMaxLayers];

  __device__ Acc* Of(const ClippedGemmShape& shape,
                     const GemmItem& item) const {
    const int64_t size = shape.m * shape.n;
    if (shares != nullptr) {
      return shares + (item.share * shape.weights + item.weight) * size;
    }
    return out[item.weight / weights] + item.weight % weights * size;
  }
};

__device__ GemmItem ItemOf(const ClippedGemmShape& shape, int64_t side,
                           int64_t shares, int64_t length, int64_t item) {
  const int64_t down = CeilDiv(shape.m, side);
  const int64_t across = CeilDiv(shape.n, side);
  const int64_t tiles = down * across;
  const TilePlace place = PlaceOf(item % tiles, down, across);
  const int64_t share = item / tiles % shares;
  const int64_t weight = item / tiles / shares;
  const int64_t part = CeilDiv(length, shares);
  const int64_t begin = share * part < length ? share * part : length;
  const int64_t end = begin + part < length ? begin + part : length;
  return {weight, place.row * side, place.column * side, begin, end, share};
}

__device__ bool IsWanted(const int32_t* only_if) {
  return only_if == nullptr || *only_if != 0;
}

template <class E, class Acc>
__device__ void Finish(const ClippedGemmShape& shape, const GemmItem& item,
                       bool add, const Acc (&sums)[kSums],
                       ProductShared<E>& shared, Acc* out) {
  E::Store(sums, shared.tile);
  __syncthreads();
  CopyTile(shared.tile, item.row, shape.m, item.column, shape.n, add, out);
  __syncthreads();
}

// Examples as they are, their products scaled.
template <class T, class Shape, bool kAligned>
__global__ void __launch_bounds__(Shape::kThreads)
    ScaledProductsKernel(ClippedGemmShape shape, int64_t shares,
                         BK_TABLE LayerRows<T> layers, const float* factor,
                         bool add, BK_TABLE SumPlaces<float> sum,
                         const int32_t* only_if) {
  using Tiles = typename TilingOnGpu<Shape, kAligned>::Type;
  using Loader = typename Loaders<T, Tiles, kAligned>::Columns;
  BK_DYNAMIC_SHARED(StagesShared<Tiles>, shared);
  if (!IsWanted(only_if)) return;
  const int64_t items = shape.weights * shares *
                        CeilDiv(shape.m, Tiles::kSide) *
                        CeilDiv(shape.n, Tiles::kSide);
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const GemmItem item =
        ItemOf(shape, Tiles::kSide, shares, shape.batch, number);
    const RowPairs<T> rows = layers.Of(item.weight);
    const ExampleRange examples = {item.weight % rows.weights, item.begin,
                                   item.end, factor};
    WarpSums sums = {};
    SumOfProducts<kExampleChunks, T, Tiles, Loader>(
        shared, rows, examples, item.row, item.column, sums);
    StoreTile<Tiles>(sums, item.row, shape.m, item.column, shape.n, add,
                     sum.Of(shape, item));
  }
}

// Rows of all examples in one product, scaled while they are loaded.
template <class T, class E>
__global__ void __launch_bounds__(kThreads)
    ScaledRowsKernel(ClippedGemmShape shape, int64_t shares,
                     BK_TABLE LayerRows<T> layers, const Accumulator<T>* factor,
                     bool add, BK_TABLE SumPlaces<Accumulator<T>> sum,
                     const int32_t* only_if) {
  BK_SHARED(ProductShared<E>, shared);
  if (!IsWanted(only_if)) return;
  const int64_t items = shape.weights * shares * CeilDiv(shape.m, kTile) *
                        CeilDiv(shape.n, kTile);
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const GemmItem item =
        ItemOf(shape, kTile, shares, shape.batch * shape.positions, number);
    const RowPairs<T> layer = layers.Of(item.weight);
    const int64_t rows = layer.First(layer.weights);  // of an example
    const int64_t first = layer.First(item.weight % layer.weights);
    const ScaledRows<T> left = {layer.left + first * shape.m, factor,
                                shape.positions, rows * shape.m, shape.m};
    const ScaledRows<T> right = {layer.right + first * shape.n, factor,
                                 shape.positions, rows * shape.n, shape.n};
    Accumulator<T> sums[kSums] = {};
    AddProduct<E, true>(left, right, {item.begin, item.end, item.row, shape.m},
                        {item.begin, item.end, item.column, shape.n},
                        IsAligned(layer.left, shape.m),
                        IsAligned(layer.right, shape.n), 1, shared.pieces,
                        sums);
    Finish<E>(shape, item, add, sums, shared, sum.Of(shape, item));
  }
}

// out (+)= sum of `shares` arrays, in their order: `size` elements of each of
// `layers` layers.
template <class Acc>
__global__ void __launch_bounds__(kAddThreads)
    AddSharesKernel(int64_t shares, int64_t layers, int64_t size, bool add,
                    BK_TABLE SumPlaces<Acc> places, const int32_t* only_if) {
  if (!IsWanted(only_if)) return;
  const int64_t chunks = CeilDiv(size, kAddThreads);
  for (int64_t item = blockIdx.x; item < layers * chunks; item += gridDim.x) {
    const int64_t layer = item / chunks;
    const int64_t k = item % chunks * kAddThreads + threadIdx.x;
    if (k >= size) continue;
    const Acc* parts = places.shares + layer * size + k;
    Acc sum = 0;
    for (int64_t share = 0; share < shares; ++share) {
      sum += parts[share * layers * size];
    }
    Acc& to = places.out[layer][k];
    to = add ? to + sum : sum;
  }
}

// What all launches have.
template <class T>
struct GemmArguments {
  ClippedGemmShape shape;
  int64_t shares;
  LayerRows<T> layers;
  const Accumulator<T>* factor;
  bool add;
  SumPlaces<Accumulator<T>> sum;
  const int32_t* only_if;
};

template <class T, class Tiles>
cudaError_t LaunchTiles(const GemmArguments<T>& x, cudaStream_t stream) {
  if (!HasOffsets(x.shape.positions, x.shape.m, x.shape.n)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = x.layers.AreAligned()
                          ? ScaledProductsKernel<T, Tiles, true>
                          : ScaledProductsKernel<T, Tiles, false>;
  return LaunchWithShared(
      kernel, x.shape.weights * x.shares * CountTiles(x.shape, Tiles::kSide),
      Tiles::kThreads, sizeof(StagesShared<Tiles>), stream, x.shape, x.shares,
      x.layers, x.factor, x.add, x.sum, x.only_if);
}

template <class T>
cudaError_t LaunchProducts(const GemmArguments<T>& x, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    if (IsLong<T>(x.shape)) {
      return SideOf<T>(x.shape) == kLargeSide
                 ? LaunchTiles<T, LargeTiling>(x, stream)
                 : LaunchTiles<T, SmallTiling>(x, stream);
    }
  }
  return Launch(ScaledRowsKernel<T, Engine<Accumulator<T>>>,
                x.shape.weights * x.shares * CountTiles(x.shape, kTile),
                kThreads, stream, x.shape, x.shares, x.layers, x.factor, x.add,
                x.sum, x.only_if);
}

}  // namespace

int64_t ClippedGemmWorkspaceBytes(const ClippedGemmShape& layer,
                                  int64_t accumulator_bytes, int64_t layers) {
  const ClippedGemmShape shape = Together(layer, layers);
  const int64_t small = Shares(shape, kSmallSide);
  const int64_t large = Shares(shape, kLargeSide);
  const int64_t shares = small < large ? large : small;
  if (shares == 1) return 0;
  return shares * shape.weights * shape.m * shape.n * accumulator_bytes;
}

template <class T>
cudaError_t ClippedGemms(const ClippedGemmShape& layer,
                         const LayerPairs<T>& layers,
                         const Accumulator<T>* factor, bool accumulate,
                         void* workspace, Accumulator<T>* const* out,
                         cudaStream_t stream, const int32_t* only_if) {
  using Acc = Accumulator<T>;
  const ClippedGemmShape shape = Together(layer, layers.count);
  const int64_t shares = Shares(shape, SideOf<T>(shape));
  SumPlaces<Acc> sum = {nullptr, layer.weights, {}};
  std::copy_n(out, layers.count, sum.out);
  if (shares > 1) sum.shares = static_cast<Acc*>(workspace);
  const LayerRows<T> rows = {layers, shape.batch, shape.positions, shape.m,
                             shape.n};
  BK_RETURN_IF_CUDA_ERROR(LaunchProducts<T>(
      {shape, shares, rows, factor, shares == 1 && accumulate, sum, only_if},
      stream));
  if (shares == 1) return cudaSuccess;
  const int64_t size = layer.weights * layer.m * layer.n;
  return Launch(AddSharesKernel<Acc>, layers.count * CeilDiv(size, kAddThreads),
                kAddThreads, stream, shares, layers.count, size, accumulate,
                sum, only_if);
}

template <class T>
cudaError_t ClippedGemm(const ClippedGemmShape& shape, const T* lhs,
                        const Accumulator<T>* factor, const T* rhs,
                        bool accumulate, void* workspace, Accumulator<T>* out,
                        cudaStream_t stream, const int32_t* only_if) {
  return ClippedGemms(shape, LayerPairs<T>(shape.weights, lhs, rhs), factor,
                      accumulate, workspace, &out, stream, only_if);
}

#define BK_INSTANTIATE(T)                                                   \
  template cudaError_t ClippedGemms(                                        \
      const ClippedGemmShape&, const LayerPairs<T>&, const Accumulator<T>*, \
      bool, void*, Accumulator<T>* const*, cudaStream_t, const int32_t*);   \
  template cudaError_t ClippedGemm(                                         \
      const ClippedGemmShape&, const T*, const Accumulator<T>*, const T*,   \
      bool, void*, Accumulator<T>*, cudaStream_t, const int32_t*);
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)
BK_INSTANTIATE(double)

}  // namespace bk::cuda
