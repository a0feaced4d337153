#include "custom_calls/cpu/sparse/clipped_scatter.h"

#include <algorithm>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/sparse/token_order.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// Keys of all tokens that are read, unsorted, in the first half of the result;
// the second half is for sorting.
template <class Acc>
std::vector<uint64_t> ReadTokens(const LookupShape& shape, const int32_t* ids,
                                 const Acc* factor, int64_t* count) {
  std::vector<uint64_t> keys(2 * shape.batch * shape.tokens);
  *count = 0;
  for (int64_t i = 0; i < shape.batch; ++i) {
    if (factor[i] == 0) continue;
    for (int64_t k = i * shape.tokens; k < (i + 1) * shape.tokens; ++k) {
      const bool inside = ids[k] >= 0 && ids[k] < shape.rows;
      if (inside) keys[(*count)++] = TokenKey(ids[k], k);
    }
  }
  return keys;
}

// Where the tokens of each row that is hit begin, and where the last ones end.
std::vector<int64_t> SegmentBegins(const uint64_t* keys, int64_t count) {
  std::vector<int64_t> begins = {0};
  while (begins.back() < count) {
    begins.push_back(SegmentEnd(keys, begins.back(), count));
  }
  return begins;
}

}  // namespace

template <class T>
void ClippedScatter(const CpuKernels& kernels, Parallel& parallel,
                    const LookupShape& shape, const int32_t* ids,
                    const Accumulator<T>* factor, const T* g,
                    Accumulator<T>* sum) {
  int64_t count = 0;
  std::vector<uint64_t> buffer = ReadTokens(shape, ids, factor, &count);
  const uint64_t* keys = SortKeys(
      buffer.data(), buffer.data() + shape.batch * shape.tokens, count);
  const std::vector<int64_t> begins = SegmentBegins(keys, count);
  const auto hit = static_cast<int64_t>(begins.size()) - 1;
  const int64_t parts = CeilDiv(shape.p, kScatterColumns);
  if (hit == 0 || parts == 0) return;
  // Columns vary slowest: consecutive items read neighbouring tokens' rows.
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item % hit;
      const int64_t column0 = item / hit * kScatterColumns;
      const Segment<T> segment = {g,
                                  shape.p,
                                  column0,
                                  std::min(column0 + kScatterColumns, shape.p),
                                  keys + begins[row],
                                  begins[row + 1] - begins[row]};
      KernelsFor<T>(kernels).sparse.scatter_segment(
          {segment, shape.tokens, factor,
           sum + IdOfKey(*segment.keys) * shape.p});
    }
  };
  const double flops = 2.0 * static_cast<double>(CeilDiv(count, hit)) *
                       static_cast<double>(std::min(shape.p, kScatterColumns));
  parallel.For(hit * parts, flops, body);
}

#define BK_INSTANTIATE(T)                                               \
  template void ClippedScatter(                                         \
      const CpuKernels&, Parallel&, const LookupShape&, const int32_t*, \
      const Accumulator<T>*, const T*, Accumulator<T>*)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk
