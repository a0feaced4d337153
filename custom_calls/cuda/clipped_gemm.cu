// One block for each (weight, tile of the sum, share of the rows).
// Where the factor comes in depends on the operands:
//
//   16-bit elements, T >= kLongExample | each example is multiplied as it is,
//   and
//                                      | its product is scaled when it is
//                                      added: | nothing is rounded to 16 bits
//                                      again
//   all others                         | rows are scaled in float or double
//   while
//                                      | they are loaded, and then belong to
//                                      one | long product over all examples
//
// A sum of few tiles is cut into shares of the rows, so that there are enough
// blocks; a second kernel adds the shares in their order. How many there are is
// a function of the shape, so the bits do not depend on the GPU.
#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/example_rows.cuh"
#include "custom_calls/cuda/product.cuh"
#include "custom_calls/cuda/tiles.cuh"

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
  int64_t out;                              // offset of its [m, n]
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
  return {weight,
          place.row * side,
          place.column * side,
          begin,
          end,
          (share * shape.weights + weight) * shape.m * shape.n};
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
  CopyTile(shared.tile, item.row, shape.m, item.column, shape.n, add,
           out + item.out);
  __syncthreads();
}

// Examples as they are, their products scaled.
template <class T, class Tiles, bool kAligned>
__global__ void __launch_bounds__(Tiles::kThreads)
    ScaledProductsKernel(ClippedGemmShape shape, int64_t shares, const T* lhs,
                         const float* factor, const T* rhs, bool add,
                         float* out, const int32_t* only_if) {
  using Loader = typename Loaders<T, Tiles, kAligned>::Columns;
  BK_DYNAMIC_SHARED(StagesShared<Tiles>, shared);
  if (!IsWanted(only_if)) return;
  const RowPairs<T> rows = {
      lhs, rhs, shape.batch, shape.weights, shape.positions, shape.m, shape.n};
  const int64_t items = shape.weights * shares *
                        CeilDiv(shape.m, Tiles::kSide) *
                        CeilDiv(shape.n, Tiles::kSide);
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const GemmItem item =
        ItemOf(shape, Tiles::kSide, shares, shape.batch, number);
    const ExampleRange examples = {item.weight, item.begin, item.end, factor};
    WarpSums sums = {};
    SumOfProducts<kExampleChunks, T, Tiles, Loader>(
        shared, rows, examples, item.row, item.column, sums);
    StoreTile<Tiles>(sums, item.row, shape.m, item.column, shape.n, add,
                     out + item.out);
  }
}

// Rows of all examples in one product, scaled while they are loaded.
template <class T, class E>
__global__ void __launch_bounds__(kThreads)
    ScaledRowsKernel(ClippedGemmShape shape, int64_t shares, const T* lhs,
                     const Accumulator<T>* factor, const T* rhs, bool add,
                     Accumulator<T>* out, const int32_t* only_if) {
  BK_SHARED(ProductShared<E>, shared);
  if (!IsWanted(only_if)) return;
  const bool left_aligned = IsAligned(lhs, shape.m);
  const bool right_aligned = IsAligned(rhs, shape.n);
  const int64_t items = shape.weights * shares * CeilDiv(shape.m, kTile) *
                        CeilDiv(shape.n, kTile);
  for (int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const GemmItem item =
        ItemOf(shape, kTile, shares, shape.batch * shape.positions, number);
    const int64_t rows = shape.weights * shape.positions;
    const int64_t first = item.weight * shape.positions;
    const ScaledRows<T> left = {lhs + first * shape.m, factor, shape.positions,
                                rows * shape.m, shape.m};
    const ScaledRows<T> right = {rhs + first * shape.n, factor, shape.positions,
                                 rows * shape.n, shape.n};
    Accumulator<T> sums[kSums] = {};
    AddProduct<E, true>(left, right, {item.begin, item.end, item.row, shape.m},
                        {item.begin, item.end, item.column, shape.n},
                        left_aligned, right_aligned, 1, shared.pieces, sums);
    Finish<E>(shape, item, add, sums, shared, out);
  }
}

// out (+)= sum of `shares` arrays of `size` elements, in their order.
template <class Acc>
__global__ void __launch_bounds__(kAddThreads)
    AddSharesKernel(int64_t shares, int64_t size, const Acc* parts, bool add,
                    Acc* out, const int32_t* only_if) {
  if (!IsWanted(only_if)) return;
  const int64_t chunks = CeilDiv(size, kAddThreads);
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t k = chunk * kAddThreads + threadIdx.x;
    if (k >= size) continue;
    Acc sum = 0;
    for (int64_t share = 0; share < shares; ++share) {
      sum += parts[share * size + k];
    }
    out[k] = add ? out[k] + sum : sum;
  }
}

// What all launches have.
template <class T>
struct GemmArguments {
  ClippedGemmShape shape;
  int64_t shares;
  const T* lhs;
  const Accumulator<T>* factor;
  const T* rhs;
  bool add;
  Accumulator<T>* out;
  const int32_t* only_if;
};

template <class T, class Tiles>
cudaError_t LaunchTiles(const GemmArguments<T>& x, cudaStream_t stream) {
  const bool aligned =
      RowsAreAligned(x.lhs, x.shape.m) && RowsAreAligned(x.rhs, x.shape.n);
  const auto kernel = aligned ? ScaledProductsKernel<T, Tiles, true>
                              : ScaledProductsKernel<T, Tiles, false>;
  return LaunchWithShared(
      kernel, x.shape.weights * x.shares * CountTiles(x.shape, Tiles::kSide),
      Tiles::kThreads, sizeof(StagesShared<Tiles>), stream, x.shape, x.shares,
      x.lhs, x.factor, x.rhs, x.add, x.out, x.only_if);
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
                kThreads, stream, x.shape, x.shares, x.lhs, x.factor, x.rhs,
                x.add, x.out, x.only_if);
}

}  // namespace

int64_t ClippedGemmWorkspaceBytes(const ClippedGemmShape& shape,
                                  int64_t accumulator_bytes) {
  const int64_t small = Shares(shape, kSmallSide);
  const int64_t large = Shares(shape, kLargeSide);
  const int64_t shares = small < large ? large : small;
  if (shares == 1) return 0;
  return shares * shape.weights * shape.m * shape.n * accumulator_bytes;
}

template <class T>
cudaError_t ClippedGemm(const ClippedGemmShape& shape, const T* lhs,
                        const Accumulator<T>* factor, const T* rhs,
                        bool accumulate, void* workspace, Accumulator<T>* out,
                        cudaStream_t stream, const int32_t* only_if) {
  const int64_t shares = Shares(shape, SideOf<T>(shape));
  GemmArguments<T> arguments = {shape, shares,     lhs, factor,
                                rhs,   accumulate, out, only_if};
  if (shares == 1) return LaunchProducts(arguments, stream);
  auto* parts = static_cast<Accumulator<T>*>(workspace);
  arguments.add = false;
  arguments.out = parts;
  BK_RETURN_IF_CUDA_ERROR(LaunchProducts(arguments, stream));
  const int64_t size = shape.weights * shape.m * shape.n;
  return Launch(AddSharesKernel<Accumulator<T>>, CeilDiv(size, kAddThreads),
                kAddThreads, stream, shares, size, parts, accumulate, out,
                only_if);
}

#define BK_INSTANTIATE(T)                                                 \
  template cudaError_t ClippedGemm(                                       \
      const ClippedGemmShape&, const T*, const Accumulator<T>*, const T*, \
      bool, void*, Accumulator<T>*, cudaStream_t, const int32_t*);
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)
BK_INSTANTIATE(double)

}  // namespace bk::cuda
