#include "custom_calls/cpu/dense/ghost_norm.h"

#include <algorithm>
#include <vector>

#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/gram_norm.h"
#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// Positions of a tile, a function of the shape only: all of them if they fit
// and there are examples enough to keep several threads busy, else equal parts.
int64_t BlockSize(const DenseShape& shape) {
  constexpr int64_t kEnoughTasks = 8, kLarge = 96, kSmall = 48;
  const int64_t pairs = shape.batch * shape.weights;
  if (shape.positions <= kGramTile && pairs >= kEnoughTasks) return kGramTile;
  const bool enough = pairs * CeilDiv(shape.positions, kLarge) >= kEnoughTasks;
  const int64_t limit = enough ? kLarge : kSmall;
  return EvenPart(shape.positions, limit, kDotGroup);
}

// Roundings in double: depth blocks of both Gram matrices, the product, sums
// over a row of a tile (lanes, tree, rest), over its rows (two additions for
// each on the diagonal), over tiles, over weights, and the arithmetic of the
// bound.
double OuterRoundings(const DenseShape& shape, int64_t depth) {
  const int64_t blocks = CeilDiv(shape.d, depth) + CeilDiv(shape.p, depth);
  const int64_t tiles = CeilDiv(shape.positions, BlockSize(shape));
  return static_cast<double>(blocks + 3 * kGramTile + 2 * tiles +
                             shape.weights + 32);
}

// kappa * u such that |computed - exact| <= kappa u S^2 for one weight, where
// S = sum_t A_t G_t with A_t >= |a_t|, G_t >= |g_t|. Derivation:
//
// 1. A computed Gram entry errs by at most gamma_c |a_t| |a_s| (c roundings;
//    Cauchy-Schwarz), plus d 2^-150 if products or sums underflow gradually.
//    A_t^2 >= d 2^-126 for every row that is not zero (LengthBound), hence the
//    second term is <= u A_t A_s: together (gamma_c + u) A_t A_s.
// 2. A product of entries of both matrices then errs by at most
//    (gamma_ca + gamma_cg + 2u + higher order) A_t A_s G_t G_s. The sum over
//    all (t, s) of A_t G_t A_s G_s is S^2.
// 3. The double arithmetic errs by OuterRoundings * 2^-53 S^2; for double
//    inputs that is of the order of step 2, for all others it is nothing.
// 4. A_t is made from the computed diagonal, which is below the exact one by
//    at most gamma_c relatively. As c u < 1e-4 always (c <= 140), this, the
//    higher order terms and gamma_c - c u are less than 0.1 %; 2 % are added.
//
// With tile registers c counts additions in any order, and step 1 differs:
//
// - An element below 2^-126 is taken for zero. The entry of rows t, s loses at
//   most 2^-126 sqrt(d) (|a_t| + |a_s|), where a row that loses something is
//   not zero. There A_t^2 >= d 2^-100 (TileGrams::kFloor), so this is at most
//   2^-75 A_t A_s.
// - A product or sum below 2^-126 becomes zero: d products, and no more than
//   2 d sums that are not just one of them. That is 3 d 2^-126 at most, hence
//   3 2^-26 A_t A_s, and both together less than u A_t A_s as before.
template <class T>
double RelativeError(const CpuKernels& kernels, const DenseShape& shape) {
  using Acc = Accumulator<T>;
  const double u = kUnitRoundoff<Acc>;
  const int64_t lanes = LanesOf<Acc>(kernels);
  const bool tiles = KernelsFor<T>(kernels).tiles;
  const int64_t depth = GramDepth(kernels);
  const auto chain = [&](int64_t width) {
    return std::max(GramRoundings(width, depth, lanes),
                    tiles ? TileRoundings(width) : 0);
  };
  const auto gram = static_cast<double>(chain(shape.d) + chain(shape.p) + 2);
  const double outer = OuterRoundings(shape, tiles ? kTileDepth : depth);
  return 1.02 * (gram * u + outer * kUnitRoundoff<double>);
}

// Runs over (example, weight, tile row) and stores one partial result for each.
template <class T>
void ComputePartials(const CpuKernels& kernels, Parallel& parallel,
                     const DenseShape& shape, const T* a, const T* g,
                     std::vector<GramPartial>& partials) {
  const ElementKernels<T>& kernel = KernelsFor<T>(kernels);
  const int64_t block = BlockSize(shape);
  const int64_t tiles = CeilDiv(shape.positions, block);
  const double flops = static_cast<double>(shape.d + shape.p) *
                       static_cast<double>(shape.positions) *
                       static_cast<double>(std::min(shape.positions, block));
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    using Acc = Accumulator<T>;
    auto* grams = static_cast<double*>(
        ThreadScratch(kGramDoubles * static_cast<int64_t>(sizeof(double)) +
                      kGramScratch * static_cast<int64_t>(sizeof(Acc))));
    auto* scratch = reinterpret_cast<Acc*>(grams + kGramDoubles);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / tiles * shape.positions;
      const GhostPair<T> pair = {a + row * shape.d, g + row * shape.p,
                                 shape.positions,   shape.d,
                                 shape.p,           block};
      partials[item] = shape.positions == 1
                           ? kernel.ghost_single(pair)
                           : kernel.ghost_tile_row(pair, item % tiles * block,
                                                   grams, scratch);
    }
  };
  parallel.For(static_cast<int64_t>(partials.size()), flops, body);
}

}  // namespace

template <class T>
void GhostNorm(const CpuKernels& kernels, Parallel& parallel,
               const DenseShape& shape, const T* a, const T* g,
               Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  const int64_t tiles = CeilDiv(shape.positions, BlockSize(shape));
  std::vector<GramPartial> partials(shape.batch * shape.weights * tiles);
  ComputePartials(kernels, parallel, shape, a, g, partials);

  const ScopedFloatEnvironment environment;
  const int64_t rows = shape.weights * shape.positions;
  DenseShape one = shape;
  one.batch = 1;
  // For one position the norm is a product and its bound as good as any.
  CertifyOrRecompute(
      partials, shape.batch, shape.weights, RelativeError<T>(kernels, shape),
      sq_norm, sq_norm_upper, [&](int64_t i, auto* direct, auto* direct_upper) {
        if (shape.positions == 1) return;
        DirectNorm(kernels, parallel, one, a + i * rows * shape.d,
                   g + i * rows * shape.p, direct, direct_upper);
      });
}

template void GhostNorm(const CpuKernels&, Parallel&, const DenseShape&,
                        const float*, const float*, float*, float*);
template void GhostNorm(const CpuKernels&, Parallel&, const DenseShape&,
                        const BFloat16*, const BFloat16*, float*, float*);
template void GhostNorm(const CpuKernels&, Parallel&, const DenseShape&,
                        const Float16*, const Float16*, float*, float*);
template void GhostNorm(const CpuKernels&, Parallel&, const DenseShape&,
                        const double*, const double*, double*, double*);

}  // namespace bk
