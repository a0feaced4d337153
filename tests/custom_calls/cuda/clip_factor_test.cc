// Clip factors on a device: the very numbers of the CPU.
#include "custom_calls/cuda/clip_factor.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/cpu/dense/clip_factor.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {
namespace {

template <class Real>
struct Case {
  ClipFactorShape shape;
  Array<Real> sq_norms;
  std::array<bool, 300> is_padding;
  Real clip_norm;
};

template <class Real>
void ExpectTheBitsOfTheCpu(Clipping clipping, const Case<Real>& c) {
  auto sq_norms = DeviceBuffer<Real>::Of(c.sq_norms, "sq_norms");
  auto clip_norm =
      DeviceBuffer<Real>::Of(std::vector<Real>{c.clip_norm}, "clip_norm");
  auto is_padding = DeviceBuffer<bool>::Of(c.is_padding, "is_padding");
  DeviceBuffer<Real> factor(c.shape.batch, "factor");
  DeviceBuffer<Real> norm(c.shape.batch, "norm");
  ASSERT_TRUE(Succeeded(ClipFactor(c.shape, clipping, sq_norms.data(),
                                   clip_norm.data(), is_padding.data(),
                                   factor.data(), norm.data(), nullptr)));
  std::vector<Real> wanted_factor(c.shape.batch), wanted_norm(c.shape.batch);
  bk::ClipFactor(c.shape, clipping, c.sq_norms.data(), c.clip_norm,
                 c.is_padding.data(), wanted_factor.data(), wanted_norm.data());
  const auto got_factor = factor.Get(), got_norm = norm.Get();
  for (int64_t i = 0; i < c.shape.batch; ++i) {
    ASSERT_EQ(got_factor[i], wanted_factor[i]);
    if (std::isnan(wanted_norm[i])) continue;
    ASSERT_EQ(got_norm[i], wanted_norm[i]);
  }
}

template <class Real>
class CudaClipFactorTest : public DeviceTest {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(CudaClipFactorTest, Reals);

// Norms of all sizes, among them one that is not finite, and padding.
TYPED_TEST(CudaClipFactorTest, TheBitsOfTheCpu) {
  using Real = TypeParam;
  Random random(3);
  std::uniform_real_distribution<double> exponent(-40, 20);
  for (int64_t batch : {0, 1, 127, 129, 300}) {
    for (int64_t terms : {0, 1, 3}) {
      Case<Real> c = {{terms, batch},
                      Filled<Real>(terms * batch,
                                   [&] { return std::exp2(exponent(random)); }),
                      {},
                      static_cast<Real>(0.75)};
      if (terms * batch > 5) {
        c.sq_norms[1] = std::numeric_limits<Real>::infinity();
        c.is_padding[2] = true;
      }
      for (Clipping clipping : {Clipping::kAbadi, Clipping::kAutomatic,
                                Clipping::kNormalize, Clipping::kIndicator}) {
        ExpectTheBitsOfTheCpu(clipping, c);
      }
    }
  }
}

}  // namespace
}  // namespace bk::cuda
