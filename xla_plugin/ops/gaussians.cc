// bk_gaussians: the noise of many small arrays in one call.
#include <cstdint>
#include <vector>

#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"
#include "xla_plugin/text.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/gaussians.h"
#else
#include "custom_calls/cpu/noise/gaussian.h"
#endif

namespace bk {
namespace {

struct GaussiansCall : NoiseCall {
  static constexpr char kName[] = "bk_gaussians";
  using NoiseCall::NoiseCall;
  using Types = bk::Types<float>;
  Buffer key = Operand("key");               // [8]
  Buffer stddev = Operand("stddev");         // []
  std::vector<Buffer> x = Operands("x");     // any shapes
  std::vector<Buffer> out = Results("out");  // like x; each may be its x
  std::vector<uint32_t> streams;             // one for each array

  const Buffer& Typed() const { return stddev; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadWords("streams", &streams));
    BK_RETURN_IF_ERROR(CheckShape(key, ffi::U32, {kKeyWords}));
    BK_RETURN_IF_ERROR(CheckShape(stddev, ffi::F32, {}));
    if (x.size() != streams.size() || out.size() != streams.size()) {
      return Mismatch(
          Attribute("streams"), "one for each array and result",
          StrCat(streams.size(), " for ", x.size(), " and ", out.size()));
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const std::vector<int64_t> dims(x[i].dims.begin(), x[i].dims.end());
      BK_RETURN_IF_ERROR(CheckShape(x[i], ffi::F32, dims));
      BK_RETURN_IF_ERROR(CheckShape(out[i], ffi::F32, dims));
    }
    return OkStatus();
  }

  std::vector<NoiseArray> Arrays() const {
    std::vector<NoiseArray> arrays;
    arrays.reserve(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      arrays.push_back({streams[i], x[i].Elements(), x[i], out[i]});
    }
    return arrays;
  }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    const std::vector<NoiseArray> arrays = Arrays();
    return BK_CUDA_STATUS(cuda::Gaussians(static_cast<int64_t>(arrays.size()),
                                          arrays.data(), kNoiseDomain, key,
                                          stddev, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    const float* scale = stddev;
    Gaussians(cpu.kernels, cpu.parallel, StreamOf(key, 0, kNoiseDomain), *scale,
              Arrays());
  }
#endif
};

const Registration<GaussiansCall> kRegistration;

}  // namespace
}  // namespace bk
