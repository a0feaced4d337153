// Tied cross terms on a device against the definition.
#include "custom_calls/cuda/tied_cross.h"

#include <cmath>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/tied_calls.h"
#include "tests/custom_calls/tolerance.h"

namespace bk::cuda {
namespace {

class TiedCrossTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// Around the tile (64), the slab (16) and the chain (64), and empty ones.
TEST_F(TiedCrossTest, ExactOnSmallIntegers) {
  const std::vector<std::tuple<int64_t, int64_t, int64_t>> sizes = {
      {0, 3, 3},  {3, 0, 3},   {3, 3, 0},   {1, 1, 1},
      {5, 7, 17}, {65, 3, 16}, {3, 64, 65}, {66, 130, 2}};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const auto& [positions, tokens, p] : sizes) {
      SCOPED_TRACE(testing::Message()
                   << "T, S, p = " << positions << ", " << tokens << ", " << p);
      Tied<T> tied(random_, {2, positions, 6, tokens, p});
      tied.Run();
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(tied.cross[i], static_cast<Accumulator<T>>(tied.exact[i]));
        ASSERT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
      }
    }
  });
}

TEST_F(TiedCrossTest, BoundHoldsAndIsTight) {
  device::LimitBlocks(2);
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Tied<T> tied(random_, {2, 70, 20, 40, 200});
    tied.left = Normals<T>(random_, tied.left.size(), 1e-3);
    tied.right = Normals<T>(random_, tied.right.size());
    tied.g = Normals<T>(random_, tied.g.size(), 1e-2);
    tied.Run();
    // |left| |right| |g| is about 0.8 * 1e-3 * 14.1 * 0.141 for each pair;
    // kappa is at most 66 roundings times 1.02, on tensor cores 199 (192 of a
    // chunk, 5 of the sum of four, 2), and in double 670 more.
    const double roundings = sizeof(T) == sizeof(double)  ? 66 + 670
                             : sizeof(T) == sizeof(float) ? 67
                                                          : 200;
    const double kappa = 1.02 * roundings;
    const double scale = 70 * 40 * 1e-3 * 14.1 * 0.141;
    for (int i = 0; i < 2; ++i) {
      EXPECT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
      EXPECT_LE(tied.upper[i] - tied.cross[i],
                kappa * UnitRoundoff<T>() * scale);
    }
  });
}

TEST_F(TiedCrossTest, UnreadTokensAreNotReadAndBadOnesSpoilTheirExample) {
  Tied<float> tied(random_, {3, 10, 6, 8, 9});
  tied.ids[10] = 6;  // example 1, outside the table
  tied.Run();
  const auto clean = tied.upper;
  tied.g[10 * 9 + 8] = std::nanf("");
  tied.Run();
  EXPECT_EQ(tied.upper, clean);
  tied.ids[10] = 5;
  tied.Run();
  for (int i : {0, 2}) EXPECT_EQ(tied.upper[i], clean[i]);
  EXPECT_FALSE(std::isfinite(tied.cross[1]));
  EXPECT_FALSE(std::isfinite(tied.upper[1]));
}

// Rows that nearly cancel, of all magnitudes: one example each.
TEST_F(TiedCrossTest, NeverBelowOnManySmallCases) {
  std::uniform_real_distribution<double> exponent(-30, 10);
  Tied<float> tied(random_, {60, 2, 3, 2, 3});
  tied.right = Normals<float>(random_, tied.right.size());
  for (int64_t i = 0; i < tied.shape.batch; ++i) {
    const auto scale = static_cast<float>(std::pow(10, exponent(random_)));
    for (int64_t k = 6 * i; k < 6 * i + 6; ++k) {
      tied.g[k] = k % 2 == 0 ? scale : -scale * tied.right[k];
      tied.left[k] = tied.right[k] * (1 + 1e-6F * static_cast<float>(k));
    }
  }
  tied.Run();
  for (int64_t i = 0; i < tied.shape.batch; ++i) {
    EXPECT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
  }
}

}  // namespace
}  // namespace bk::cuda
