// bk_gaussian, an array with noise added, and bk_chacha_bits, the words that
// noise is made of.
#include <cstdint>
#include <vector>

#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/gaussian.h"
#include "xla_plugin/noise_block.h"
#else
#include "custom_calls/cpu/noise/gaussian.h"
#endif

namespace bk {
namespace {

struct GaussianCall : BlockNoiseCall {
  static constexpr char kName[] = "bk_gaussian";
  using BlockNoiseCall::BlockNoiseCall;

  Status Check() {
    BK_RETURN_IF_ERROR(CheckArrays({}));
    return ReadBlock();
  }

#if defined(BK_PLATFORM_CUDA)
  cuda::NoiseBlock block = {};

  Status ReadBlock() { return ReadNoiseBlock(*this, &block); }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::Gaussian<T>(
        block, {stream, kNoiseDomain}, x, key, stddev, start, out, gpu.stream));
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
    const BlockShape shape = {static_cast<int64_t>(x.dims.size()),
                              x.dims.begin(), offset.data(), whole.begin()};
    const Accumulator<T>* scale = stddev;
    Gaussian<T>(cpu.kernels, cpu.parallel, StreamOf(key, stream, kNoiseDomain),
                shape, x, *scale, out);
  }
#endif
};

struct ChachaBitsCall : NoiseCall {
  static constexpr char kName[] = "bk_chacha_bits";
  using NoiseCall::NoiseCall;
  using Types = bk::Types<uint32_t>;
  Buffer key = Operand("key");     // [8]
  Buffer words = Result("words");  // [n]
  uint32_t stream = 0;
  uint32_t domain = 0;

  const Buffer& Typed() const { return words; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadWord("stream", &stream));
    BK_RETURN_IF_ERROR(ReadWord("domain", &domain));
    BK_RETURN_IF_ERROR(CheckShape(key, ffi::U32, {kKeyWords}));
    BK_RETURN_IF_ERROR(CheckRank(words, 1));
    return CheckShape(words, ffi::U32, {words.dims[0]});
  }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::ChachaWords({stream, domain}, key, 0,
                                            words.dims[0], words, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    ChachaWords(cpu.kernels, cpu.parallel, StreamOf(key, stream, domain), 0,
                words.dims[0], words);
  }
#endif
};

const Registration<GaussianCall> kGaussianRegistration;
const Registration<ChachaBitsCall> kChachaRegistration;

}  // namespace
}  // namespace bk
