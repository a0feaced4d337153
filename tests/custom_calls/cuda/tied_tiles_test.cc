// Cross terms of 16-bit elements at sizes around those of tiles, with tiles of
// both sizes: rows that are aligned and rows that are not.
#include <cmath>

#include "custom_calls/reference/convert.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/tied_calls.h"
#include "tests/custom_calls/cuda/tile_sides.h"

namespace bk::cuda {
namespace {

class TiedTilesTest : public TileSidesTest {
 protected:
  template <class T>
  void ExpectExact(const Tied<T>& tied) {
    for (int64_t i = 0; i < tied.shape.batch; ++i) {
      ASSERT_EQ(tied.cross[i], static_cast<float>(tied.exact[i]));
      ASSERT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
    }
  }
  template <class T>
  void RunExactly(const TiedCrossShape& shape, int64_t skipped) {
    SCOPED_TRACE(testing::Message()
                 << "T, S, p = " << shape.positions << ", " << shape.tokens
                 << ", " << shape.p << ", skipped " << skipped);
    Tied<T> tied(random_, shape);
    tied.skipped = skipped;
    tied.Run();
    ExpectExact(tied);
  }
  // Everything 1 but for features after the first.
  Tied<BFloat16> Ones(const TiedCrossShape& shape) {
    Tied<BFloat16> tied(random_, shape);
    for (int64_t k = 0; k < tied.left.size(); ++k) tied.left[k] = One();
    for (int64_t k = 0; k < tied.right.size(); ++k) {
      tied.right[k] = k % shape.p == 0 ? One() : BFloat16{};
    }
    for (int64_t k = 0; k < tied.g.size(); ++k) {
      tied.g[k] = k % shape.p == 0 ? One() : BFloat16{};
    }
    for (int64_t s = 0; s < tied.ids.size(); ++s) {
      tied.ids[s] = static_cast<int32_t>(s % shape.rows);
    }
    return tied;
  }
  static BFloat16 One() { return reference::FromDouble<BFloat16>(1); }

  Random random_{20221001};
};

// B, T, rows of the table, S, p.
constexpr TiedCrossShape kShapes[] = {
    {2, 63, 7, 65, 64},   {1, 129, 6, 70, 72}, {1, 70, 5, 257, 136},
    {1, 128, 9, 128, 65}, {2, 66, 4, 127, 1},  {1, 65, 3, 65, 130},
    {2, 130, 6, 131, 8},  {1, 64, 5, 300, 7},  {2, 70, 4, 0, 8},
    {2, 80, 4, 90, 0},
};

TEST_F(TiedTilesTest, ExactOnSmallIntegers) {
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    SCOPED_TRACE(large);
    for (const TiedCrossShape& shape : kShapes) {
      RunExactly<BFloat16>(shape, 0);
      if (shape.positions < 70) RunExactly<Float16>(shape, 0);
    }
  }
}

// Rows of 72 elements that begin anywhere.
TEST_F(TiedTilesTest, AlignmentIsThatOfAddresses) {
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    for (int64_t skipped : {1, 4, 8}) {
      RunExactly<BFloat16>({2, 66, 5, 67, 72}, skipped);
    }
  }
}

// Blocks of threads that make several tiles.
TEST_F(TiedTilesTest, FewBlocks) {
  device::LimitBlocks(2);
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    RunExactly<BFloat16>({2, 130, 5, 140, 72}, 0);
  }
}

// The same addresses are the same rows only if there are as many of them.
TEST_F(TiedTilesTest, OneArrayMayBeTheBeginningOfTheOther) {
  for (bool large : {false, true}) {
    for (int64_t positions : {66, 100}) {
      UseLargeTiles(large);
      Tied<BFloat16> tied(random_, {1, positions, 5, 100, 72});
      tied.RunOnOneArray();
      ExpectExact(tied);
    }
  }
}

TEST_F(TiedTilesTest, NotANumberStaysWithItsTokenAndItsExample) {
  for (bool large : {false, true}) {
    for (int64_t p : {65, 72}) {
      UseLargeTiles(large);
      SCOPED_TRACE(testing::Message() << large << p);
      Tied<BFloat16> tied(random_, {3, 70, 6, 66, p});
      tied.ids[66 + 9] = 6;  // example 1, outside of the table
      tied.Run();
      const auto clean = tied.upper;
      tied.g[(66 + 9) * p + p - 1] = reference::FromDouble<BFloat16>(NAN);
      tied.Run();
      EXPECT_EQ(tied.upper, clean);
      tied.ids[66 + 9] = 5;
      tied.Run();
      for (int i : {0, 2}) EXPECT_EQ(tied.upper[i], clean[i]);
      EXPECT_FALSE(std::isfinite(tied.cross[1]));
      EXPECT_FALSE(std::isfinite(tied.upper[1]));
    }
  }
}

// Nothing cancels and one feature has all of a row: every addition errs by as
// much as the bound counts.
TEST_F(TiedTilesTest, BoundHoldsWhereEveryAdditionErrs) {
  const TiedCrossShape shape = {1, 70, 3, 130, 136};
  const double exact = 70.0 * 130.0;
  for (bool large : {false, true}) {
    for (int direction : {0, -1, 1}) {
      UseLargeTiles(large);
      if (!device::SetTensorCoreError(direction) && direction != 0) continue;
      SCOPED_TRACE(testing::Message() << large << direction);
      Tied<BFloat16> tied = Ones(shape);
      tied.Run();
      EXPECT_GE(tied.upper[0], exact);
      EXPECT_LE(tied.upper[0], (1 + 2.5e-5) * exact);
    }
  }
}

// Normal numbers, with every addition as wrong as can be.
TEST_F(TiedTilesTest, BoundHoldsOnNormalNumbers) {
  for (bool large : {false, true}) {
    for (int direction : {-1, 1}) {
      UseLargeTiles(large);
      if (!device::SetTensorCoreError(direction)) continue;
      Tied<Float16> tied(random_, {2, 70, 20, 66, 200});
      tied.left = Normals<Float16>(random_, tied.left.size(), 1e-2);
      tied.right = Normals<Float16>(random_, tied.right.size());
      tied.g = Normals<Float16>(random_, tied.g.size(), 1e-1);
      tied.Run();
      for (int i = 0; i < 2; ++i) {
        EXPECT_GE(static_cast<long double>(tied.upper[i]), tied.exact[i]);
      }
    }
  }
}

// Products that a tensor core flushes to zero are not zero; those of rows of
// zeros are.
TEST_F(TiedTilesTest, ZeroIsZeroAndTinyIsNot) {
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    Tied<BFloat16> tied = Ones({2, 70, 3, 66, 72});
    for (int64_t k = 0; k < tied.left.size(); ++k) {
      tied.left[k] = reference::FromDouble<BFloat16>(0x1p20);
    }
    for (int64_t k = 0; k < tied.g.size(); ++k) tied.g[k] = BFloat16{};
    for (int64_t t = 0; t < 140; ++t) {
      tied.right[t * 72] = reference::FromDouble<BFloat16>(0x1p-70);
    }
    tied.g[tied.shape.tokens * tied.shape.p] =
        reference::FromDouble<BFloat16>(0x1p-70);
    tied.Run();
    EXPECT_EQ(tied.upper[0], 0);
    EXPECT_GT(static_cast<double>(tied.exact[1]), 0);
    EXPECT_GE(static_cast<long double>(tied.upper[1]), tied.exact[1]);
  }
}

// Offsets within a tile have 31 bits.
TEST_F(TiedTilesTest, TooWideRowsAreAnError) {
  constexpr int64_t kWide = (int64_t{1} << 26) + 8;
  const BFloat16* none = nullptr;
  float* out = nullptr;
  for (const TiedCrossShape& shape :
       {TiedCrossShape{0, 2, 3, 2, kWide}, TiedCrossShape{0, kWide, 3, 2, 8},
        TiedCrossShape{0, 2, 3, kWide, 8}}) {
    EXPECT_EQ(
        TiedCross(shape, none, none, nullptr, none, out, out, nullptr, nullptr),
        cudaErrorInvalidValue);
  }
}

TEST_F(TiedTilesTest, NoBankConflicts) {
  if (!device::CountBankConflicts(true)) {
    GTEST_SKIP() << "nobody counts the wavefronts of a GPU";
  }
  for (bool large : {false, true}) {
    UseLargeTiles(large);
    RunExactly<BFloat16>({1, 70, 5, 72, 136}, 0);
    const device::BankConflict worst = device::WorstBankConflict();
    EXPECT_LE(worst.factor, 2) << worst.text;
  }
}

}  // namespace
}  // namespace bk::cuda
