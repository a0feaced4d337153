// Noise on a device: the words of RFC 8439, and the bits of the CPU's noise.
#include "custom_calls/cuda/gaussian.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "custom_calls/cpu/noise/gaussian.h"
#include "custom_calls/reference/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/cuda/same_bits.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {
namespace {

constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 9, kNoiseDomain};

std::vector<uint32_t> Words(const NoiseStream& stream, uint64_t position,
                            int64_t count) {
  const std::vector<uint32_t> key(stream.key, stream.key + kKeyWords);
  auto device_key = DeviceBuffer<uint32_t>::Of(key, "key");
  DeviceBuffer<uint32_t> words(count, "words");
  EXPECT_TRUE(
      Succeeded(ChachaWords({stream.stream, stream.domain}, device_key.data(),
                            position, count, words.data(), nullptr)));
  return words.Get();
}

using Sizes = std::vector<int64_t>;

template <class T>
std::vector<T> Noisy(const Sizes& size, const std::vector<int32_t>& start,
                     const Sizes& whole, const std::vector<T>& x,
                     Accumulator<T> stddev) {
  NoiseBlock block = {static_cast<int>(size.size()), {}, {}};
  std::copy(size.begin(), size.end(), block.size);
  std::copy(whole.begin(), whole.end(), block.whole);
  const std::vector<uint32_t> key(kStream.key, kStream.key + kKeyWords);
  auto device_key = DeviceBuffer<uint32_t>::Of(key, "key");
  auto device_start = DeviceBuffer<int32_t>::Of(start, "start");
  auto device_stddev = DeviceBuffer<Accumulator<T>>::Of(
      std::vector<Accumulator<T>>{stddev}, "stddev");
  auto device_x = DeviceBuffer<T>::Of(x, "x");
  DeviceBuffer<T> out(device_x.size(), "out");
  EXPECT_TRUE(Succeeded(Gaussian(block, {kStream.stream, kStream.domain},
                                 device_x.data(), device_key.data(),
                                 device_stddev.data(), device_start.data(),
                                 out.data(), nullptr)));
  return out.Get();
}

// The same on the CPU.
template <class T>
std::vector<T> Expected(const Sizes& size, const std::vector<int32_t>& start,
                        const Sizes& whole, const std::vector<T>& x,
                        Accumulator<T> stddev) {
  const Sizes offsets(start.begin(), start.end());
  const BlockShape shape = {static_cast<int64_t>(size.size()), size.data(),
                            offsets.data(), whole.data()};
  std::vector<T> out(x.size());
  SerialParallel serial;
  bk::Gaussian(*ActiveKernels().kernels, serial, kStream, shape, x.data(),
               stddev, out.data());
  return out;
}

class GaussianTest : public DeviceTest {
 protected:
  template <class T>
  std::vector<T> Input(int64_t size) {
    const Array<T> x = Normals<T>(random_, size);
    return {x.data(), x.data() + size};
  }
  Random random_{20221001};
};

// RFC 8439, section 2.3.2.
TEST_F(GaussianTest, BlockFunctionOfTheStandard) {
  const NoiseStream stream = {{0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                               0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c},
                              0x4a000000,
                              0};
  const uint32_t expected[] = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3,
                               0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
                               0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                               0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  // Counter 1 and the first word of the nonce are block 2^32 0x09000000 + 1.
  const uint64_t group = (uint64_t{0x09000000} << 32) / 16;
  const auto words = Words(stream, group * 256, 256);
  for (int w = 0; w < 16; ++w) EXPECT_EQ(words[16 * w + 1], expected[w]);
}

// Around groups, 2^32 words, the carry into the second half of the block index
// and the end of all streams.
TEST_F(GaussianTest, WordsOfTheReferenceAtAnyPosition) {
  for (uint64_t start : {uint64_t{0}, uint64_t{255}, uint64_t{1} << 32,
                         (uint64_t{1} << 36) - 130, ~uint64_t{0} - 300}) {
    for (int64_t count : {0, 1, 257}) {
      const auto words = Words(kStream, start, count);
      for (int64_t k = 0; k < count; ++k) {
        ASSERT_EQ(words[k], reference::Word(kStream, start + k)) << start;
      }
    }
  }
  device::LimitBlocks(1);
  EXPECT_EQ(Words(kStream, 3, 3000)[2999], reference::Word(kStream, 3002));
}

TEST_F(GaussianTest, SameBitsAsTheCpu) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t size : {0, 1, 31, 5000}) {
      const auto x = Input<T>(size);
      ExpectSameBits(Noisy<T>({size}, {0}, {size}, x, 0.7F),
                     Expected<T>({size}, {0}, {size}, x, 0.7F));
    }
  });
}

// Blocks of larger arrays: rows that start anywhere in a group, far beyond 2^32
// elements, and more groups than blocks of threads.
TEST_F(GaussianTest, BlocksArePartsOfTheWholeArray) {
  const int64_t large = int64_t{1} << 20;
  const int32_t far = static_cast<int32_t>(large) - 301;
  device::LimitBlocks(2);
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    const auto x = Input<T>(2 * 3 * 300);
    ExpectSameBits(Noisy<T>({2, 300}, {far, far}, {large, large},
                            {x.begin(), x.begin() + 600}, 2),
                   Expected<T>({2, 300}, {far, far}, {large, large},
                               {x.begin(), x.begin() + 600}, 2));
    ExpectSameBits(Noisy<T>({2, 3, 300}, {1, 0, 7}, {4, 3, 310}, x, 2),
                   Expected<T>({2, 3, 300}, {1, 0, 7}, {4, 3, 310}, x, 2));
    const std::vector<T> scalar(x.begin(), x.begin() + 1);
    ExpectSameBits(Noisy<T>({}, {}, {}, scalar, 1),
                   Expected<T>({}, {}, {}, scalar, 1));
  });
}

// Every 16-bit value but NaN, with noise that moves it by a lot, by rounding
// ties, and beyond the largest number.
template <class T>
void ExpectEveryValueRoundedAsOnTheCpu(float stddev) {
  std::vector<T> x;
  for (int bits = 0; bits < 0x10000; bits += 3) {
    x.push_back({static_cast<uint16_t>(bits)});
    if (std::isnan(reference::ToDouble(x.back()))) x.pop_back();
  }
  const auto size = static_cast<int64_t>(x.size());
  ExpectSameBits(Noisy<T>({size}, {0}, {size}, x, stddev),
                 Expected<T>({size}, {0}, {size}, x, stddev));
}

TEST_F(GaussianTest, SixteenBitTypesAreRoundedAsOnTheCpu) {
  for (float stddev : {0x1p-12F, 0x1p-24F, 3e4F}) {
    ExpectEveryValueRoundedAsOnTheCpu<BFloat16>(stddev);
    ExpectEveryValueRoundedAsOnTheCpu<Float16>(stddev);
  }
}

TEST_F(GaussianTest, WithoutNoiseXIsReturnedBitForBit) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    std::vector<T> x = Input<T>(40);
    x[3] = reference::FromDouble<T>(-0.0);
    std::memset(&x[7], 0xff, sizeof(T));
    ExpectSameBits(Noisy<T>({40}, {0}, {40}, x, -0.0F), x);
  });
}

// No second use of noise, and nobody could mistake the result for noise.
TEST_F(GaussianTest, OutsideOfTheWholeArrayIsNan) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int32_t start : {-1, 2}) {
      for (T value : Noisy<T>({40}, {start}, {41}, Input<T>(40), 1)) {
        ASSERT_TRUE(std::isnan(reference::ToDouble(value)));
      }
    }
  });
}

}  // namespace
}  // namespace bk::cuda
