// bk_gaussian, an array with noise added, and bk_chacha_bits, the words that
// noise is made of.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/gaussian.h"
#else
#include "custom_calls/cpu/noise/gaussian.h"
#endif

namespace bk {
namespace {

std::string Listed(ffi::Span<const int64_t> sizes) {
  return absl::StrCat("(", absl::StrJoin(sizes, ","), ")");
}

// x is the block at `start` of an array of shape `whole`. `start` is an
// operand, because one program runs on all devices and each has its own block.
struct GaussianCall : NoiseCall {
  static constexpr char kName[] = "bk_gaussian";
  using NoiseCall::NoiseCall;
  Buffer x = Operand("x");            // any shape
  Buffer key = Operand("key");        // [8]
  Buffer stddev = Operand("stddev");  // []
  Buffer start = Operand("start");    // [rank of x]
  Buffer out = Result("out");         // like x; may be x
  uint32_t stream = 0;
  ffi::Span<const int64_t> whole;

  const Buffer& Typed() const { return x; }

  absl::Status Check() {
    BK_RETURN_IF_ERROR(ReadWord("stream", &stream));
    BK_RETURN_IF_ERROR(CheckShape(key, ffi::U32, {kKeyWords}));
    BK_RETURN_IF_ERROR(CheckShape(stddev, AccumulatorType(x), {}));
    const auto rank = static_cast<int64_t>(x.dims.size());
    BK_RETURN_IF_ERROR(CheckShape(start, ffi::S32, {rank}));
    BK_RETURN_IF_ERROR(CheckShape(out, x.type, {x.dims.begin(), x.dims.end()}));
    BK_RETURN_IF_ERROR(ReadWhole());
    return ReadBlock();
  }

  absl::Status ReadWhole() {
    const auto sizes = attributes_.IntegerList("whole");
    if (!sizes.has_value()) {
      return Mismatch(Attribute("whole"), "an attribute of int64 sizes",
                      "none");
    }
    whole = *sizes;
    if (whole.size() == x.dims.size()) return absl::OkStatus();
    return Mismatch(Attribute("whole"), absl::StrCat(x.dims.size(), " sizes"),
                    absl::StrCat(whole.size()));
  }

  // offset + size <= whole in every dimension, and positions fit into 63 bits.
  // An overlap would use noise twice, so nothing is clamped.
  absl::Status CheckBlock(const std::vector<int64_t>& offset) const {
    int64_t elements = 1;
    for (size_t k = 0; k < offset.size(); ++k) {
      if (offset[k] < 0 || offset[k] > whole[k] - x.dims[k]) {
        return Mismatch(start,
                        absl::StrCat("a block of size ", Listed(x.dims),
                                     " within whole=", Listed(whole)),
                        Listed(offset));
      }
      if (__builtin_mul_overflow(elements, std::max<int64_t>(whole[k], 1),
                                 &elements)) {
        return Mismatch(Attribute("whole"), "less than 2^63 elements",
                        Listed(whole));
      }
    }
    return absl::OkStatus();
  }

#if defined(BK_PLATFORM_CUDA)
  cuda::NoiseBlock block = {};

  // All but where it starts: that is in device memory, and the kernel checks.
  absl::Status ReadBlock() {
    const size_t rank = x.dims.size();
    if (rank > cuda::kMaxNoiseRank) {
      return Mismatch(
          x,
          absl::StrCat("at most ", cuda::kMaxNoiseRank, " dimensions on a GPU"),
          ShapeString(x));
    }
    BK_RETURN_IF_ERROR(CheckBlock(std::vector<int64_t>(rank, 0)));
    block.rank = static_cast<int>(rank);
    std::copy(x.dims.begin(), x.dims.end(), block.size);
    std::copy(whole.begin(), whole.end(), block.whole);
    return absl::OkStatus();
  }

  template <class T>
  absl::Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::Gaussian<T>(
        block, {stream, kNoiseDomain}, x, key, stddev, start, out, gpu.stream));
  }
#else
  std::vector<int64_t> offset;

  absl::Status ReadBlock() {
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

  absl::Status Check() {
    BK_RETURN_IF_ERROR(ReadWord("stream", &stream));
    BK_RETURN_IF_ERROR(ReadWord("domain", &domain));
    BK_RETURN_IF_ERROR(CheckShape(key, ffi::U32, {kKeyWords}));
    BK_RETURN_IF_ERROR(CheckRank(words, 1));
    return CheckShape(words, ffi::U32, {words.dims[0]});
  }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  absl::Status OnCuda(const Gpu& gpu) {
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
