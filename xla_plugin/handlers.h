// Table of contents of the CPU plugin: one function per custom call (checks
// its buffers, then calls the kernel) and one exported handler for each.
#ifndef BK_JAX_XLA_PLUGIN_HANDLERS_H_
#define BK_JAX_XLA_PLUGIN_HANDLERS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "custom_calls/noise.h"
#include "custom_calls/parallel.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

// Operands [B, N, T, k] may be [B * T, k] when there is one weight (rows.h).

// a [B, N, T, d], g [B, N, T, p] -> sq_norm [B], sq_norm_upper [B]
absl::Status RunGhostNorm(Parallel& parallel, xla::ffi::AnyBuffer a,
                          xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer sq_norm,
                          xla::ffi::AnyBuffer sq_norm_upper);

// a [B, N, T, d], g [B, N, T, p] -> sq_norm [B], sq_norm_upper [B]
absl::Status RunDirectNorm(Parallel& parallel, xla::ffi::AnyBuffer a,
                           xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer sq_norm,
                           xla::ffi::AnyBuffer sq_norm_upper);

// a [B, N, T, d], g [B, N, T, p] -> grad [B, N, d, p], sq_norm [B],
// sq_norm_upper [B]
absl::Status RunPerSampleGrad(Parallel& parallel, xla::ffi::AnyBuffer a,
                              xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer grad,
                              xla::ffi::AnyBuffer sq_norm,
                              xla::ffi::AnyBuffer sq_norm_upper);

// sq_norms [K, B], clip_norm [], is_padding [B] -> factor [B], norm [B]
absl::Status RunClipFactor(std::string_view clipping,
                           xla::ffi::AnyBuffer sq_norms,
                           xla::ffi::AnyBuffer clip_norm,
                           xla::ffi::AnyBuffer is_padding,
                           xla::ffi::AnyBuffer factor,
                           xla::ffi::AnyBuffer norm);

// lhs [B, N, T, m], factor [B], rhs [B, N, T, n] -> sum [N, m, n], or
// [m, n] when there is one weight
absl::Status RunClippedGemm(Parallel& parallel, xla::ffi::AnyBuffer lhs,
                            xla::ffi::AnyBuffer factor, xla::ffi::AnyBuffer rhs,
                            xla::ffi::AnyBuffer sum);

// The same added to initial, whose buffer `sum` should be.
absl::Status RunClippedGemmAdd(Parallel& parallel, xla::ffi::AnyBuffer lhs,
                               xla::ffi::AnyBuffer factor,
                               xla::ffi::AnyBuffer rhs,
                               xla::ffi::AnyBuffer initial,
                               xla::ffi::AnyBuffer sum);

// factor [B], x [B, ...] -> sum [...]
absl::Status RunWeightedSum(Parallel& parallel, xla::ffi::AnyBuffer factor,
                            xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer sum);

// x [...], key [8], stddev [], start [rank of x] -> x + stddev * noise. x is
// the block at `start` of an array of shape `whole`. `start` is an operand,
// because one program runs on all devices and each of them has its own block.
absl::Status RunGaussian(Parallel& parallel, NoiseStream stream,
                         const std::vector<int64_t>& whole,
                         xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer key,
                         xla::ffi::AnyBuffer stddev, xla::ffi::AnyBuffer start,
                         xla::ffi::AnyBuffer out);

// key [8] -> words [n]
absl::Status RunChachaBits(Parallel& parallel, NoiseStream stream,
                           xla::ffi::AnyBuffer key, xla::ffi::AnyBuffer words);
// ids [B, T], g [B, T, p] -> sq_norm [B], sq_norm_upper [B]
absl::Status RunEmbeddingNorm(Parallel& parallel, xla::ffi::AnyBuffer ids,
                              xla::ffi::AnyBuffer g,
                              xla::ffi::AnyBuffer sq_norm,
                              xla::ffi::AnyBuffer sq_norm_upper);

// ids [B, T], factor [B], g [B, T, p], initial [rows, p] -> sum [rows, p]
absl::Status RunClippedScatter(Parallel& parallel, xla::ffi::AnyBuffer ids,
                               xla::ffi::AnyBuffer factor,
                               xla::ffi::AnyBuffer g,
                               xla::ffi::AnyBuffer initial,
                               xla::ffi::AnyBuffer sum);

// left [B * T, rows], right [B * T, p], ids [B, S], g [B, S, p]
//   -> cross [B], cross_upper [B]
absl::Status RunTiedCross(Parallel& parallel, xla::ffi::AnyBuffer left,
                          xla::ffi::AnyBuffer right, xla::ffi::AnyBuffer ids,
                          xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer cross,
                          xla::ffi::AnyBuffer cross_upper);

// x [B * images, spatial..., C], g [B * images, spatial'..., O], one to three
// spatial dimensions -> sq_norm [B], sq_norm_upper [B]; the window is in the
// attributes
absl::Status RunConvNorm(Parallel& parallel,
                         const xla::ffi::Dictionary& attributes,
                         xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer g,
                         xla::ffi::AnyBuffer sq_norm,
                         xla::ffi::AnyBuffer sq_norm_upper);

// The same, and grad [B, kD, kH, kW, cin, O] as the first result
absl::Status RunConvGrad(Parallel& parallel,
                         const xla::ffi::Dictionary& attributes,
                         xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer g,
                         xla::ffi::AnyBuffer grad, xla::ffi::AnyBuffer sq_norm,
                         xla::ffi::AnyBuffer sq_norm_upper);

// x, factor [B], g -> sum [spatial kernel..., cin, O]
absl::Status RunConvSum(Parallel& parallel,
                        const xla::ffi::Dictionary& attributes,
                        xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer factor,
                        xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer sum);

}  // namespace bk

extern "C" {
XLA_FFI_Error* BkGhostNorm(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClipFactor(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClippedGemm(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClippedGemmAdd(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkDirectNorm(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkPerSampleGrad(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkWeightedSum(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkGaussian(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkChachaBits(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkEmbeddingNorm(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClippedScatter(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkTiedCross(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkConvNorm(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkConvGrad(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkConvSum(XLA_FFI_CallFrame* call_frame);
}

#endif  // BK_JAX_XLA_PLUGIN_HANDLERS_H_
