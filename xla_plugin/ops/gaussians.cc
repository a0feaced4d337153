// bk_gaussians: the noise of many small arrays in one call. On GPUs each has
// its own launch.
#if !defined(BK_PLATFORM_CUDA)
#include <cstdint>
#include <vector>

#include "custom_calls/cpu/noise/gaussian.h"
#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"
#include "xla_plugin/text.h"

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

  template <class T>
  void OnCpu(const Cpu& cpu) {
    std::vector<NoiseArray> arrays;
    arrays.reserve(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      arrays.push_back({streams[i], x[i].Elements(), x[i], out[i]});
    }
    const float* scale = stddev;
    Gaussians(cpu.kernels, cpu.parallel, StreamOf(key, 0, kNoiseDomain), *scale,
              arrays);
  }
};

const Registration<GaussiansCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
