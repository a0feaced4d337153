// The certified bound: never below the exact squared norm, and not far above.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/reference/ghost_norm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace bk {
namespace {

template <class T>
struct Bound {
  Bound(const CpuKernels& kernels, const NormCase<T>& c) {
    SerialParallel serial;
    GhostNorm(kernels, serial, c.shape(), c.a.data(), c.g.data(), &sq_norm,
              &upper);
    reference::GhostNorm(c.shape(), c.a.data(), c.g.data(), &exact);
    reference::GhostNormScale(c.shape(), c.a.data(), c.g.data(), &scale);
  }
  Accumulator<T> sq_norm, upper;
  long double exact = 0;
  double scale = 0;
};

class GhostNormBoundTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(GhostNormBoundTest);

TEST_P(GhostNormBoundTest, NeverBelowOnCancellingData) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (double noise : {1.0, 1e-1, 1e-2, 1e-4, 1e-5, 0.0}) {
      for (int64_t positions : {2, 17, 64, 130}) {
        SCOPED_TRACE(testing::Message() << noise << " " << positions);
        const auto c = Cancelling<T>(random_, positions, 48, 48, 1, noise);
        const Bound<T> bound(kernels(), c);
        EXPECT_GE(static_cast<long double>(bound.upper), bound.exact);
        EXPECT_GE(bound.upper, bound.sq_norm);
      }
    }
  });
}

TEST_P(GhostNormBoundTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 9);
  std::uniform_real_distribution<double> exponent(-30, 15);
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const int64_t t = size(random_), d = size(random_), p = size(random_);
    const NormCase<float> c = {
        t, d, p,
        Normals<float>(random_, t * d, std::pow(10, exponent(random_))),
        Normals<float>(random_, t * p, std::pow(10, exponent(random_)))};
    const Bound<float> bound(kernels(), c);
    ASSERT_GE(static_cast<long double>(bound.upper), bound.exact);
    ASSERT_GE(bound.upper, FLT_MIN);
  }
}

// kappa u stays below 2e-5 for 768 features and more, on every ISA: the norm of
// 100 orthogonal positions grows by less than 0.1 %.
TEST_P(GhostNormBoundTest, IsTight) {
  const int64_t t = 20, d = 800, p = 780;
  const NormCase<float> c = {t, d, p, Normals<float>(random_, t * d),
                             Normals<float>(random_, t * p)};
  const Bound<float> bound(kernels(), c);
  EXPECT_GE(static_cast<long double>(bound.upper), bound.exact);
  EXPECT_LE(bound.upper, bound.sq_norm + 2e-5 * bound.scale);
}

// Where the bound of the Gram matrices is loose, the gradient itself is formed:
// the bound is then within 1 % of the norm although S^2 / n grows to 1e6.
TEST_P(GhostNormBoundTest, CertifiesOrRecomputes) {
  for (double noise : {1.0, 1e-1, 1e-2, 5e-3}) {
    SCOPED_TRACE(noise);
    const auto c = Cancelling<float>(random_, 64, 48, 40, 1, noise);
    const Bound<float> bound(kernels(), c);
    const auto exact = static_cast<double>(bound.exact);
    EXPECT_GE(bound.upper, exact);
    EXPECT_LE(bound.upper, 1.0201 * exact);
    EXPECT_NEAR(bound.sq_norm, exact, 0.01 * exact);
  }
}

TEST_P(GhostNormBoundTest, RecomputesTheSameForAnyNumberOfThreads) {
  const auto c = Cancelling<float>(random_, 100, 500, 300, 1, 1e-3);
  const Bound<float> expected(kernels(), c);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    float sq_norm, upper;
    GhostNorm(kernels(), striped, c.shape(), c.a.data(), c.g.data(), &sq_norm,
              &upper);
    EXPECT_EQ(sq_norm, expected.sq_norm);
    EXPECT_EQ(upper, expected.upper);
  }
}

TEST_P(GhostNormBoundTest, ZeroGradientsAreExactlyZero) {
  for (int64_t positions : {1, 2, 50}) {
    NormCase<float> c = {positions, 5, 3,
                         Normals<float>(random_, positions * 5),
                         Array<float>(positions * 3)};
    EXPECT_EQ(Bound<float>(kernels(), c).upper, 0);
    std::swap(c.a, c.g);
    std::swap(c.d, c.p);
    EXPECT_EQ(Bound<float>(kernels(), c).upper, 0);
  }
}

// Squares of these underflow in float, and the first is itself denormal.
TEST_P(GhostNormBoundTest, TinyGradientsAreNotZero) {
  for (float tiny : {FLT_TRUE_MIN, 1e-30f, -1e-25f}) {
    for (int64_t positions : {1, 3}) {
      NormCase<float> c = {positions, 9, 2, Array<float>(positions * 9),
                           Array<float>(positions * 2)};
      c.a[positions * 9 - 1] = tiny;
      c.g[positions * 2 - 1] = 1;
      const Bound<float> bound(kernels(), c);
      EXPECT_GE(bound.upper, FLT_MIN);
      // A large gradient makes the product visible although a a^T underflows.
      c.g[positions * 2 - 1] = 1e15f;
      const Bound<float> large(kernels(), c);
      EXPECT_GE(static_cast<long double>(large.upper), large.exact);
    }
  }
}

#if defined(__x86_64__)
// XLA calls with denormals flushed to zero; the kernels must not inherit that.
TEST_P(GhostNormBoundTest, IgnoresAndRestoresFlushToZero) {
  constexpr unsigned kFlush = 0x8040;
  const NormCase<float> c = {2, 3, 3, Normals<float>(random_, 6, 1e-20),
                             Normals<float>(random_, 6, 1e12)};
  const Bound<float> expected(kernels(), c);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlush);
  Accumulator<float> sq_norm, upper;
  GhostNorm(kernels(), serial_, c.shape(), c.a.data(), c.g.data(), &sq_norm,
            &upper);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(after & kFlush, kFlush);
  EXPECT_EQ(sq_norm, expected.sq_norm);
  EXPECT_EQ(upper, expected.upper);
  EXPECT_GT(sq_norm, 0);
}
#endif

}  // namespace
}  // namespace bk
