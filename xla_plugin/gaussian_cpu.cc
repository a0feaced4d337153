// Handlers of bk_gaussian and bk_chacha_bits on the CPU.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_calls/cpu/dispatch.h"
#include "custom_calls/cpu/gaussian.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/noise_checks.h"

namespace bk {
namespace {

constexpr char kGaussian[] = "bk_gaussian";
constexpr char kChacha[] = "bk_chacha_bits";

absl::Status ReadKey(const OperandName& name, const ffi::AnyBuffer& key,
                     NoiseStream& stream) {
  BK_RETURN_IF_ERROR(CheckShape(name, key, ffi::U32, {kKeyWords}));
  std::copy_n(Data<const uint32_t>(key), kKeyWords, stream.key);
  return absl::OkStatus();
}

ffi::Error GaussianImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                        ffi::AnyBuffer key, ffi::AnyBuffer stddev,
                        ffi::AnyBuffer start, ffi::Result<ffi::AnyBuffer> out,
                        ffi::Dictionary attributes) {
  return RunHandler(kGaussian, [&]() -> absl::Status {
    NoiseStream stream = {};
    stream.domain = kNoiseDomain;
    BK_RETURN_IF_ERROR(
        ReadNoiseWord({kGaussian, "stream"}, attributes, stream.stream));
    const auto whole = attributes.get<ffi::Span<const int64_t>>("whole");
    if (!whole.has_value()) {
      return Mismatch({kGaussian, "whole"}, "an attribute of int64 sizes",
                      "none");
    }
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunGaussian(parallel, stream, {whole->begin(), whole->end()}, x, key,
                       stddev, start, *out);
  });
}

ffi::Error ChachaBitsImpl(ffi::ThreadPool pool, ffi::AnyBuffer key,
                          ffi::Result<ffi::AnyBuffer> words,
                          ffi::Dictionary attributes) {
  return RunHandler(kChacha, [&]() -> absl::Status {
    NoiseStream stream = {};
    BK_RETURN_IF_ERROR(
        ReadNoiseWord({kChacha, "stream"}, attributes, stream.stream));
    BK_RETURN_IF_ERROR(
        ReadNoiseWord({kChacha, "domain"}, attributes, stream.domain));
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunChachaBits(parallel, stream, key, *words);
  });
}

}  // namespace

absl::Status RunGaussian(Parallel& parallel, NoiseStream stream,
                         const std::vector<int64_t>& whole, ffi::AnyBuffer x,
                         ffi::AnyBuffer key, ffi::AnyBuffer stddev,
                         ffi::AnyBuffer start, ffi::AnyBuffer out) {
  const auto dims = x.dimensions();
  const std::vector<int64_t> size(dims.begin(), dims.end());
  const auto rank = static_cast<int64_t>(size.size());
  BK_RETURN_IF_ERROR(
      CheckGaussian(kGaussian, whole, x, key, stddev, start, out));
  BK_RETURN_IF_ERROR(ReadKey({kGaussian, "key"}, key, stream));
  const auto* first = Data<const int32_t>(start);
  const std::vector<int64_t> offsets(first, first + rank);
  BK_RETURN_IF_ERROR(CheckBlock(kGaussian, size, offsets, whole));
  const BlockShape shape = {rank, size.data(), offsets.data(), whole.data()};
  return DispatchFloat({kGaussian, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    Gaussian(*ActiveKernels().kernels, parallel, stream, shape,
             Data<const T>(x), *Data<const Accumulator<T>>(stddev),
             Data<T>(out));
    return absl::OkStatus();
  });
}

absl::Status RunChachaBits(Parallel& parallel, NoiseStream stream,
                           ffi::AnyBuffer key, ffi::AnyBuffer words) {
  BK_RETURN_IF_ERROR(ReadKey({kChacha, "key"}, key, stream));
  BK_RETURN_IF_ERROR(CheckRank({kChacha, "words"}, words, 1));
  const int64_t count = words.dimensions()[0];
  BK_RETURN_IF_ERROR(CheckShape({kChacha, "words"}, words, ffi::U32, {count}));
  ChachaWords(*ActiveKernels().kernels, parallel, stream, 0, count,
              Data<uint32_t>(words));
  return absl::OkStatus();
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkGaussian, bk::GaussianImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x, any shape
        .Arg<xla::ffi::AnyBuffer>()  // key (8)
        .Arg<xla::ffi::AnyBuffer>()  // stddev ()
        .Arg<xla::ffi::AnyBuffer>()  // start (rank of x)
        .Ret<xla::ffi::AnyBuffer>()  // out, like x; may be x
        .Attrs());                   // stream, whole

XLA_FFI_DEFINE_HANDLER_SYMBOL(BkChachaBits, bk::ChachaBitsImpl,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Arg<xla::ffi::AnyBuffer>()  // key (8)
                                  .Ret<xla::ffi::AnyBuffer>()  // words (n)
                                  .Attrs());                   // stream, domain
