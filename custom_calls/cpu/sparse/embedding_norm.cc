#include "custom_calls/cpu/sparse/embedding_norm.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/sparse/token_order.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// What columns of one example add up to.
struct Partial {
  double squares = 0;
  double sq_error = 0;  // square of a bound on the error of the sums, in norm
  bool zero = true;
};

// A sum of m numbers x_k in double errs by at most gamma_{m-1} sum |x_k|, and
// (sum |x_k|)^2 <= m sum x_k^2: for all columns of a segment of m tokens the
// error in norm is at most gamma_{m-1} sqrt(m sum_t |g_t|^2). Sums of doubles
// do not lose anything by underflow. m 2^-53 < 1e-6: 2 % cover gamma and the
// rounding of the squares.
double SquaredError(int64_t m, double token_squares) {
  const double gamma =
      static_cast<double>(m - 1) * kUnitRoundoff<double> * 1.02;
  return gamma * gamma * static_cast<double>(m) * token_squares;
}

// Whether a segment whose squares vanish is zero. Squares of floats do not
// underflow in double, those of doubles do.
template <class T>
bool IsZero(const Segment<T>& segment) {
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t k = 0; k < segment.count; ++k) {
      const auto token = static_cast<int64_t>(segment.keys[k] & kTokenMask);
      const double* row = segment.g + token * segment.p;
      const auto not_zero = [](double x) { return x != 0; };
      if (std::any_of(row + segment.column0, row + segment.column1, not_zero)) {
        return false;
      }
    }
  }
  return true;
}

// Keys of the tokens that are read, sorted. `scratch` holds 2 T keys.
const uint64_t* OrderTokens(const int32_t* ids, int64_t tokens,
                            uint64_t* scratch, int64_t* count) {
  *count = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    if (ids[t] >= 0) scratch[(*count)++] = TokenKey(ids[t], t);
  }
  return SortKeys(scratch, scratch + tokens, *count);
}

// Columns [column0, column0 + kSegmentColumns) of one example.
template <class T>
Partial ExamplePartial(const ElementKernels<T>& kernel, int64_t tokens,
                       int64_t p, const int32_t* ids, const T* g,
                       int64_t column0) {
  auto* scratch = ThreadScratchOf<uint64_t>(2 * tokens);
  int64_t count = 0;
  const uint64_t* keys = OrderTokens(ids, tokens, scratch, &count);
  const int64_t column1 = std::min(column0 + kSegmentColumns, p);
  Partial sum;
  for (int64_t begin = 0; begin < count;) {
    const int64_t end = SegmentEnd(keys, begin, count);
    const Segment<T> segment = {g,          p, column0, column1, keys + begin,
                                end - begin};
    const SegmentSquares squares = kernel.sparse.segment_squares(segment);
    sum.squares += squares.sum;
    sum.sq_error += SquaredError(end - begin, squares.tokens);
    sum.zero =
        sum.zero && squares.sum == 0 && squares.tokens == 0 && IsZero(segment);
    begin = end;
  }
  return sum;
}

}  // namespace

template <class T>
void EmbeddingNorm(const CpuKernels& kernels, Parallel& parallel,
                   const LookupShape& shape, const int32_t* ids, const T* g,
                   Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  const int64_t parts = CeilDiv(shape.p, kSegmentColumns);
  std::vector<Partial> partials(shape.batch * parts);
  const double flops = 4.0 * static_cast<double>(shape.tokens) *
                       static_cast<double>(std::min(shape.p, kSegmentColumns));
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / parts;
      partials[item] = ExamplePartial(
          KernelsFor<T>(kernels), shape.tokens, shape.p, ids + i * shape.tokens,
          g + i * shape.tokens * shape.p, item % parts * kSegmentColumns);
    }
  };
  parallel.For(static_cast<int64_t>(partials.size()), flops, body);

  const ScopedFloatEnvironment environment;
  // A square is added along a row's vectors, over segments, over parts.
  const auto roundings =
      static_cast<double>(kSegmentColumns + shape.tokens + parts + 8);
  for (int64_t i = 0; i < shape.batch; ++i) {
    Partial sum;
    for (int64_t part = i * parts; part < (i + 1) * parts; ++part) {
      sum.squares += partials[part].squares;
      sum.sq_error += partials[part].sq_error;
      sum.zero = sum.zero && partials[part].zero;
    }
    const double error = std::sqrt(sum.sq_error) * (1 + 0x1p-20);
    StoreCertified<Accumulator<T>>({sum.squares, error, roundings, sum.zero},
                                   sq_norm + i, sq_norm_upper + i);
  }
}

#define BK_INSTANTIATE(T)                                                   \
  template void EmbeddingNorm(const CpuKernels&, Parallel&,                 \
                              const LookupShape&, const int32_t*, const T*, \
                              Accumulator<T>*, Accumulator<T>*)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk
