// The largest rate of multiply-adds of one core, for benchmarks to relate to.
// A shared library, because it is measured in the process of the benchmark.
#include <time.h>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace {

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

// Flop per second of thread time; 0 where there is no AVX2. Twelve independent
// chains hide the latency of the multiply-add.
extern "C" double BkFmaPeak() {
#if defined(__AVX2__) && defined(__FMA__)
  constexpr int kChains = 12;
  constexpr int kSteps = 1000000;
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.0F);
  const __m256 scale = _mm256_set1_ps(0.999F);
  const __m256 shift = _mm256_set1_ps(1e-3F);
  const double start = ThreadSeconds();
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) {
      sums[k] = _mm256_fmadd_ps(sums[k], scale, shift);
    }
  }
  const double seconds = ThreadSeconds() - start;
  __m256 total = sums[0];
  for (int k = 1; k < kChains; ++k) total = _mm256_add_ps(total, sums[k]);
  volatile float keep = _mm256_cvtss_f32(total);
  static_cast<void>(keep);
  return 16.0 * kChains * kSteps / seconds;
#else
  return 0;
#endif
}
