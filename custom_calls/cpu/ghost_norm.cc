#include "custom_calls/cpu/ghost_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/rounding.h"
#include "custom_calls/cpu/scratch.h"

namespace bk {
namespace {

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

// Positions of a tile, a function of the shape only: all of them if they fit
// and there are examples enough to keep several threads busy, else equal parts.
int64_t BlockSize(const GhostNormShape& shape) {
  constexpr int64_t kEnoughTasks = 8, kLarge = 96, kSmall = 48;
  const int64_t pairs = shape.batch * shape.weights;
  if (shape.positions <= kGramTile && pairs >= kEnoughTasks) return kGramTile;
  const bool enough = pairs * CeilDiv(shape.positions, kLarge) >= kEnoughTasks;
  const int64_t limit = enough ? kLarge : kSmall;
  const int64_t positions = std::max<int64_t>(shape.positions, 1);
  const int64_t even = CeilDiv(positions, CeilDiv(positions, limit));
  return CeilDiv(even, kDotGroup) * kDotGroup;
}

// Unit roundoff of the accumulator type.
template <class Acc>
constexpr double kUnitRoundoff = std::numeric_limits<Acc>::epsilon() / 2;

// The largest number of roundings in accumulator type between a product of two
// elements and a Gram entry of `width` features: one for the product (there is
// no FMA in the baseline), one per vector of a lane's chain, one per level of
// the tree over lanes. Chains end after kGramDepth features; what follows is
// double and counted in OuterRoundings.
int64_t GramRoundings(int64_t width, int64_t lanes) {
  int64_t tree = 0;
  while ((int64_t{1} << tree) < lanes) ++tree;
  return 1 + CeilDiv(std::min(width, kGramDepth), lanes) + tree;
}

// The same in double: depth blocks of both Gram matrices, the product, sums
// over a row of a tile (lanes, tree, rest), over its rows (two additions for
// each on the diagonal), over tiles, over weights, and the arithmetic of the
// bound.
double OuterRoundings(const GhostNormShape& shape) {
  const int64_t blocks =
      CeilDiv(shape.d, kGramDepth) + CeilDiv(shape.p, kGramDepth);
  const int64_t tiles = CeilDiv(shape.positions, BlockSize(shape));
  return static_cast<double>(blocks + 3 * kGramTile + 2 * tiles +
                             shape.weights + 32);
}

// kappa * u such that |computed - exact| <= kappa u S^2 for one weight, where
// S = sum_t A_t G_t with A_t >= |a_t|, G_t >= |g_t|. Derivation:
//
// 1. A computed Gram entry errs by at most gamma_c |a_t| |a_s| (c roundings;
//    Cauchy-Schwarz), plus d 2^-150 if products or sums underflow gradually.
//    A_t^2 >= d 2^-126 for every row that is not zero (RowBound), hence the
//    second term is <= u A_t A_s: together (gamma_c + u) A_t A_s.
// 2. A product of entries of both matrices then errs by at most
//    (gamma_ca + gamma_cg + 2u + higher order) A_t A_s G_t G_s. The sum over
//    all (t, s) of A_t G_t A_s G_s is S^2.
// 3. The double arithmetic errs by OuterRoundings * 2^-53 S^2; for double
//    inputs that is of the order of step 2, for all others it is nothing.
// 4. A_t is made from the computed diagonal, which is below the exact one by
//    at most gamma_c relatively. As c u < 1e-4 always (c <= 140), this, the
//    higher order terms and gamma_c - c u are less than 0.1 %; 2 % are added.
template <class T>
double RelativeError(const CpuKernels& kernels, const GhostNormShape& shape) {
  using Acc = Accumulator<T>;
  const double u = kUnitRoundoff<Acc>;
  const int64_t lanes =
      kernels.vector_bytes / static_cast<int64_t>(sizeof(Acc));
  const auto gram = static_cast<double>(GramRoundings(shape.d, lanes) +
                                        GramRoundings(shape.p, lanes) + 2);
  return 1.02 * (gram * u + OuterRoundings(shape) * kUnitRoundoff<double>);
}

// Runs over (example, weight, tile row) and stores one partial result for each.
template <class T>
void ComputePartials(const CpuKernels& kernels, Parallel& parallel,
                     const GhostNormShape& shape, const T* a, const T* g,
                     std::vector<GhostPartial>& partials) {
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

// Both results of one example, from the sums over its weights.
template <class Acc>
void Finish(double inner, double error, bool zero, Acc* sq_norm,
            Acc* sq_norm_upper) {
  if (!std::isfinite(inner) || !std::isfinite(error)) {
    const bool nan = std::isnan(inner) || std::isnan(error);
    *sq_norm = nan ? std::numeric_limits<Acc>::quiet_NaN()
                   : std::numeric_limits<Acc>::infinity();
    *sq_norm_upper = *sq_norm;
    return;
  }
  const double clamped = std::max(inner, 0.0);
  // Keeps the bound visible where denormals are flushed, and covers underflow
  // of the double arithmetic.
  const double floor = zero ? 0 : std::numeric_limits<Acc>::min();
  *sq_norm = static_cast<Acc>(clamped);
  *sq_norm_upper = RoundUp<Acc>(clamped + error + floor);
}

}  // namespace

template <class T>
void GhostNorm(const CpuKernels& kernels, Parallel& parallel,
               const GhostNormShape& shape, const T* a, const T* g,
               Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  const int64_t tiles_per_weight = CeilDiv(shape.positions, BlockSize(shape));
  std::vector<GhostPartial> partials(shape.batch * shape.weights *
                                     tiles_per_weight);
  ComputePartials(kernels, parallel, shape, a, g, partials);

  const ScopedFloatEnvironment environment;
  const double relative_error = RelativeError<T>(kernels, shape);
  const GhostPartial* partial = partials.data();
  for (int64_t i = 0; i < shape.batch; ++i) {
    double inner = 0;
    double error = 0;
    bool zero = true;
    for (int64_t weight = 0; weight < shape.weights; ++weight) {
      double bound = 0;
      for (int64_t tile = 0; tile < tiles_per_weight; ++tile, ++partial) {
        inner += partial->inner;
        bound += partial->bound;
      }
      zero = zero && bound == 0;
      error += relative_error * bound * bound;
    }
    Finish(inner, error, zero, sq_norm + i, sq_norm_upper + i);
  }
}

template void GhostNorm(const CpuKernels&, Parallel&, const GhostNormShape&,
                        const float*, const float*, float*, float*);
template void GhostNorm(const CpuKernels&, Parallel&, const GhostNormShape&,
                        const BFloat16*, const BFloat16*, float*, float*);
template void GhostNorm(const CpuKernels&, Parallel&, const GhostNormShape&,
                        const Float16*, const Float16*, float*, float*);
template void GhostNorm(const CpuKernels&, Parallel&, const GhostNormShape&,
                        const double*, const double*, double*, double*);

}  // namespace bk
