// Noise of several keys on a device: the bits of the CPU's one pass.
#include "custom_calls/cuda/banded_gaussian.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "custom_calls/cpu/noise/banded_gaussian.h"
#include "custom_calls/reference/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/cuda/same_bits.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {
namespace {

using Sizes = std::vector<int64_t>;

template <class T>
using Terms = std::vector<NoiseTerm<T>>;

struct Block {
  Sizes size;
  std::vector<int32_t> start;
  Sizes whole;
};

// Coefficients of both signs that products and sums have to round.
template <class T>
Terms<T> TermsOf(uint32_t bands) {
  Terms<T> terms;
  for (uint32_t k = 0; k < bands; ++k) {
    const T scale = (k % 2 == 0 ? T(1.7) : T(-0.9)) / static_cast<T>(k + 1);
    terms.push_back({{{k, 2, 3, 4, 5, 6, 7, k}, 9, kNoiseDomain}, scale});
  }
  return terms;
}

// `in_place`: the result has the array of x.
template <class T>
std::vector<T> OnDevice(const Block& at, const Terms<T>& terms,
                        const std::vector<T>& x, bool in_place) {
  std::vector<uint32_t> keys;
  std::vector<T> stddevs;
  for (const auto& [stream, scale] : terms) {
    keys.insert(keys.end(), stream.key, stream.key + kKeyWords);
    stddevs.push_back(scale);
  }
  NoiseBlock block = {static_cast<int>(at.size.size()), {}, {}};
  std::copy(at.size.begin(), at.size.end(), block.size);
  std::copy(at.whole.begin(), at.whole.end(), block.whole);
  auto device_keys = DeviceBuffer<uint32_t>::Of(keys, "keys");
  auto device_stddevs = DeviceBuffer<T>::Of(stddevs, "stddevs");
  auto start = DeviceBuffer<int32_t>::Of(at.start, "start");
  auto device_x = DeviceBuffer<T>::Of(x, "x");
  DeviceBuffer<T> out(device_x.size(), "out");
  T* to = in_place ? device_x.data() : out.data();
  EXPECT_TRUE(Succeeded(
      BandedGaussian<T>(block, {9, kNoiseDomain}, device_x.data(),
                        device_keys.data(), device_stddevs.data(),
                        device_stddevs.size(), start.data(), to, nullptr)));
  return in_place ? device_x.Get() : out.Get();
}

template <class T>
std::vector<T> OnCpu(const Block& at, const Terms<T>& terms,
                     const std::vector<T>& x) {
  const Sizes offsets(at.start.begin(), at.start.end());
  const BlockShape shape = {static_cast<int64_t>(at.size.size()),
                            at.size.data(), offsets.data(), at.whole.data()};
  std::vector<T> out(x.size());
  SerialParallel serial;
  bk::BandedGaussian(*ActiveKernels().kernels, serial, terms, shape, x.data(),
                     out.data());
  return out;
}

class BandedGaussianTest : public DeviceTest {
 protected:
  template <class T>
  std::vector<T> Input(int64_t size) {
    const Array<T> x = Normals<T>(random_, size);
    return {x.data(), x.data() + size};
  }

  template <class T>
  void ExpectBitsOfTheCpu(const Block& at, const Terms<T>& terms) {
    int64_t count = 1;
    for (int64_t size : at.size) count *= size;
    const auto x = Input<T>(count);
    const auto expected = OnCpu(at, terms, x);
    ExpectSameBits(OnDevice(at, terms, x, /*in_place=*/false), expected);
    ExpectSameBits(OnDevice(at, terms, x, /*in_place=*/true), expected);
  }

  Random random_{20221001};
};

TEST_F(BandedGaussianTest, SameBitsAsTheCpu) {
  for (uint32_t bands : {1, 2, 8, 64}) {
    SCOPED_TRACE(bands);
    const Sizes sizes = bands < 64 ? Sizes{0, 1, 31, 257, 900} : Sizes{65};
    for (int64_t size : sizes) {
      const Block all = {{size}, {0}, {size}};
      ExpectBitsOfTheCpu(all, TermsOf<float>(bands));
      ExpectBitsOfTheCpu(all, TermsOf<double>(bands));
    }
  }
}

// Rows that start anywhere in a group, far beyond 2^32 elements, and more
// groups than blocks of threads: no sum is carried on to the next group.
TEST_F(BandedGaussianTest, BlocksArePartsOfTheWholeArray) {
  const int64_t large = int64_t{1} << 20;
  const int32_t far = static_cast<int32_t>(large) - 301;
  device::LimitBlocks(2);
  for (const Block& at : {Block{{2, 300}, {far, far}, {large, large}},
                          Block{{2, 3, 300}, {1, 0, 7}, {4, 3, 310}},
                          Block{{5, 77}, {3, 1}, {9, 79}}, Block{{}, {}, {}}}) {
    for (uint32_t bands : {1, 2, 8}) {
      SCOPED_TRACE(bands);
      ExpectBitsOfTheCpu(at, TermsOf<float>(bands));
      ExpectBitsOfTheCpu(at, TermsOf<double>(bands));
    }
  }
}

TEST_F(BandedGaussianTest, OneKeyIsTheNoiseOfGaussian) {
  const Block all = {{300}, {0}, {300}};
  const std::vector<float> nothing(300);
  const auto terms = TermsOf<float>(1);
  const auto values = OnDevice(all, terms, nothing, /*in_place=*/false);
  for (uint64_t i = 0; i < 300; ++i) {
    const double z =
        static_cast<double>(reference::NormalOfFloat(terms[0].stream, i));
    ASSERT_NEAR(values[i], terms[0].scale * z, 1e-5) << i;
  }
}

// A draw with 0 is not made; with zeros alone x comes back, and with no keys.
TEST_F(BandedGaussianTest, WithoutNoiseXIsReturnedBitForBit) {
  const Block all = {{40}, {0}, {40}};
  std::vector<float> x = Input<float>(40);
  x[3] = -0.0F;
  std::memset(&x[7], 0xff, sizeof(float));
  auto terms = TermsOf<float>(3);
  terms[1].scale = 0;
  ExpectBitsOfTheCpu(all, terms);
  for (auto& term : terms) term.scale = -0.0F;
  ExpectSameBits(OnDevice(all, terms, x, false), x);
  ExpectSameBits(OnDevice(all, {}, x, false), x);
}

// No second use of noise, and nobody could mistake the result for noise.
TEST_F(BandedGaussianTest, OutsideOfTheWholeArrayIsNan) {
  for (int32_t start : {-1, 2}) {
    const Block at = {{40}, {start}, {41}};
    for (float value :
         OnDevice(at, TermsOf<float>(2), Input<float>(40), true)) {
      ASSERT_TRUE(std::isnan(value));
    }
    for (double value :
         OnDevice(at, TermsOf<double>(2), Input<double>(40), true)) {
      ASSERT_TRUE(std::isnan(value));
    }
  }
}

}  // namespace
}  // namespace bk::cuda
