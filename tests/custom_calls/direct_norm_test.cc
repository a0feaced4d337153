// Direct norm kernels of every instruction set against the definition, and
// their certified bound.
#include "custom_calls/cpu/dense/direct_norm.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <vector>

#include "custom_calls/reference/ghost_norm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Norms {
  Norms(const CpuKernels& kernels, Parallel& parallel, const DenseShape& shape,
        const Array<T>& a, const Array<T>& g)
      : sq_norm(shape.batch), upper(shape.batch) {
    DirectNorm(kernels, parallel, shape, a.data(), g.data(), sq_norm.data(),
               upper.data());
  }
  Array<Accumulator<T>> sq_norm;
  Array<Accumulator<T>> upper;
};

class DirectNormTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(DirectNormTest);

// Around micro-tiles, strips (96), tiles (192) and blocks (192 positions, 320
// in tile registers).
TEST_P(DirectNormTest, ExactOnSmallIntegers) {
  std::vector<DenseShape> shapes = {
      {2, 1, 330, 9, 17},  {1, 1, 3, 200, 9},  {1, 1, 2, 7, 400},
      {2, 3, 5, 97, 100},  {0, 1, 3, 4, 5},    {2, 0, 3, 4, 5},
      {1, 1, 641, 13, 50}, {1, 1, 193, 9, 50}, {1, 1, 2, 7, 800},
  };
  for (int64_t d : {0, 1, 5, 6, 7, 8, 9, 17}) {
    for (int64_t p : {0, 1, 4, 9, 16, 17, 49}) {
      for (int64_t positions : {0, 1, 5}) {
        shapes.push_back({2, 2, positions, d, p});
      }
    }
  }
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const DenseShape& shape : shapes) {
      SCOPED_TRACE(testing::Message() << "T, d, p = " << shape.positions << ", "
                                      << shape.d << ", " << shape.p);
      const Array<T> a = Integers<T>(random_, Rows(shape) * shape.d);
      const Array<T> g = Integers<T>(random_, Rows(shape) * shape.p);
      const Norms<T> norms(kernels(), serial_, shape, a, g);
      std::vector<double> expected(shape.batch);
      reference::GhostNorm(shape, a.data(), g.data(), expected.data());
      for (int64_t i = 0; i < shape.batch; ++i) {
        ASSERT_EQ(norms.sq_norm[i], static_cast<Accumulator<T>>(expected[i]));
        ASSERT_GE(norms.upper[i], expected[i]);
        ASSERT_LE(norms.upper[i], 1.002 * expected[i] + FLT_MIN);
      }
    }
  });
}

// However much the positions cancel, the norm is known within c u S.
TEST_P(DirectNormTest, BoundIsSafeAndTightOnCancellingData) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (double noise : {1.0, 1e-2, 1e-4, 0.0}) {
      for (int64_t positions : {2, 17, 130, 400}) {
        SCOPED_TRACE(testing::Message() << noise << " " << positions);
        const auto c = Cancelling<T>(random_, positions, 24, 20, 1, noise);
        const Norms<T> norms(kernels(), serial_, c.shape(), c.a, c.g);
        long double exact = 0;
        double scale = 0;
        reference::GhostNorm(c.shape(), c.a.data(), c.g.data(), &exact);
        reference::GhostNormScale(c.shape(), c.a.data(), c.g.data(), &scale);
        EXPECT_GE(static_cast<long double>(norms.upper[0]), exact);
        const double slack = 1.1 * static_cast<double>(positions + 3) *
                             UnitRoundoff<T>() * std::sqrt(scale);
        const auto norm = static_cast<double>(std::sqrt(exact));
        EXPECT_LE(std::sqrt(static_cast<double>(norms.upper[0])),
                  (norm + 2 * slack) * (1 + 1000 * UnitRoundoff<T>()) + 1e-18);
      }
    }
  });
}

TEST_P(DirectNormTest, ZeroIsZeroAndTinyIsNot) {
  for (int64_t positions : {1, 3}) {
    NormCase<float> c = {positions, 9, 2, Array<float>(positions * 9),
                         Array<float>(positions * 2)};
    EXPECT_EQ(Norms<float>(kernels(), serial_, c.shape(), c.a, c.g).upper[0],
              0);
    for (float tiny : {FLT_TRUE_MIN, 1e-30f, -1e-25f}) {
      for (float large : {1.0f, 1e15f}) {
        c.a[positions * 9 - 1] = tiny;
        c.g[positions * 2 - 1] = large;
        const Norms<float> norms(kernels(), serial_, c.shape(), c.a, c.g);
        long double exact = 0;
        reference::GhostNorm(c.shape(), c.a.data(), c.g.data(), &exact);
        EXPECT_GE(static_cast<long double>(norms.upper[0]), exact);
        EXPECT_GE(norms.upper[0], FLT_MIN);
      }
    }
  }
}

TEST_P(DirectNormTest, NonFiniteInputSpoilsItsOwnExampleOnly) {
  CheckThatNonFiniteSpoilsItsOwnExample<Norms>(kernels(), serial_, random_);
}

TEST_P(DirectNormTest, OverflowIsNotFinite) {
  const DenseShape shape = {1, 1, 2, 1, 1};
  Array<float> a(2);
  std::fill_n(a.data(), 2, 1e15f);
  const Norms<float> norms(kernels(), serial_, shape, a, a);
  EXPECT_EQ(norms.sq_norm[0], HUGE_VALF);
  EXPECT_EQ(norms.upper[0], HUGE_VALF);
}

TEST_P(DirectNormTest, SameBitsForAnyNumberOfThreads) {
  const DenseShape shape = {3, 2, 130, 270, 165};
  const Array<float> a = Normals<float>(random_, Rows(shape) * shape.d);
  const Array<float> g = Normals<float>(random_, Rows(shape) * shape.p);
  const Norms<float> expected(kernels(), serial_, shape, a, g);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const Norms<float> norms(kernels(), striped, shape, a, g);
    for (int64_t i = 0; i < shape.batch; ++i) {
      EXPECT_EQ(norms.sq_norm[i], expected.sq_norm[i]);
      EXPECT_EQ(norms.upper[i], expected.upper[i]);
    }
  }
}

}  // namespace
}  // namespace bk
