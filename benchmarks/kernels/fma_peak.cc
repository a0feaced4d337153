// The largest rate of multiply-adds of one core, for benchmarks to relate to.
// A shared library, because it is measured in the process of the benchmark.
extern "C" double BkFmaPeakAvx2();
extern "C" double BkFmaPeakAvx512();

// Flop per second of thread time, with the widest vectors that the CPU has; 0
// where there is no AVX2.
extern "C" double BkFmaPeak() {
  if (__builtin_cpu_supports("avx512f")) return BkFmaPeakAvx512();
  const bool has_fma =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_fma ? BkFmaPeakAvx2() : 0;
}
