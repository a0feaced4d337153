// The body of fma_peak.cc, compiled once for each width of vectors: BK_PEAK
// names the function, BK_VECTOR_BYTES the width.
#include <time.h>

namespace {

typedef float Vector __attribute__((vector_size(BK_VECTOR_BYTES)));

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Keeps the compiler from moving the chains away from the clock.
void Pin(Vector& v) { asm volatile("" : "+v"(v)); }

}  // namespace

// Flop per second of thread time. Twelve independent chains hide the latency of
// the multiply-add.
extern "C" double BK_PEAK() {
  constexpr int kChains = 12;
  constexpr int kSteps = 1000000;
  constexpr int kLanes = BK_VECTOR_BYTES / sizeof(float);
  Vector sums[kChains];
  for (Vector& sum : sums) sum = Vector{} + 1.0F;
  const Vector scale = Vector{} + 0.999F;
  const Vector shift = Vector{} + 1e-3F;
  const double start = ThreadSeconds();
  for (Vector& sum : sums) Pin(sum);
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int k = 0; k < kChains; ++k) sums[k] = sums[k] * scale + shift;
  }
  for (Vector& sum : sums) Pin(sum);
  const double seconds = ThreadSeconds() - start;
  return 2.0 * kLanes * kChains * kSteps / seconds;
}
