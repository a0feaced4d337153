// bk_banded_gaussian: an array with noise added that combines the draws of
// several keys.
#include <cstdint>
#include <vector>

#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/banded_gaussian.h"
#include "xla_plugin/noise_block.h"
#else
#include "custom_calls/cpu/noise/banded_gaussian.h"
#endif

namespace bk {
namespace {

struct BandedGaussianCall : BlockNoiseCall {
  static constexpr char kName[] = "bk_banded_gaussian";
  using BlockNoiseCall::BlockNoiseCall;
  using Types = bk::Types<float, double>;

  Status Check() {
    BK_RETURN_IF_ERROR(CheckRank(stddev, 1));
    BK_RETURN_IF_ERROR(CheckArrays({stddev.dims[0]}));
    return ReadBlock();
  }

#if defined(BK_PLATFORM_CUDA)
  cuda::NoiseBlock block = {};

  Status ReadBlock() { return ReadNoiseBlock(*this, &block); }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(
        cuda::BandedGaussian<T>(block, {stream, kNoiseDomain}, x, key, stddev,
                                stddev.dims[0], start, out, gpu.stream));
  }
#else
  std::vector<int64_t> offset;

  Status ReadBlock() {
    const int32_t* first = start;
    offset.assign(first, first + x.dims.size());
    return CheckBlock(offset);
  }

  template <class T>
  void OnCpu(const Cpu& cpu) {
    const uint32_t* keys = key;
    const T* scales = stddev;
    std::vector<NoiseTerm<T> > terms;
    for (int64_t k = 0; k < stddev.dims[0]; ++k) {
      terms.push_back(
          {StreamOf(keys + k * kKeyWords, stream, kNoiseDomain), scales[k]});
    }
    const BlockShape shape = {static_cast<int64_t>(x.dims.size()),
                              x.dims.begin(), offset.data(), whole.begin()};
    BandedGaussian<T>(cpu.kernels, cpu.parallel, terms, shape, x, out);
  }
#endif
};

const Registration<BandedGaussianCall> kRegistration;

}  // namespace
}  // namespace bk
