#include "custom_calls/cpu/dense/direct_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/cpu/dense/product.h"

namespace bk {
namespace {

// S_n^2 = (sum_t |a_t| |g_t|)^2, one for each example and weight.
template <class T>
std::vector<double> SquaredSpreads(const CpuKernels& kernels,
                                   Parallel& parallel, const DenseShape& shape,
                                   const T* a, const T* g) {
  std::vector<double> spreads(shape.batch * shape.weights);
  const double flops =
      2.0 * static_cast<double>(shape.positions * (shape.d + shape.p));
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t pair = begin; pair < end; ++pair) {
      const int64_t row = pair * shape.positions;
      const double spread =
          KernelsFor<T>(kernels).spread({a + row * shape.d, g + row * shape.p,
                                         shape.positions, shape.d, shape.p, 0});
      spreads[pair] = spread * spread;
    }
  };
  parallel.For(static_cast<int64_t>(spreads.size()), flops, body);
  return spreads;
}

// gamma such that | |computed G| - |G| | <= gamma S for one weight. Derivation:
//
// 1. An entry of G is a sum of T products. On the way of any term there are at
//    most c roundings: one for the product (no FMA in the baseline), one for
//    each addition of its block of at most kGemmDepth rows (kTileGemmDepth
//    with tile registers), one for each block. So it errs by at most gamma_c
//    sum_t |a_ti| |g_tj|, plus T 2^-150 if products underflow gradually (sums
//    of denormal numbers are exact).
// 2. The matrix of the first bounds has norm at most gamma_c S by the triangle
//    inequality. That of the second has norm at most T' sqrt(d p) 2^-150,
//    where T' counts positions at which neither row is zero; each adds at
//    least sqrt(d p) 2^-126 to S (LengthBound): less than u S together.
//    With tile registers, roundings are fewer whatever the order of additions,
//    and denormal numbers are taken for zero. As in ghost_norm.cc, elements
//    lose T' 2^-126 times sqrt(d) |g_t| + sqrt(p) |a_t|, products and sums 3 T'
//    sqrt(d p) 2^-126, and S has at least sqrt(d p) 2^-100 for each such
//    position: less than u S again.
// 3. S is made from computed row norms, below the exact ones by less than
//    0.01 %; 2 % are added for this and for the double arithmetic.
template <class T>
double RelativeError(const CpuKernels& kernels, const DenseShape& shape) {
  const double u = kUnitRoundoff<Accumulator<T>>;
  const int64_t depth =
      KernelsFor<T>(kernels).tiles ? kTileGemmDepth : kGemmDepth;
  const int64_t roundings =
      1 + std::min(shape.positions, depth) + CeilDiv(shape.positions, depth);
  const double error = static_cast<double>(roundings) * u;
  return 1.02 * (error / (1 - error) + u);
}

}  // namespace

template <class T>
void DirectNorm(const CpuKernels& kernels, Parallel& parallel,
                const DenseShape& shape, const T* a, const T* g,
                Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  using Acc = Accumulator<T>;
  if (AnyZero({shape.weights, shape.positions, shape.d, shape.p})) {
    std::fill_n(sq_norm, shape.batch, Acc{0});
    std::fill_n(sq_norm_upper, shape.batch, Acc{0});
    return;
  }
  const Tiling tiling = ChooseTiling(
      shape.batch * shape.weights, shape.d, shape.p,
      FitsOneBlock(shape) ? kGemmColumns : kDirectColumns, kEnoughTiles);
  const std::vector<double> squares =
      ProductSquares<T>(kernels, parallel, shape, tiling, a, g, nullptr);
  const std::vector<double> spreads =
      SquaredSpreads(kernels, parallel, shape, a, g);

  const ScopedFloatEnvironment environment;
  const int64_t tiles = shape.weights * tiling.Tiles();
  for (int64_t i = 0; i < shape.batch; ++i) {
    double sum = 0, spread = 0;
    for (int64_t k = 0; k < tiles; ++k) sum += squares[i * tiles + k];
    for (int64_t n = 0; n < shape.weights; ++n) {
      spread += spreads[i * shape.weights + n];
    }
    // Errors of the weights' gradients are orthogonal, as the gradients are.
    const double upper = std::sqrt(SquaresUpper<Acc>(shape, tiling, sum)) +
                         RelativeError<T>(kernels, shape) * std::sqrt(spread);
    const double slack =
        1 + static_cast<double>(shape.weights + 16) * kUnitRoundoff<double>;
    FinishNorm(sum, spread == 0 ? 0 : upper * upper * slack, spread == 0,
               sq_norm + i, sq_norm_upper + i);
  }
}

template void DirectNorm(const CpuKernels&, Parallel&, const DenseShape&,
                         const float*, const float*, float*, float*);
template void DirectNorm(const CpuKernels&, Parallel&, const DenseShape&,
                         const BFloat16*, const BFloat16*, float*, float*);
template void DirectNorm(const CpuKernels&, Parallel&, const DenseShape&,
                         const Float16*, const Float16*, float*, float*);
template void DirectNorm(const CpuKernels&, Parallel&, const DenseShape&,
                         const double*, const double*, double*, double*);

}  // namespace bk
