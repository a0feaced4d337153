#include "custom_calls/cpu/noise/banded_gaussian.h"

#include <algorithm>
#include <iterator>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/noise/noise_ranges.h"

namespace bk {
namespace {

// Values whose noise stays in L1 while the draws are added: 4 or 8 KB.
constexpr int64_t kBlock = 4 * kGroupWords;

// Vector operations per value and draw, about; decides only what one task
// takes.
constexpr double kFlopsPerValue = 16;

// At most kBlock values.
template <class T>
void AddBlock(const CpuKernels& kernels, const std::vector<NoiseTerm<T>>& terms,
              uint64_t position, int64_t count, const T* x, T* out) {
  alignas(kScratchAlignment) T noise[kBlock];
  std::fill_n(noise, count, T{0});
  for (const NoiseTerm<T>& term : terms) {
    KernelsFor<T>(kernels).gaussian(
        {term.stream, term.scale, position, count, noise, noise});
  }
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] + noise[i];
}

// Blocks end where groups of words do, so that no group is made twice.
template <class T>
void AddRange(const CpuKernels& kernels, const std::vector<NoiseTerm<T>>& terms,
              const NoiseRange& range, const T* x, T* out) {
  for (int64_t done = 0; done < range.count;) {
    const uint64_t position = range.position + static_cast<uint64_t>(done);
    const auto into = static_cast<int64_t>(position % kBlock);
    const int64_t count = std::min(kBlock - into, range.count - done);
    const int64_t at = range.offset + done;
    AddBlock(kernels, terms, position, count, x + at, out + at);
    done += count;
  }
}

}  // namespace

template <class T>
void BandedGaussian(const CpuKernels& kernels, Parallel& parallel,
                    const std::vector<NoiseTerm<T>>& terms,
                    const BlockShape& shape, const T* x, T* out) {
  const NoiseRanges ranges(shape);
  std::vector<NoiseTerm<T>> drawn;
  std::copy_if(terms.begin(), terms.end(), std::back_inserter(drawn),
               [](const NoiseTerm<T>& term) { return term.scale != 0; });
  if (drawn.empty()) {
    if (x != out) std::copy_n(x, ranges.Elements(), out);
    return;
  }
  const auto run = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    for (int64_t item = begin; item < end; ++item) {
      AddRange(kernels, drawn, ranges[item], x, out);
    }
  };
  const double flops = kFlopsPerValue * static_cast<double>(drawn.size());
  parallel.For(ranges.Count(), flops * ranges.MeanSize(), run);
}

template void BandedGaussian(const CpuKernels&, Parallel&,
                             const std::vector<NoiseTerm<float>>&,
                             const BlockShape&, const float*, float*);
template void BandedGaussian(const CpuKernels&, Parallel&,
                             const std::vector<NoiseTerm<double>>&,
                             const BlockShape&, const double*, double*);

}  // namespace bk
