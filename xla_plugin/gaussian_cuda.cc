// Handlers of bk_gaussian and bk_chacha_bits on a GPU. Key, stddev and start
// are in device memory and stay there.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_calls/cuda/gaussian.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/noise_checks.h"

namespace bk {
namespace {

constexpr char kGaussian[] = "bk_gaussian";
constexpr char kChacha[] = "bk_chacha_bits";

ffi::Error GaussianImpl(cudaStream_t stream, ffi::AnyBuffer x,
                        ffi::AnyBuffer key, ffi::AnyBuffer stddev,
                        ffi::AnyBuffer start, ffi::Result<ffi::AnyBuffer> out,
                        ffi::Dictionary attributes) {
  return RunHandler(kGaussian, [&]() -> absl::Status {
    uint32_t name = 0;
    BK_RETURN_IF_ERROR(ReadNoiseWord({kGaussian, "stream"}, attributes, name));
    const auto whole = attributes.get<ffi::Span<const int64_t>>("whole");
    if (!whole.has_value()) {
      return Mismatch({kGaussian, "whole"}, "an attribute of int64 sizes",
                      "none");
    }
    return RunGaussianCuda(stream, name, {whole->begin(), whole->end()}, x, key,
                           stddev, start, *out);
  });
}

ffi::Error ChachaBitsImpl(cudaStream_t stream, ffi::AnyBuffer key,
                          ffi::Result<ffi::AnyBuffer> words,
                          ffi::Dictionary attributes) {
  return RunHandler(kChacha, [&]() -> absl::Status {
    uint32_t name = 0;
    uint32_t domain = 0;
    BK_RETURN_IF_ERROR(ReadNoiseWord({kChacha, "stream"}, attributes, name));
    BK_RETURN_IF_ERROR(ReadNoiseWord({kChacha, "domain"}, attributes, domain));
    return RunChachaBitsCuda(stream, name, domain, key, *words);
  });
}

// The block, but for where it starts: the kernel checks that.
absl::Status ReadBlock(const std::vector<int64_t>& whole,
                       const ffi::AnyBuffer& x, cuda::NoiseBlock* block) {
  const auto dims = x.dimensions();
  const std::vector<int64_t> size(dims.begin(), dims.end());
  if (size.size() > cuda::kMaxNoiseRank) {
    return Mismatch(
        {kGaussian, "x"},
        absl::StrCat("at most ", cuda::kMaxNoiseRank, " dimensions on a GPU"),
        ShapeString(x));
  }
  const std::vector<int64_t> origin(size.size(), 0);
  BK_RETURN_IF_ERROR(CheckBlock(kGaussian, size, origin, whole));
  *block = {static_cast<int>(size.size()), {}, {}};
  std::copy(size.begin(), size.end(), block->size);
  std::copy(whole.begin(), whole.end(), block->whole);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunGaussianCuda(cudaStream_t stream, uint32_t name,
                             const std::vector<int64_t>& whole,
                             ffi::AnyBuffer x, ffi::AnyBuffer key,
                             ffi::AnyBuffer stddev, ffi::AnyBuffer start,
                             ffi::AnyBuffer out) {
  BK_RETURN_IF_ERROR(
      CheckGaussian(kGaussian, whole, x, key, stddev, start, out));
  cuda::NoiseBlock block;
  BK_RETURN_IF_ERROR(ReadBlock(whole, x, &block));
  return DispatchFloat({kGaussian, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return BK_CUDA_STATUS(
        kGaussian,
        cuda::Gaussian(block, {name, kNoiseDomain}, Data<const T>(x),
                       Data<const uint32_t>(key),
                       Data<const Accumulator<T>>(stddev),
                       Data<const int32_t>(start), Data<T>(out), stream));
  });
}

absl::Status RunChachaBitsCuda(cudaStream_t stream, uint32_t name,
                               uint32_t domain, ffi::AnyBuffer key,
                               ffi::AnyBuffer words) {
  BK_RETURN_IF_ERROR(CheckShape({kChacha, "key"}, key, ffi::U32, {kKeyWords}));
  BK_RETURN_IF_ERROR(CheckRank({kChacha, "words"}, words, 1));
  const int64_t count = words.dimensions()[0];
  BK_RETURN_IF_ERROR(CheckShape({kChacha, "words"}, words, ffi::U32, {count}));
  return BK_CUDA_STATUS(
      kChacha, cuda::ChachaWords({name, domain}, Data<const uint32_t>(key), 0,
                                 count, Data<uint32_t>(words), stream));
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkGaussianCuda, bk::GaussianImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // x, any shape
        .Arg<xla::ffi::AnyBuffer>()  // key (8)
        .Arg<xla::ffi::AnyBuffer>()  // stddev ()
        .Arg<xla::ffi::AnyBuffer>()  // start (rank of x)
        .Ret<xla::ffi::AnyBuffer>()  // out, like x; may be x
        .Attrs(),                    // stream, whole
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(BkChachaBitsCuda, bk::ChachaBitsImpl,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
                                  .Arg<xla::ffi::AnyBuffer>()  // key (8)
                                  .Ret<xla::ffi::AnyBuffer>()  // words (n)
                                  .Attrs(),                    // stream, domain
                              {xla::ffi::Traits::kCmdBufferCompatible});
