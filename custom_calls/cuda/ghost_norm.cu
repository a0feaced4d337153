// 16-bit elements: gram_kernel.cuh. Others, one block for each (example, layer,
// weight, pair of tiles I <= J of 64 positions):
//
//   1. stream the features of a: the tile (I, J) of a a^T, in registers
//   2. stream those of g: the same tile of g g^T, in other registers
//   3. multiply the two entry by entry, add up in double, once or twice (I < J)
//
// Two tiles of an engine have the same entries in the same places, so nothing
// of size T x T is ever stored, not even in shared memory.
#include <utility>

#include "custom_calls/certified.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/engine.cuh"
#include "custom_calls/cuda/ghost_norm.h"
#include "custom_calls/cuda/gram_kernel.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/tile_pairs.cuh"

namespace bk::cuda {
namespace {

constexpr int kFinishThreads = 128;

int64_t Weights(const DenseShape& shape) { return shape.batch * shape.weights; }

// Side of the tiles of positions for elements of type T.
template <class T>
int64_t SideOf(const DenseShape& shape) {
  if (sizeof(T) != 2) return kTile;
  return TileSide(Weights(shape), shape.positions, shape.positions);
}

template <class S>
struct GramPieces {
  Piece<S, Layout::kRows> left[2], right[2];
};

template <class S>
struct GhostShared {
  GramPieces<S> pieces;
  double scratch[kThreads / 32];
};

// sums = tile (i, j) of x x^T, for x [positions, width]. Ends with a barrier.
template <class T, class E>
__device__ void GramTile(const T* x, int64_t positions, int64_t width,
                         TilePair pair, GramPieces<T>& pieces,
                         typename E::Acc (&sums)[kSums]) {
  const PlainRows<T> rows = {x, width};
  const bool aligned = IsAligned(x, width);
  const bool diagonal = pair.i == pair.j;
  Window left = {pair.i * kTile, positions, 0, width};
  Window right = {pair.j * kTile, positions, 0, width};
  Carried<T, Layout::kRows> left_next, right_next;
  left_next.Load(rows, left, aligned);
  left_next.Store(pieces.left[0]);
  if (!diagonal) {
    right_next.Load(rows, right, aligned);
    right_next.Store(pieces.right[0]);
  }
  __syncthreads();
  int half = 0;
  for (; left.column < width; half ^= 1) {
    const int64_t depth = width - left.column;
    left.column += kDepth<T>;
    right.column += kDepth<T>;
    const bool more = left.column < width;
    if (more) left_next.Load(rows, left, aligned);
    if (more && !diagonal) right_next.Load(rows, right, aligned);
    E::template Add<Layout::kRows>(
        pieces.left[half], diagonal ? pieces.left[half] : pieces.right[half],
        depth, 1, sums);
    if (more) left_next.Store(pieces.left[half ^ 1]);
    if (more && !diagonal) right_next.Store(pieces.right[half ^ 1]);
    __syncthreads();
  }
}

// inner [B, weights, pairs]; here and below a shape has the weights of all
// layers.
template <class T, class E>
__global__ void __launch_bounds__(kThreads)
    GhostKernel(DenseShape shape, BK_TABLE LayerPairs<T> layers,
                double* inner) {
  BK_SHARED(GhostShared<T>, shared);
  const int64_t pairs = TilePairs(shape.positions, kTile);
  const int64_t items = shape.batch * shape.weights * pairs;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const LayerPlace place = layers.Of(item / pairs);
    const int64_t first = place.matrix * shape.positions;
    const TilePair pair = PairOf(item % pairs);
    typename E::Acc gram_a[kSums] = {}, gram_g[kSums] = {};
    GramTile<T, E>(layers.left[place.layer] + first * shape.d, shape.positions,
                   shape.d, pair, shared.pieces, gram_a);
    GramTile<T, E>(layers.right[place.layer] + first * shape.p, shape.positions,
                   shape.p, pair, shared.pieces, gram_g);
    double sum = 0;
#pragma unroll
    for (int e = 0; e < kSums; ++e) {
      sum += static_cast<double>(gram_a[e]) * static_cast<double>(gram_g[e]);
    }
    const double total = BlockSum(sum, shared.scratch);
    if (threadIdx.x == 0) inner[item] = pair.i == pair.j ? total : 2 * total;
    __syncthreads();
  }
}

// |computed - exact| <= relative S^2 + absolute, of one weight.
struct GhostError {
  double relative, absolute;
};

// One warp for each example: the estimate, its bound, and whether the bound is
// so loose that the gradient should be formed.
template <class Acc>
__global__ void __launch_bounds__(kFinishThreads)
    CertifyKernel(DenseShape shape, int64_t pairs, int64_t segments,
                  GhostError bound, const double* inner, const double* spreads,
                  Acc* sq_norm, Acc* sq_norm_upper, int32_t* loose) {
  constexpr int64_t kWarps = kFinishThreads / 32;
  constexpr double kTolerance = 1.02 * 1.02 - 1;  // of the square of the norm
  for (int64_t i = blockIdx.x * kWarps + threadIdx.x / 32; i < shape.batch;
       i += gridDim.x * kWarps) {
    double sum = 0, error = 0;
    bool zero = true;
    for (int64_t n = 0; n < shape.weights; ++n) {
      const int64_t weight = i * shape.weights + n;
      double part = 0, spread = 0;
      for (int64_t k = threadIdx.x % 32; k < pairs; k += 32) {
        part += inner[weight * pairs + k];
      }
      for (int64_t k = threadIdx.x % 32; k < segments; k += 32) {
        spread += spreads[weight * segments + k];
      }
      sum += WarpSum(part);
      spread = WarpSum(spread);
      zero = zero && spread == 0;
      const double own = bound.relative * spread * spread + bound.absolute;
      if (spread != 0) error += own;
    }
    if (threadIdx.x % 32 != 0) continue;
    const double estimate = sum > 0 ? sum : 0;
    FinishNorm(sum, estimate + error, zero, sq_norm + i, sq_norm_upper + i);
    loose[i] = std::isfinite(sum) && error > kTolerance * estimate &&
               std::isfinite(error);
  }
}

// The list of examples with loose[i] != 0, by one warp.
__global__ void __launch_bounds__(32)
    ListKernel(int64_t batch, const int32_t* loose, int32_t* list) {
  if (blockIdx.x != 0) return;
  const int lane = ThreadIndex();
  int32_t count = 0;
  for (int64_t first = 0; first < batch; first += 32) {
    const int64_t i = first + lane;
    const bool wanted = i < batch && loose[i] != 0;
    const unsigned lanes = __ballot_sync(kAllLanes, wanted);
    const int before = __popc(lanes & ((1u << lane) - 1));
    if (wanted) list[1 + count + before] = static_cast<int32_t>(i);
    count += __popc(lanes);
  }
  if (lane == 0) list[0] = count;
}

// kappa u of cpu/ghost_norm.cc, with the roundings of the engine. Products that
// a tensor core flushes to zero (below 2^-126) hide at most d 2^-126 of a Gram
// entry; rows count with d 2^-100 in S, hence less than u A_t A_s. Where S
// comes from the diagonals of computed Gram matrices it may be too small by as
// many roundings as one entry has: that is in the 2 %.
template <class T>
GhostError ErrorOf(const DenseShape& shape) {
  const double u = kUnitRoundoff<Accumulator<T>>;
  // In double: chunks or entries of a thread, of a block, pairs of tiles,
  // weights.
  int64_t outer = kSums + 16 + shape.weights + 32 +
                  TilePairs(shape.positions, SideOf<T>(shape));
  if constexpr (sizeof(T) == 2) {
    const int64_t narrow = shape.d < shape.p ? shape.d : shape.p;
    const int64_t wide = shape.d < shape.p ? shape.p : shape.d;
    outer += CeilDiv(wide, kChunkTerms<T>);
    const double rest = static_cast<double>(outer) * kUnitRoundoff<double>;
    const auto gram = static_cast<double>(GramRoundings<T>(narrow) + 2);
    return {1.02 * (gram * u + rest), GramUnderflow<T>(shape.positions, wide)};
  } else {
    const double rest = static_cast<double>(outer) * kUnitRoundoff<double>;
    const auto gram = static_cast<double>(Engine<T>::Roundings(shape.d) +
                                          Engine<T>::Roundings(shape.p) + 2);
    return {1.02 * (gram * u + rest), 0};
  }
}

// Where things lie in the workspace, which has room for small tiles.
struct Parts {
  double* inner;
  double* tile_spreads;
  double* spreads;
  double* squares;
  int32_t* loose;  // [B]
  int32_t* list;   // [1 + B]
};

int64_t SmallPairs(const DenseShape& shape) {
  return TilePairs(shape.positions, SmallTiling::kSide);
}
int64_t SmallTiles(const DenseShape& shape) {
  return CeilDiv(shape.positions, SmallTiling::kSide);
}

Parts Split(const DenseShape& shape, void* workspace) {
  auto* inner = static_cast<double*>(workspace);
  double* tile_spreads = inner + Weights(shape) * SmallPairs(shape);
  double* spreads = tile_spreads + Weights(shape) * SmallTiles(shape);
  double* squares = spreads + Weights(shape) * SpreadSegments(shape);
  double* end = squares + Weights(shape) * ProductTileCount(shape);
  auto* loose = reinterpret_cast<int32_t*>(end);
  return {inner, tile_spreads, spreads, squares, loose, loose + shape.batch};
}

// The narrower operand first.
template <class T>
GramOperands<T> GramOperandsOf(const DenseShape& shape,
                               const LayerPairs<T>& layers) {
  const bool a_first = shape.d < shape.p;
  GramOperands<T> operands = {layers, shape.batch, shape.positions,
                              a_first ? shape.d : shape.p,
                              a_first ? shape.p : shape.d};
  if (!a_first) std::swap(operands.layers.left, operands.layers.right);
  return operands;
}

// inner and spreads.
template <class T>
cudaError_t GramProducts(const DenseShape& shape, const LayerPairs<T>& layers,
                         const Parts& parts, cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    const GramOperands<T> operands = GramOperandsOf(shape, layers);
    const GramResults results = {parts.inner, parts.tile_spreads};
    const int64_t side = SideOf<T>(shape);
    BK_RETURN_IF_CUDA_ERROR(
        side == LargeTiling::kSide
            ? (LaunchGram<T, LargeTiling>(operands, results, stream))
            : (LaunchGram<T, SmallTiling>(operands, results, stream)));
    return Spreads(shape, layers,
                   {parts.tile_spreads, CeilDiv(shape.positions, side)},
                   parts.spreads, stream);
  } else {
    BK_RETURN_IF_CUDA_ERROR(
        Spreads(shape, layers, TileSpreads(), parts.spreads, stream));
    return Launch(GhostKernel<T, Engine<T>>, Weights(shape) * SmallPairs(shape),
                  kThreads, stream, shape, layers, parts.inner);
  }
}

}  // namespace

int64_t GhostNormWorkspaceBytes(const DenseShape& layer, int64_t layers) {
  const DenseShape shape = Together(layer, layers);
  const int64_t doubles =
      Weights(shape) * (SmallPairs(shape) + SmallTiles(shape) +
                        SpreadSegments(shape) + ProductTileCount(shape));
  return doubles * static_cast<int64_t>(sizeof(double)) +
         (2 * shape.batch + 1) * static_cast<int64_t>(sizeof(int32_t));
}

template <class T>
cudaError_t GhostNorms(const DenseShape& layer, const LayerPairs<T>& layers,
                       void* workspace, Accumulator<T>* sq_norm,
                       Accumulator<T>* sq_norm_upper, cudaStream_t stream) {
  const DenseShape shape = Together(layer, layers.count);
  const Parts parts = Split(shape, workspace);
  BK_RETURN_IF_CUDA_ERROR(GramProducts(shape, layers, parts, stream));
  BK_RETURN_IF_CUDA_ERROR(Launch(
      CertifyKernel<Accumulator<T>>, CeilDiv(shape.batch, 4), kFinishThreads,
      stream, shape, TilePairs(shape.positions, SideOf<T>(shape)),
      SpreadSegments(shape), ErrorOf<T>(shape), parts.inner, parts.spreads,
      sq_norm, sq_norm_upper, parts.loose));
  // For one position the bound is as good as any.
  if (shape.positions <= 1) return cudaSuccess;
  BK_RETURN_IF_CUDA_ERROR(
      Launch(ListKernel, 1, 32, stream, shape.batch, parts.loose, parts.list));
  return DirectNormWhere(shape, layers, {parts.list}, parts.spreads,
                         parts.squares, sq_norm, sq_norm_upper, stream);
}

template <class T>
cudaError_t GhostNorm(const DenseShape& shape, const T* a, const T* g,
                      void* workspace, Accumulator<T>* sq_norm,
                      Accumulator<T>* sq_norm_upper, cudaStream_t stream) {
  return GhostNorms(shape, LayerPairs<T>(shape.weights, a, g), workspace,
                    sq_norm, sq_norm_upper, stream);
}

#define BK_INSTANTIATE(T)                                                      \
  template cudaError_t GhostNorms(const DenseShape&, const LayerPairs<T>&,     \
                                  void*, Accumulator<T>*, Accumulator<T>*,     \
                                  cudaStream_t);                               \
  template cudaError_t GhostNorm(const DenseShape&, const T*, const T*, void*, \
                                 Accumulator<T>*, Accumulator<T>*,             \
                                 cudaStream_t);
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)
BK_INSTANTIATE(double)

}  // namespace bk::cuda
