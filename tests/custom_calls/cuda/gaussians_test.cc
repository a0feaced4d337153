// Noise of many arrays in one launch: the bits of the CPU's.
#include "custom_calls/cuda/gaussians.h"

#include <optional>
#include <string>
#include <vector>

#include "custom_calls/cpu/noise/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/cuda/same_bits.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {
namespace {

constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 0, kNoiseDomain};

using Values = std::vector<std::vector<float>>;

uint32_t StreamOf(size_t array) { return static_cast<uint32_t>(7 * array + 1); }

// Every second array in place.
Values Noisy(const Values& xs, float stddev) {
  const std::vector<uint32_t> key(kStream.key, kStream.key + kKeyWords);
  auto device_key = DeviceBuffer<uint32_t>::Of(key, "key");
  auto device_stddev =
      DeviceBuffer<float>::Of(std::vector<float>{stddev}, "stddev");
  std::vector<DeviceBuffer<float>> in, out;
  std::vector<NoiseArray> arrays;
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto size = static_cast<int64_t>(xs[i].size());
    in.push_back(DeviceBuffer<float>::Of(xs[i], "x" + std::to_string(i)));
    out.emplace_back(size, "out" + std::to_string(i));
    float* const to = i % 2 == 0 ? out.back().data() : in.back().data();
    arrays.push_back({StreamOf(i), size, in.back().data(), to});
  }
  EXPECT_TRUE(Succeeded(Gaussians(
      static_cast<int64_t>(arrays.size()), arrays.data(), kNoiseDomain,
      device_key.data(), device_stddev.data(), nullptr)));
  Values noisy;
  for (size_t i = 0; i < xs.size(); ++i) {
    noisy.push_back((i % 2 == 0 ? out[i] : in[i]).Get());
  }
  return noisy;
}

// The same on the CPU.
Values Expected(const Values& xs, float stddev) {
  Values out = xs;
  std::vector<NoiseArray> arrays;
  for (size_t i = 0; i < xs.size(); ++i) {
    arrays.push_back({StreamOf(i), static_cast<int64_t>(xs[i].size()),
                      xs[i].data(), out[i].data()});
  }
  SerialParallel serial;
  bk::Gaussians(*ActiveKernels().kernels, serial, kStream, stddev, arrays);
  return out;
}

class GaussiansTest : public DeviceTest {
 protected:
  Values Inputs(const std::vector<int64_t>& sizes) {
    Values xs;
    for (int64_t size : sizes) {
      const Array<float> x = Normals<float>(random_, size);
      xs.emplace_back(x.data(), x.data() + size);
    }
    return xs;
  }
  void ExpectTheCpus(const Values& xs, float stddev) {
    const Values found = Noisy(xs, stddev), expected = Expected(xs, stddev);
    for (size_t i = 0; i < xs.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "array " << i);
      ExpectSameBits(found[i], expected[i]);
    }
  }
  Random random_{20221001};
};

// Around groups (256) and blocks of threads (2048), and empty ones everywhere.
TEST_F(GaussiansTest, SameBitsAsTheCpu) {
  const std::vector<std::vector<int64_t>> lists = {
      {},
      {0},
      {1},
      {0, 0, 3, 0},
      {0, 1, 255, 256, 257, 0, 0, 513, 2047, 2048, 2049, 7, 0},
      {5000, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (const std::vector<int64_t>& sizes : lists) {
    ExpectTheCpus(Inputs(sizes), 0.7F);
  }
}

TEST_F(GaussiansTest, FewBlocksMakeManyGroups) {
  device::LimitBlocks(2);
  ExpectTheCpus(Inputs({3000, 5000, 1, 2500}), 2);
}

TEST_F(GaussiansTest, WithoutNoiseArraysAreCopied) {
  const Values xs = Inputs({0, 300, 2, 1});
  EXPECT_EQ(Noisy(xs, 0), xs);
}

TEST_F(GaussiansTest, OneLaunchUpToAsManyArraysAsATableHas) {
  for (int64_t count : {int64_t{0}, int64_t{3}, kMaxNoiseArrays,
                        kMaxNoiseArrays + 1, 2 * kMaxNoiseArrays + 5}) {
    SCOPED_TRACE(count);
    const Values xs = Inputs(std::vector<int64_t>(count, 2));
    const std::optional<int64_t> before = device::Launches();
    ExpectTheCpus(xs, 1);
    if (!before) continue;
    const int64_t launches = (count + kMaxNoiseArrays - 1) / kMaxNoiseArrays;
    EXPECT_EQ(*device::Launches() - *before, launches > 0 ? launches : 1);
  }
}

}  // namespace
}  // namespace bk::cuda
