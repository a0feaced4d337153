// Clip factors: the table of the header, and the theorem factor * n <= R.
#include "custom_calls/cpu/dense/clip_factor.h"

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/reference/clip_factor.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

constexpr Clipping kClippings[] = {Clipping::kAbadi, Clipping::kAutomatic,
                                   Clipping::kNormalize, Clipping::kIndicator};

template <class Real>
struct Clipped {
  Real factor;
  Real norm;
};

// Adds `terms` squared norms of one example.
template <class Real>
Clipped<Real> Clip(Clipping clipping, const std::vector<Real>& terms,
                   Real clip_norm, bool padding = false) {
  Clipped<Real> clipped;
  ClipFactor({static_cast<int64_t>(terms.size()), 1}, clipping, terms.data(),
             clip_norm, &padding, &clipped.factor, &clipped.norm);
  return clipped;
}

template <class Real>
class ClipFactorTest : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(ClipFactorTest, Reals);

// 9 + 16 = 25: norm 5, every quotient below is a short binary fraction.
TYPED_TEST(ClipFactorTest, ExactWhereTheAnswerIs) {
  using Real = TypeParam;
  const std::vector<Real> terms = {9, 16};
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, terms, 2.5).norm, 5);
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, terms, 2.5).factor, 0.5);
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, terms, 5).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, terms, 6).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kNormalize, terms, 10).factor, 2);
  EXPECT_EQ(Clip<Real>(Clipping::kIndicator, terms, 5).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kIndicator, terms, 4.99).factor, 0);
}

TYPED_TEST(ClipFactorTest, ZeroNorm) {
  using Real = TypeParam;
  const std::vector<Real> terms = {0, 0};
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, terms, 2).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kAutomatic, terms, 2).factor, 200);
  EXPECT_EQ(Clip<Real>(Clipping::kNormalize, terms, 2).factor, 0);
  EXPECT_EQ(Clip<Real>(Clipping::kIndicator, terms, 2).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, {}, 2).norm, 0);
}

TYPED_TEST(ClipFactorTest, NonFiniteNormAndPaddingGiveZero) {
  using Real = TypeParam;
  for (Clipping clipping : kClippings) {
    for (Real bad : {std::numeric_limits<Real>::quiet_NaN(),
                     std::numeric_limits<Real>::infinity(), Real{-1}}) {
      const auto clipped = Clip<Real>(clipping, {1, bad}, 1);
      EXPECT_EQ(clipped.factor, 0);
    }
    const auto padding = Clip<Real>(clipping, {4}, 8, true);
    EXPECT_EQ(padding.factor, 0);
    EXPECT_EQ(padding.norm, 2);
  }
  EXPECT_FALSE(std::isfinite(
      Clip<Real>(Clipping::kAbadi, {std::numeric_limits<Real>::infinity()}, 1)
          .norm));
}

TYPED_TEST(ClipFactorTest, ExtremeClipNorms) {
  using Real = TypeParam;
  const Real infinity = std::numeric_limits<Real>::infinity();
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, {4}, infinity).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kIndicator, {4}, infinity).factor, 1);
  EXPECT_EQ(Clip<Real>(Clipping::kAutomatic, {4}, infinity).factor, 0);
  EXPECT_EQ(Clip<Real>(Clipping::kNormalize, {4}, infinity).factor, 0);
  EXPECT_EQ(Clip<Real>(Clipping::kAbadi, {infinity}, infinity).factor, 0);
  for (Clipping clipping : kClippings) {
    for (Real norm : {0, 4}) {
      EXPECT_EQ(Clip<Real>(clipping, {norm}, 0).factor, 0);
      EXPECT_EQ(Clip<Real>(clipping, {norm}, -1).factor, 0);
      EXPECT_EQ(Clip<Real>(clipping, {norm}, NAN).factor, 0);
    }
  }
  // Too large for Real: the largest finite number, never infinity.
  const Real tiny = std::numeric_limits<Real>::min();
  const Real largest = std::numeric_limits<Real>::max();
  EXPECT_EQ(Clip<Real>(Clipping::kNormalize, {tiny}, largest).factor, largest);
  EXPECT_EQ(Clip<Real>(Clipping::kAutomatic, {0}, largest).factor, largest);
}

TYPED_TEST(ClipFactorTest, EmptyBatchIsValid) {
  using Real = TypeParam;
  ClipFactor<Real>({3, 0}, Clipping::kAbadi, nullptr, 1, nullptr, nullptr,
                   nullptr);
}

TYPED_TEST(ClipFactorTest, ColumnsAreExamples) {
  using Real = TypeParam;
  const Real sq_norms[] = {1, 9, 36, 0, 16, 28};  // [2, 3]
  const bool padding[] = {false, false, true};
  Real factor[3];
  Real norm[3];
  ClipFactor({2, 3}, Clipping::kNormalize, sq_norms, Real{5}, padding, factor,
             norm);
  EXPECT_EQ(std::vector<Real>(factor, factor + 3),
            std::vector<Real>({5, 1, 0}));
  EXPECT_EQ(std::vector<Real>(norm, norm + 3), std::vector<Real>({1, 5, 8}));
}

// Numbers from all over the range, denormals and near-squares included.
template <class Real>
Real Anything(Random& random) {
  const int limit = std::numeric_limits<Real>::max_exponent - 1;
  const int lowest = std::numeric_limits<Real>::min_exponent -
                     std::numeric_limits<Real>::digits;
  std::uniform_int_distribution<int> exponent(lowest, limit);
  std::uniform_int_distribution<int> middle(-20, 20);
  std::uniform_real_distribution<double> mantissa(1, 2);
  const int e = random() % 2 == 0 ? middle(random) : exponent(random);
  const double m = random() % 4 == 0 ? 1 : mantissa(random);
  return static_cast<Real>(std::ldexp(m, e));
}

// In exact arithmetic: 53 x 53 bits fit into the 113 of a quadruple.
#if LDBL_MANT_DIG >= 113
using Exact = long double;
#else
using Exact = __float128;
#endif

template <class Real>
void ExpectTheorem(Clipping clipping, const std::vector<Real>& terms,
                   Real clip_norm) {
  const auto clipped = Clip<Real>(clipping, terms, clip_norm);
  ASSERT_GE(clipped.factor, 0);
  ASSERT_TRUE(std::isfinite(clipped.factor));
  if (!std::isfinite(clipped.norm)) return;
  if (clipping == Clipping::kAbadi || clipping == Clipping::kIndicator) {
    ASSERT_LE(clipped.factor, 1);
  }
  const Exact clipped_norm = Exact{clipped.factor} * Exact{clipped.norm};
  ASSERT_TRUE(clipped_norm <= Exact{clip_norm})
      << clipped.factor << " * " << clipped.norm << " > " << clip_norm;
  // norm >= sqrt(sum of the terms).
  Exact sum = 0;
  for (Real term : terms) sum += Exact{term};
  ASSERT_TRUE(Exact{clipped.norm} * Exact{clipped.norm} >= sum);
}

TYPED_TEST(ClipFactorTest, FactorTimesNormNeverExceedsTheBound) {
  using Real = TypeParam;
  Random random(7);
  for (int repeat = 0; repeat < 300000; ++repeat) {
    std::vector<Real> terms = {Anything<Real>(random)};
    const Real clip_norm = Anything<Real>(random);
    if (random() % 2 == 0) terms.push_back(Anything<Real>(random));
    // Norms next to the bound, where min(R / n, 1) changes over.
    if (random() % 4 == 0) terms = {static_cast<Real>(clip_norm * clip_norm)};
    for (Clipping clipping : kClippings) {
      ExpectTheorem(clipping, terms, clip_norm);
      if (this->HasFatalFailure()) return;
    }
  }
}

// The price of safety is a few ulp.
TYPED_TEST(ClipFactorTest, CloseToTheFormula) {
  using Real = TypeParam;
  Random random(8);
  std::uniform_real_distribution<Real> uniform(Real(0.01), 10);
  for (int repeat = 0; repeat < 10000; ++repeat) {
    const Real sq_norm = uniform(random);
    const Real clip_norm = uniform(random);
    for (Clipping clipping :
         {Clipping::kAbadi, Clipping::kAutomatic, Clipping::kNormalize}) {
      const double expected = reference::ClipFactor(
          clipping, std::sqrt(static_cast<double>(sq_norm)), clip_norm);
      ASSERT_NEAR(Clip<Real>(clipping, {sq_norm}, clip_norm).factor, expected,
                  4 * std::numeric_limits<Real>::epsilon() * expected);
    }
  }
}

}  // namespace
}  // namespace bk
