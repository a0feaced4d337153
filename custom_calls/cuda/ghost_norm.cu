// One block for each (example, weight, pair of tiles I <= J of 64 positions):
//
//   1. stream the features of a: the tile (I, J) of a a^T, in registers
//   2. stream those of g: the same tile of g g^T, in other registers
//   3. multiply the two entry by entry, add up in double, once or twice (I < J)
//
// Two tiles of an engine have the same entries in the same places, so nothing
// of size T x T is ever stored, not even in shared memory.
#include "custom_calls/certified.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/engine.cuh"
#include "custom_calls/cuda/ghost_norm.h"
#include "custom_calls/cuda/reduce.cuh"

namespace bk::cuda {
namespace {

constexpr int kFinishThreads = 128;

// Pairs of tiles I <= J.
__host__ __device__ int64_t TilePairs(const DenseShape& shape) {
  const int64_t tiles = CeilDiv(shape.positions, kTile);
  return tiles * (tiles + 1) / 2;
}

struct TilePair {
  int64_t i, j;
};

// Pair number q of (0, 0), (0, 1), (1, 1), (0, 2), ...
__device__ TilePair PairOf(int64_t q) {
  auto j =
      static_cast<int64_t>((sqrt(8.0 * static_cast<double>(q) + 1) - 1) / 2);
  while (j * (j + 1) / 2 > q) --j;
  while ((j + 1) * (j + 2) / 2 <= q) ++j;
  return {q - j * (j + 1) / 2, j};
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

// inner [B, N, pairs]
template <class T, class E>
__global__ void __launch_bounds__(kThreads)
    GhostKernel(DenseShape shape, const T* a, const T* g, double* inner) {
  BK_SHARED(GhostShared<T>, shared);
  const int64_t pairs = TilePairs(shape);
  const int64_t items = shape.batch * shape.weights * pairs;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t first = item / pairs * shape.positions;
    const TilePair pair = PairOf(item % pairs);
    typename E::Acc gram_a[kSums] = {}, gram_g[kSums] = {};
    GramTile<T, E>(a + first * shape.d, shape.positions, shape.d, pair,
                   shared.pieces, gram_a);
    GramTile<T, E>(g + first * shape.p, shape.positions, shape.p, pair,
                   shared.pieces, gram_g);
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

// One warp for each example: the estimate, its bound, and whether the bound is
// so loose that the gradient should be formed.
template <class Acc>
__global__ void __launch_bounds__(kFinishThreads)
    CertifyKernel(DenseShape shape, int64_t segments, double relative_error,
                  const double* inner, const double* spreads, Acc* sq_norm,
                  Acc* sq_norm_upper, int32_t* loose) {
  constexpr int64_t kWarps = kFinishThreads / 32;
  constexpr double kTolerance = 1.01 * 1.01 - 1;  // of the square of the norm
  const int64_t pairs = TilePairs(shape);
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
      error += relative_error * spread * spread;
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
// entry; rows count with d 2^-100 in S, hence less than u A_t A_s.
template <class T>
double RelativeError(const DenseShape& shape) {
  const double u = kUnitRoundoff<Accumulator<T>>;
  const auto gram = static_cast<double>(Engine<T>::Roundings(shape.d) +
                                        Engine<T>::Roundings(shape.p) + 2);
  // In double: entries of a thread, of a block, pairs of tiles, weights.
  const auto outer =
      static_cast<double>(kSums + 16 + TilePairs(shape) + shape.weights + 32);
  return 1.02 * (gram * u + outer * kUnitRoundoff<double>);
}

// Where things lie in the workspace.
struct Parts {
  double* inner;
  double* spreads;
  double* squares;
  int32_t* loose;  // [B]
  int32_t* list;   // [1 + B]
};

int64_t Weights(const DenseShape& shape) { return shape.batch * shape.weights; }

Parts Split(const DenseShape& shape, void* workspace) {
  auto* inner = static_cast<double*>(workspace);
  double* spreads = inner + Weights(shape) * TilePairs(shape);
  double* squares = spreads + Weights(shape) * SpreadSegments(shape);
  double* end = squares + Weights(shape) * ProductTileCount(shape);
  auto* loose = reinterpret_cast<int32_t*>(end);
  return {inner, spreads, squares, loose, loose + shape.batch};
}

}  // namespace

int64_t GhostNormWorkspaceBytes(const DenseShape& shape) {
  const int64_t doubles =
      Weights(shape) *
      (TilePairs(shape) + SpreadSegments(shape) + ProductTileCount(shape));
  return doubles * static_cast<int64_t>(sizeof(double)) +
         (2 * shape.batch + 1) * static_cast<int64_t>(sizeof(int32_t));
}

template <class T>
cudaError_t GhostNorm(const DenseShape& shape, const T* a, const T* g,
                      void* workspace, Accumulator<T>* sq_norm,
                      Accumulator<T>* sq_norm_upper, cudaStream_t stream) {
  const Parts parts = Split(shape, workspace);
  BK_RETURN_IF_CUDA_ERROR(Spreads(shape, a, g, parts.spreads, stream));
  BK_RETURN_IF_CUDA_ERROR(Launch(GhostKernel<T, Engine<T>>,
                                 Weights(shape) * TilePairs(shape), kThreads,
                                 stream, shape, a, g, parts.inner));
  BK_RETURN_IF_CUDA_ERROR(Launch(
      CertifyKernel<Accumulator<T>>, CeilDiv(shape.batch, 4), kFinishThreads,
      stream, shape, SpreadSegments(shape), RelativeError<T>(shape),
      parts.inner, parts.spreads, sq_norm, sq_norm_upper, parts.loose));
  // For one position the bound is as good as any.
  if (shape.positions <= 1) return cudaSuccess;
  BK_RETURN_IF_CUDA_ERROR(
      Launch(ListKernel, 1, 32, stream, shape.batch, parts.loose, parts.list));
  return DirectNormWhere(shape, a, g, {parts.list}, parts.spreads,
                         parts.squares, sq_norm, sq_norm_upper, stream);
}

#define BK_INSTANTIATE(T)                                                      \
  template cudaError_t GhostNorm(const DenseShape&, const T*, const T*, void*, \
                                 Accumulator<T>*, Accumulator<T>*,             \
                                 cudaStream_t);
BK_INSTANTIATE(float)
BK_INSTANTIATE(BFloat16)
BK_INSTANTIATE(Float16)
BK_INSTANTIATE(double)

}  // namespace bk::cuda
