// Tied cross terms of every instruction set against the definition.
#include "custom_calls/cpu/sparse/tied_cross.h"

#include <cmath>
#include <cstdlib>

#include "custom_calls/reference/lookup.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/lookup_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Tied {
  Tied(Random& random, const TiedCrossShape& s)
      : shape(s),
        left(Integers<T>(random, s.batch * s.positions * s.rows)),
        right(Integers<T>(random, s.batch * s.positions * s.p)),
        ids(Ids(random, s.batch * s.tokens, -2,
                static_cast<int32_t>(s.rows) + 1)),
        g(Integers<T>(random, s.batch * s.tokens * s.p)),
        cross(s.batch),
        upper(s.batch),
        exact(s.batch) {}
  void Run(const CpuKernels& kernels, Parallel& parallel) {
    TiedCross(kernels, parallel, shape, left.data(), right.data(), ids.data(),
              g.data(), cross.data(), upper.data());
    reference::TiedCross(shape, left.data(), right.data(), ids.data(), g.data(),
                         exact.data());
  }
  TiedCrossShape shape;
  Array<T> left;
  Array<T> right;
  Array<int32_t> ids;
  Array<T> g;
  Array<Accumulator<T>> cross;
  Array<Accumulator<T>> upper;
  Array<long double> exact;
};

class TiedCrossTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(TiedCrossTest);

// Around the micro-tile (3 x 4), the tile (48) and the depth (512).
TEST_P(TiedCrossTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t p : {0, 1, 7, 8, 9, 16, 17, 513}) {
      for (int64_t positions : {0, 1, 3, 4, 49}) {
        for (int64_t tokens : {0, 1, 5, 48, 50}) {
          SCOPED_TRACE(testing::Message() << "T, S, p = " << positions << ", "
                                          << tokens << ", " << p);
          Tied<T> tied(random_, {2, positions, 6, tokens, p});
          tied.Run(kernels(), serial_);
          for (int i = 0; i < 2; ++i) {
            ASSERT_EQ(tied.cross[i],
                      static_cast<Accumulator<T>>(tied.exact[i]));
            ASSERT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
          }
        }
      }
    }
  });
}

TEST_P(TiedCrossTest, BoundHoldsAndIsTight) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Tied<T> tied(random_, {3, 60, 20, 70, 600});
    tied.left = Normals<T>(random_, tied.left.size(), 1e-3);
    tied.right = Normals<T>(random_, tied.right.size());
    tied.g = Normals<T>(random_, tied.g.size(), 1e-2);
    tied.Run(kernels(), serial_);
    // |left| |right| |g| is about 1e-3 * 0.8 * 24 * 0.24 for 60 * 64 pairs;
    // kappa is at most 140 roundings, and 900 in double, which sums end with.
    const double kappa = sizeof(T) == sizeof(double) ? 900 : 140;
    const double scale = 2 * 60 * 70 * 1e-3 * 24.5 * 0.245;
    for (int i = 0; i < 3; ++i) {
      EXPECT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
      EXPECT_LE(tied.upper[i] - tied.cross[i],
                kappa * UnitRoundoff<T>() * scale);
    }
  });
}

TEST_P(TiedCrossTest, UnreadTokensAreNotReadAndBadOnesSpoilTheirExample) {
  Tied<float> tied(random_, {3, 10, 6, 8, 9});
  tied.ids[10] = 6;  // example 1, outside the table
  tied.Run(kernels(), serial_);
  const auto clean = tied.upper;
  tied.g[10 * 9 + 8] = std::nanf("");
  tied.Run(kernels(), serial_);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tied.upper[i], clean[i]);
  tied.ids[10] = 5;
  tied.Run(kernels(), serial_);
  for (int i : {0, 2}) EXPECT_EQ(tied.upper[i], clean[i]);
  EXPECT_FALSE(std::isfinite(tied.cross[1]));
  EXPECT_FALSE(std::isfinite(tied.upper[1]));
}

TEST_P(TiedCrossTest, SameBitsForAnyNumberOfThreads) {
  Tied<float> tied(random_, {3, 130, 20, 90, 70});
  tied.right = Normals<float>(random_, tied.right.size());
  tied.g = Normals<float>(random_, tied.g.size());
  tied.Run(kernels(), serial_);
  const auto cross = tied.cross;
  const auto upper = tied.upper;
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    tied.Run(kernels(), striped);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(tied.cross[i], cross[i]);
      EXPECT_EQ(tied.upper[i], upper[i]);
    }
  }
}

// BK_JAX_STRESS_CASES=1000000 for the long run.
int64_t StressCases() {
  const char* cases = std::getenv("BK_JAX_STRESS_CASES");
  return cases != nullptr ? std::atoll(cases) : 20000;
}

TEST_P(TiedCrossTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 6);
  std::uniform_real_distribution<double> exponent(-30, 12);
  int64_t below = 0;
  const int64_t cases = StressCases();
  for (int64_t repeat = 0; repeat < cases; ++repeat) {
    Tied<float> tied(random_,
                     {1, size(random_), 3, size(random_), size(random_)});
    const auto scale = [&] { return std::pow(10, exponent(random_)); };
    tied.left = Normals<float>(random_, tied.left.size(), scale());
    tied.right = Normals<float>(random_, tied.right.size(), scale());
    tied.g = Normals<float>(random_, tied.g.size(), scale());
    tied.Run(kernels(), serial_);
    if (!std::isfinite(tied.upper[0])) continue;
    below += static_cast<long double>(tied.upper[0]) < tied.exact[0] ? 1 : 0;
  }
  EXPECT_EQ(below, 0) << "of " << cases;
}

}  // namespace
}  // namespace bk
