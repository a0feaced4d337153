// The transform from bits to normals where it is most delicate: at the ends of
// the uniform numbers. Includes the body itself, with 128-bit vectors.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#define BK_ISA normal_test
#define BK_VECTOR_BYTES 16
#include "custom_calls/cpu/noise/normal-inl.h"
#include "gtest/gtest.h"

namespace bk::normal_test {
namespace {

template <class Real>
struct Pair {
  Real z0, z1;
  double Length() const { return std::hypot(double{z0}, double{z1}); }
};

template <class Real>
Pair<Real> Normal(uint64_t radius, uint64_t angle) {
  using Bits = typename NormalFormat<Real>::Bits;
  const auto pair = Normals<Real>(BitsOf<Real>{} + static_cast<Bits>(radius),
                                  BitsOf<Real>{} + static_cast<Bits>(angle));
  return {pair.z0[0], pair.z1[0]};
}

std::vector<uint64_t> Extremes(int width) {
  const uint64_t top = uint64_t{1} << (width - 1);
  const uint64_t all = top | (top - 1);
  return {0,          1,       2,       0x7f,    0x80, 0xff,    0x100,
          0xfff,      top / 4, top / 2, top - 1, top,  top + 1, top * 3 / 2 - 1,
          all - 0xff, all - 1, all};
}

template <class Real>
void ExpectFiniteAndNotZero(int width) {
  for (uint64_t radius : Extremes(width)) {
    for (uint64_t angle : Extremes(width)) {
      const Pair<Real> pair = Normal<Real>(radius, angle);
      for (Real z : {pair.z0, pair.z1}) {
        EXPECT_TRUE(std::isnormal(z)) << radius << " " << angle << " " << z;
      }
    }
  }
}

TEST(NormalTest, FiniteAndNotZero) {
  ExpectFiniteAndNotZero<float>(32);
  ExpectFiniteAndNotZero<double>(64);
}

// u = 2^-41 and 2^-65, the values that normal-inl.h promises.
TEST(NormalTest, LongestTail) {
  EXPECT_NEAR(Normal<float>(0x80000000, 0).Length(),
              std::sqrt(82 * std::log(2.0)), 1e-6);
  EXPECT_NEAR(Normal<double>(uint64_t{1} << 63, 0).Length(),
              std::sqrt(130 * std::log(2.0)), 1e-14);
}

// 1 - u = 2^-41 and 2^-65: -2 ln u is twice that.
TEST(NormalTest, CentreIsFine) {
  EXPECT_NEAR(Normal<float>(0, 0).Length() * 0x1p20, 1, 1e-6);
  EXPECT_NEAR(Normal<double>(0, 0).Length() * 0x1p32, 1, 1e-14);
}

// Both halves of (0, 1) meet at u = 1/2.
TEST(NormalTest, HalvesMeet) {
  const double length = std::sqrt(2 * std::log(2.0));
  EXPECT_NEAR(Normal<float>(0x7fffffff, 0).Length(), length, 2e-7);
  EXPECT_NEAR(Normal<float>(0xffffffff, 0).Length(), length, 2e-7);
  const uint64_t top = uint64_t{1} << 63;
  EXPECT_NEAR(Normal<double>(top - 1, 0).Length(), length, 4e-16);
  EXPECT_NEAR(Normal<double>(~uint64_t{0}, 0).Length(), length, 4e-16);
}

// Eight angles, one after another around the circle, each in its eighth.
TEST(NormalTest, AnglesGoAround) {
  const double step = std::acos(-1.0) / 4;
  std::vector<bool> seen(8, false);
  for (uint64_t quarter = 0; quarter < 4; ++quarter) {
    for (uint64_t half : {0, 1}) {
      const uint64_t angle = quarter << 30 | half << 29 | 1 << 28;
      const Pair<float> pair = Normal<float>(12345678, angle);
      const double turns = std::atan2(pair.z1, pair.z0) / step + 8;
      seen[static_cast<int>(turns) % 8] = true;
      EXPECT_NEAR(turns - std::floor(turns), 0.5, 1e-5);
    }
  }
  EXPECT_EQ(seen, std::vector<bool>(8, true));
}

}  // namespace
}  // namespace bk::normal_test
