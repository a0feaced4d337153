// Gaussian noise of every instruction set: the definition, the same bits
// everywhere, and what happens to x.
#include "custom_calls/cpu/noise/gaussian.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "custom_calls/reference/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 9, kNoiseDomain};

// One row of `count` values from `position` on.
template <class T>
Array<T> Noise(const CpuKernels& kernels, uint64_t position, int64_t count,
               Accumulator<T> stddev = 1) {
  Array<T> values(count);
  KernelsFor<T>(kernels).gaussian(
      {kStream, stddev, position, count, values.data(), values.data()});
  return values;
}

// Bits as a number, so that equal zeros of different sign are told apart.
uint64_t Bits(const void* value, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, value, size);
  return bits;
}

template <class T>
bool SameBits(const T& x, const T& y) {
  return Bits(&x, sizeof x) == Bits(&y, sizeof y);
}

// A block of an array, with vectors that own the lists of BlockShape.
struct Block {
  std::vector<int64_t> size, start, whole;
  BlockShape shape() const {
    return {static_cast<int64_t>(size.size()), size.data(), start.data(),
            whole.data()};
  }
  int64_t Elements() const {
    int64_t product = 1;
    for (int64_t n : size) product *= n;
    return product;
  }
};

template <class T>
Array<T> BlockNoise(const CpuKernels& kernels, Parallel& parallel,
                    const Block& block) {
  Array<T> values(block.Elements());
  Gaussian(kernels, parallel, kStream, block.shape(), values.data(),
           Accumulator<T>{1}, values.data());
  return values;
}

class GaussianTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(GaussianTest);

// Roundings on the way to z, each of at most half a unit in the last place:
// the uniform number 2 (its relative error is at most that of -ln u), the
// logarithm 7, its root 1, sine or cosine 4, the product 1, and half of the
// logarithm's errors go with the root. Ten units cover it.
template <class T, class Reference>
void ExpectReference(const CpuKernels& kernels, Reference reference) {
  const double unit = std::numeric_limits<T>::epsilon() / 2;
  for (uint64_t start : {uint64_t{0}, (uint64_t{1} << 31) - 300,
                         (uint64_t{1} << 36) - 300, uint64_t{1} << 61}) {
    const auto values = Noise<T>(kernels, start, 2000);
    for (int64_t i = 0; i < values.size(); ++i) {
      const auto expected = static_cast<double>(reference(kStream, start + i));
      ASSERT_NEAR(values[i], expected, 10 * unit * std::fabs(expected))
          << start << " + " << i;
    }
  }
}

TEST_P(GaussianTest, IsBoxMullerOfChacha) {
  ExpectReference<float>(kernels(), reference::NormalOfFloat);
  ExpectReference<double>(kernels(), reference::NormalOfDouble);
}

TEST_P(GaussianTest, SameBitsAsTheBaseline) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const int64_t size = 100000;
    const auto x = Normals<T>(random_, size);
    Array<T> expected(size);
    Array<T> values(size);
    const Accumulator<T> stddev = 0.7F;
    KernelsFor<T>(kBaselineKernels)
        .gaussian({kStream, stddev, 3, size, x.data(), expected.data()});
    KernelsFor<T>(kernels()).gaussian(
        {kStream, stddev, 3, size, x.data(), values.data()});
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_TRUE(SameBits(values[i], expected[i])) << i;
    }
  });
}

TEST_P(GaussianTest, AnyRangeIsAPartOfTheWhole) {
  const int64_t sizes[] = {0,  1,  7,   8,   9,   15,  16,  17, 31,
                           32, 33, 127, 128, 129, 255, 256, 257};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const auto whole = Noise<T>(kernels(), 0, 1000);
    for (int64_t first : {0, 1, 7, 17, 127, 128, 129, 255, 256, 300}) {
      for (int64_t count : sizes) {
        const auto part = Noise<T>(kernels(), first, count);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_TRUE(SameBits(part[i], whole[first + i]));
        }
      }
    }
  });
}

TEST_P(GaussianTest, SameBitsForAnyNumberOfThreads) {
  const Block block = {{3, 40000}, {0, 0}, {3, 40000}};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const auto expected = Noise<T>(kernels(), 0, block.Elements());
    for (int threads : {1, 2, 5}) {
      StripedParallel striped(threads);
      const auto values = BlockNoise<T>(kernels(), striped, block);
      for (int64_t i = 0; i < values.size(); ++i) {
        ASSERT_TRUE(SameBits(values[i], expected[i])) << i;
      }
    }
  });
}

// Every way to cut a small array into two along each dimension, and a block
// from its middle.
TEST_P(GaussianTest, BlocksArePartsOfTheWholeArray) {
  const std::vector<int64_t> whole = {4, 3, 150};
  const auto expected = Noise<float>(kernels(), 0, 1800);
  std::vector<Block> blocks = {{{2, 1, 100}, {1, 1, 49}, whole},
                               {{4, 3, 0}, {0, 0, 7}, whole},
                               {{0, 3, 150}, {4, 0, 0}, whole}};
  for (int axis = 0; axis < 3; ++axis) {
    Block low = {whole, {0, 0, 0}, whole};
    low.size[axis] /= 2;
    Block high = {whole, {0, 0, 0}, whole};
    high.start[axis] = low.size[axis];
    high.size[axis] -= low.size[axis];
    blocks.push_back(low);
    blocks.push_back(high);
  }
  for (const Block& b : blocks) {
    const auto values = BlockNoise<float>(kernels(), serial_, b);
    for (int64_t i = 0; i < values.size(); ++i) {
      const int64_t column = b.start[2] + i % b.size[2];
      const int64_t row = b.start[1] + i / b.size[2] % b.size[1];
      const int64_t plane = b.start[0] + i / b.size[2] / b.size[1];
      const int64_t position = (plane * whole[1] + row) * whole[2] + column;
      ASSERT_EQ(values[i], expected[position]);
    }
  }
}

TEST_P(GaussianTest, PositionsBeyondTwoToTheThirtyTwo) {
  const int64_t large = int64_t{1} << 20;
  const Block block = {{2, 300}, {large - 2, large - 301}, {large, large}};
  const auto values = BlockNoise<double>(kernels(), serial_, block);
  for (int64_t row : {0, 1}) {
    const int64_t position = (large - 2 + row) * large + large - 301;
    const auto expected = Noise<double>(kernels(), position, 300);
    for (int64_t i = 0; i < 300; ++i) {
      ASSERT_EQ(values[row * 300 + i], expected[i]);
    }
  }
}

TEST_P(GaussianTest, ScalarsAndEmptyArrays) {
  const auto scalar = BlockNoise<float>(kernels(), serial_, {{}, {}, {}});
  ASSERT_EQ(scalar.size(), 1);
  EXPECT_EQ(scalar[0], Noise<float>(kernels(), 0, 1)[0]);
  EXPECT_EQ(
      BlockNoise<float>(kernels(), serial_, {{0, 3}, {0, 0}, {0, 3}}).size(),
      0);
}

// Sum in float, one rounding to 16 bits.
template <class T>
void ExpectRoundedOnce(const CpuKernels& kernels, const Array<T>& x,
                       float stddev) {
  Array<float> wide(x.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    wide[i] = static_cast<float>(reference::ToDouble(x[i]));
  }
  Array<T> values(x.size());
  KernelsFor<T>(kernels).gaussian(
      {kStream, stddev, 0, x.size(), x.data(), values.data()});
  kernels.f32.gaussian(
      {kStream, stddev, 0, x.size(), wide.data(), wide.data()});
  for (int64_t i = 0; i < x.size(); ++i) {
    const T expected = reference::FromDouble<T>(double{wide[i]});
    if (std::isnan(wide[i])) {
      ASSERT_TRUE(std::isnan(reference::ToDouble(values[i])));
    } else {
      ASSERT_EQ(values[i].bits, expected.bits) << i << " " << wide[i];
    }
  }
}

// Every 16-bit value, with noise that moves it by a lot, by rounding ties, by
// less than a step, and beyond the largest number.
TEST_P(GaussianTest, SixteenBitTypesAreRoundedOnce) {
  Array<BFloat16> bf16(0x10000);
  Array<Float16> f16(0x10000);
  for (int64_t i = 0; i < 0x10000; ++i) {
    bf16[i].bits = f16[i].bits = static_cast<uint16_t>(i);
  }
  for (float stddev :
       {1.F, 0x1p-12F, 0x1p-24F, 0x1p-26F, 1e-40F, 3e4F, 1e38F}) {
    ExpectRoundedOnce(kernels(), bf16, stddev);
    ExpectRoundedOnce(kernels(), f16, stddev);
  }
}

template <class T>
std::vector<T> Delicate() {
  std::vector<T> values;
  for (double x : {0.0, -0.0, 1.0, -1.0, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    values.push_back(reference::FromDouble<T>(x));
  }
  return values;
}

TEST_P(GaussianTest, WithoutNoiseXIsReturnedBitForBit) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    std::vector<T> x = Delicate<T>();
    std::memset(&x.back(), 0xff, 1);  // a NaN with a payload
    std::vector<T> out(x.size());
    const Block block = {{static_cast<int64_t>(x.size())}, {0}, {7}};
    for (Accumulator<T> stddev : {0.0F, -0.0F}) {
      Gaussian(kernels(), serial_, kStream, block.shape(), x.data(), stddev,
               out.data());
      EXPECT_EQ(std::memcmp(out.data(), x.data(), sizeof(T) * x.size()), 0);
    }
  });
}

TEST_P(GaussianTest, WhatIsNotFiniteStaysSo) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    std::vector<T> x = Delicate<T>();
    KernelsFor<T>(kernels()).gaussian(
        {kStream, 1, 0, static_cast<int64_t>(x.size()), x.data(), x.data()});
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(std::isfinite(reference::ToDouble(x[i])));
    }
    EXPECT_EQ(reference::ToDouble(x[4]), HUGE_VAL);
    EXPECT_EQ(reference::ToDouble(x[5]), -HUGE_VAL);
    EXPECT_TRUE(std::isnan(reference::ToDouble(x[6])));
  });
}

}  // namespace
}  // namespace bk
