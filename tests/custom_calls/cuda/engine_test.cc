// What is assumed of tensor cores (engine.cuh) against a device: of the
// emulation, also with the largest errors that are assumed, or of a GPU. There
// this test decides whether the bounds of norms hold.
#include <cmath>
#include <random>
#include <vector>

#include "custom_calls/reference/convert.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/cuda/engine_probe.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {
namespace {

constexpr int64_t kRows = 64;
constexpr double kRounding = 0x1p-24;

// Calls with a value of every type that tensor cores multiply.
template <class Body>
void ForEachTensorType(Body&& body) {
  body(float{});
  body(BFloat16{});
  body(Float16{});
}

template <class T>
class Chunk {
 public:
  Chunk() : left_(kRows * kDepth), right_(kRows * kDepth) {}

  // The same element of every row.
  void Set(int64_t k, double left, double right) {
    for (int64_t r = 0; r < kRows; ++r) {
      left_[r * kDepth + k] = reference::FromDouble<T>(left);
      right_[r * kDepth + k] = reference::FromDouble<T>(right);
    }
  }

  // Numbers of every size and sign with 7 bits, which all formats hold.
  void Fill(Random& random) {
    std::uniform_int_distribution<int> mantissa(-127, 127), exponent(-6, 6);
    for (int64_t k = 0; k < kRows * kDepth; ++k) {
      left_[k] = reference::FromDouble<T>(
          std::ldexp(mantissa(random), exponent(random)));
      right_[k] = reference::FromDouble<T>(
          std::ldexp(mantissa(random), exponent(random)));
    }
  }

  // The largest error of an entry, in roundings relative to the sum of
  // absolute values.
  double LargestError() {
    auto left = DeviceBuffer<T>::Of(left_, "left");
    auto right = DeviceBuffer<T>::Of(right_, "right");
    DeviceBuffer<float> out(kRows * kRows, "out");
    EXPECT_TRUE(Succeeded(
        ChunkProduct(left.data(), right.data(), out.data(), nullptr)));
    const std::vector<float> found = out.Get();
    double largest = 0;
    for (int64_t entry = 0; entry < kRows * kRows; ++entry) {
      largest = std::fmax(largest, ErrorOf(entry, found[entry]));
    }
    return largest;
  }

 private:
  double ErrorOf(int64_t entry, float found) const {
    long double exact = 0, scale = 0;
    for (int64_t k = 0; k < kDepth; ++k) {
      const long double product =
          static_cast<long double>(
              reference::ToDouble(left_[entry / kRows * kDepth + k])) *
          reference::ToDouble(right_[entry % kRows * kDepth + k]);
      exact += product;
      scale += std::fabs(product);
    }
    if (scale == 0) return 0;
    return static_cast<double>(std::fabs(found - exact) / scale) / kRounding;
  }

  const int64_t kDepth = CountsOfChunk<T>().depth;
  Array<T> left_, right_;
};

class EngineTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// One large product, and many that lie below its last place: those get lost.
template <class T>
void SetOneLarge(int64_t place, double sign, Chunk<T>& chunk) {
  const double small = 0.99 * std::sqrt(0x1p-23);
  const double x = reference::ToDouble(reference::FromDouble<BFloat16>(small));
  for (int64_t k = 0; k < CountsOfChunk<T>().depth; ++k) {
    chunk.Set(k, k == place ? 1 : x, k == place ? 1 : sign * x);
  }
}

TEST_F(EngineTest, ErrorsAreNotLargerThanCounted) {
  ForEachTensorType([&](auto element) {
    using T = decltype(element);
    const auto counted = static_cast<double>(CountsOfChunk<T>().roundings);
    for (int direction : {0, -1, 1}) {
      device::SetTensorCoreError(direction);
      SCOPED_TRACE(testing::Message() << sizeof(T) << " " << direction);
      Chunk<T> chunk;
      for (int64_t place : {int64_t{0}, CountsOfChunk<T>().depth - 1}) {
        for (double sign : {1.0, -1.0}) {
          SetOneLarge(place, sign, chunk);
          EXPECT_LE(chunk.LargestError(), counted);
        }
      }
      for (int repeat = 0; repeat < 4; ++repeat) {
        chunk.Fill(random_);
        EXPECT_LE(chunk.LargestError(), counted);
      }
    }
  });
}

// The tests of bounds on the emulated device meet what bounds count.
TEST_F(EngineTest, TheEmulationErrsByAsMuchAsCounted) {
  if (!device::SetTensorCoreError(-1)) {
    GTEST_SKIP() << "tensor cores of a GPU err as they like";
  }
  ForEachTensorType([&](auto element) {
    using T = decltype(element);
    Chunk<T> chunk;
    chunk.Set(0, 1, 1);
    const auto counted = static_cast<double>(CountsOfChunk<T>().roundings);
    // A step of a sum just below 1 errs by 11 roundings: floats are that far
    // apart.
    EXPECT_GT(chunk.LargestError(), 0.9 * counted);
    EXPECT_LE(chunk.LargestError(), counted);
  });
}

}  // namespace
}  // namespace bk::cuda
