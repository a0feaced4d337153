// bk_banded_gaussian: an array with noise added that combines the draws of
// several keys. On GPUs it is made of bk_gaussian, draw by draw.
#if !defined(BK_PLATFORM_CUDA)
#include "custom_calls/cpu/noise/banded_gaussian.h"

#include <cstdint>
#include <vector>

#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"

namespace bk {
namespace {

struct BandedGaussianCall : BlockNoiseCall {
  static constexpr char kName[] = "bk_banded_gaussian";
  using BlockNoiseCall::BlockNoiseCall;
  using Types = bk::Types<float, double>;
  std::vector<int64_t> offset;

  Status Check() {
    BK_RETURN_IF_ERROR(CheckRank(stddev, 1));
    BK_RETURN_IF_ERROR(CheckArrays({stddev.dims[0]}));
    const int32_t* first = start;
    offset.assign(first, first + x.dims.size());
    return CheckBlock(offset);
  }

  template <class T>
  void OnCpu(const Cpu& cpu) {
    const uint32_t* keys = key;
    const T* scales = stddev;
    std::vector<NoiseTerm<T>> terms;
    for (int64_t k = 0; k < stddev.dims[0]; ++k) {
      terms.push_back(
          {StreamOf(keys + k * kKeyWords, stream, kNoiseDomain), scales[k]});
    }
    const BlockShape shape = {static_cast<int64_t>(x.dims.size()),
                              x.dims.begin(), offset.data(), whole.begin()};
    BandedGaussian<T>(cpu.kernels, cpu.parallel, terms, shape, x, out);
  }
};

const Registration<BandedGaussianCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
