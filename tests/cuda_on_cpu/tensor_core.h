// The arithmetic of a tensor core as engine.cuh assumes it: products are added
// in steps of 4, and in each step every term is aligned to the largest one and
// truncated. Tests of bounds also run with the largest error that the
// assumption allows, in one direction, so that no GPU that keeps to it is a
// harder test.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_TENSOR_CORE_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_TENSOR_CORE_H_

#include <cmath>
#include <cstdint>

#define BK_UNCHECKED __attribute__((no_sanitize_thread))

namespace bk::emulator {

// 0: terms are truncated. -1, 1: every step is too low or too high by as much
// as is assumed at most.
inline int tensor_core_error = 0;

inline constexpr int kStepTerms = 4;
inline constexpr double kLastPlace = 0x1p-23;  // of a float, relative
inline constexpr double kSmallest = 0x1p-126;  // products below become 0

// The float next to x in the direction of zero.
BK_UNCHECKED inline float Truncate(double x) {
  const auto y = static_cast<float>(x);
  if (!std::isfinite(y) || std::fabs(double{y}) <= std::fabs(x)) return y;
  return std::nextafter(y, 0.0f);
}

// x as a float, on the side of `exact`: not further away than x.
BK_UNCHECKED inline float RoundToward(double exact, double x) {
  const auto y = static_cast<float>(x);
  if (exact > x ? y >= x : y <= x) return y;
  return std::nextafter(y, exact > x ? HUGE_VALF : -HUGE_VALF);
}

// x without what lies below the last place of `largest`, at least |x|.
BK_UNCHECKED inline double Align(double x, double largest) {
  uint64_t bits;
  __builtin_memcpy(&bits, &largest, sizeof(bits));
  bits &= 0x7ff0000000000000;  // the power of two
  double unit;
  __builtin_memcpy(&unit, &bits, sizeof(unit));
  unit *= kLastPlace;
  return static_cast<double>(static_cast<int64_t>(x / unit)) * unit;
}

// sum + the products of 4 terms.
BK_UNCHECKED inline float TensorStep(float sum, const double* left,
                                     const double* right) {
  double terms[kStepTerms + 1] = {sum};
  double exact = sum, largest = std::fabs(sum);
  for (int t = 0; t < kStepTerms; ++t) {
    const double product = left[t] * right[t];
    terms[t + 1] = std::fabs(product) < kSmallest ? 0 : product;
    exact += terms[t + 1];
    largest = std::fmax(largest, std::fabs(product));
  }
  if (!std::isfinite(exact) || largest == 0) return static_cast<float>(exact);
  if (tensor_core_error != 0) {
    const double error = (kStepTerms + 2) * kLastPlace * largest;
    return RoundToward(exact, exact + tensor_core_error * error);
  }
  double aligned = 0;
  for (double term : terms) aligned += Align(term, largest);
  return Truncate(aligned);
}

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_TENSOR_CORE_H_
