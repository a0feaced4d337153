#include "custom_calls/cpu/sparse/tied_cross.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// kappa * u such that |computed - exact| <= kappa u X for one example, where
// X = sum_ts |left[t, id_s]| R_t G_s with R_t >= |right_t|, G_s >= |g_s|.
//
// 1. A computed inner product errs by at most gamma_c |right_t| |g_s|
//    (Cauchy-Schwarz) with c roundings in the accumulator type: the product,
//    a lane's chain over at most kCrossDepth features, the tree over lanes.
//    Gradual underflow adds at most p 2^-150 <= u R_t G_s (LengthBound).
// 2. What follows is double: blocks of features, the product with left, sums
//    over a tile, over tiles of tokens, over tiles of positions.
// 3. gamma_c - c u, the rounding of the lengths and of X itself are less than
//    0.1 %, for c u < 1e-4; 2 % are added.
template <class T>
double RelativeError(const CpuKernels& kernels, const TiedCrossShape& shape) {
  using Acc = Accumulator<T>;
  const int64_t lanes = LanesOf<Acc>(kernels);
  const int64_t chain = CeilDiv(std::min(shape.p, kCrossDepth), lanes);
  const int64_t wide = CeilDiv(shape.p, kCrossDepth) + 2 * kCrossTile +
                       CeilDiv(shape.tokens, kCrossTile) * kCrossTile +
                       CeilDiv(shape.positions, kCrossTile) + shape.p + 16;
  return 1.02 * (static_cast<double>(2 + chain + TreeDepth(lanes)) *
                     kUnitRoundoff<Acc> +
                 static_cast<double>(wide) * kUnitRoundoff<double>);
}

template <class Acc>
void Store(const CrossPartial& sum, double relative_error, Acc* cross,
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
  const double slack = 4 * kUnitRoundoff<double> * std::fabs(sum.inner);
  *cross_upper = RoundUp<Acc>(sum.inner + (error + slack + floor));
}

}  // namespace

template <class T>
void TiedCross(const CpuKernels& kernels, Parallel& parallel,
               const TiedCrossShape& shape, const T* left, const T* right,
               const int32_t* ids, const T* g, Accumulator<T>* cross,
               Accumulator<T>* cross_upper) {
  const int64_t tiles = CeilDiv(shape.positions, kCrossTile);
  std::vector<CrossPartial> partials(shape.batch * tiles);
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / tiles;
      const CrossTask<T> task = {left + i * shape.positions * shape.rows,
                                 right + i * shape.positions * shape.p,
                                 ids + i * shape.tokens,
                                 g + i * shape.tokens * shape.p,
                                 shape.positions,
                                 shape.rows,
                                 shape.tokens,
                                 shape.p};
      partials[item] = KernelsFor<T>(kernels).sparse.cross_tile_row(
          task, item % tiles * kCrossTile);
    }
  };
  const double flops =
      2.0 * static_cast<double>(std::min(shape.positions, kCrossTile)) *
      static_cast<double>(shape.tokens) * static_cast<double>(shape.p);
  parallel.For(static_cast<int64_t>(partials.size()), flops, body);

  const ScopedFloatEnvironment environment;
  const double relative_error = RelativeError<T>(kernels, shape);
  for (int64_t i = 0; i < shape.batch; ++i) {
    CrossPartial sum = {0, 0};
    for (int64_t tile = i * tiles; tile < (i + 1) * tiles; ++tile) {
      sum.inner += partials[tile].inner;
      sum.bound += partials[tile].bound;
    }
    Store(sum, relative_error, cross + i, cross_upper + i);
  }
}

#define BK_INSTANTIATE(T)                                                      \
  template void TiedCross(const CpuKernels&, Parallel&, const TiedCrossShape&, \
                          const T*, const T*, const int32_t*, const T*,        \
                          Accumulator<T>*, Accumulator<T>*)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk
