// Table of contents of the CUDA plugin: one function per custom call (checks
// its buffers, then enqueues the kernels) and one exported handler for each.
// Names of targets, operands and attributes are those of handlers.h; the calls
// that need one have a workspace u8[n] as an additional last result.
#ifndef BK_JAX_XLA_PLUGIN_CUDA_HANDLERS_H_
#define BK_JAX_XLA_PLUGIN_CUDA_HANDLERS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "custom_calls/cuda/runtime.h"
#include "xla/ffi/api/ffi.h"

namespace bk {

absl::Status RunGhostNormCuda(cudaStream_t stream, xla::ffi::AnyBuffer a,
                              xla::ffi::AnyBuffer g,
                              xla::ffi::AnyBuffer sq_norm,
                              xla::ffi::AnyBuffer sq_norm_upper,
                              xla::ffi::AnyBuffer workspace);

absl::Status RunDirectNormCuda(cudaStream_t stream, xla::ffi::AnyBuffer a,
                               xla::ffi::AnyBuffer g,
                               xla::ffi::AnyBuffer sq_norm,
                               xla::ffi::AnyBuffer sq_norm_upper,
                               xla::ffi::AnyBuffer workspace);

absl::Status RunPerSampleGradCuda(cudaStream_t stream, xla::ffi::AnyBuffer a,
                                  xla::ffi::AnyBuffer g,
                                  xla::ffi::AnyBuffer grad,
                                  xla::ffi::AnyBuffer sq_norm,
                                  xla::ffi::AnyBuffer sq_norm_upper,
                                  xla::ffi::AnyBuffer workspace);

absl::Status RunClipFactorCuda(cudaStream_t stream, std::string_view clipping,
                               xla::ffi::AnyBuffer sq_norms,
                               xla::ffi::AnyBuffer clip_norm,
                               xla::ffi::AnyBuffer is_padding,
                               xla::ffi::AnyBuffer factor,
                               xla::ffi::AnyBuffer norm);

absl::Status RunClippedGemmCuda(cudaStream_t stream, xla::ffi::AnyBuffer lhs,
                                xla::ffi::AnyBuffer factor,
                                xla::ffi::AnyBuffer rhs,
                                xla::ffi::AnyBuffer sum,
                                xla::ffi::AnyBuffer workspace);

absl::Status RunClippedGemmAddCuda(cudaStream_t stream, xla::ffi::AnyBuffer lhs,
                                   xla::ffi::AnyBuffer factor,
                                   xla::ffi::AnyBuffer rhs,
                                   xla::ffi::AnyBuffer initial,
                                   xla::ffi::AnyBuffer sum,
                                   xla::ffi::AnyBuffer workspace);

absl::Status RunWeightedSumCuda(cudaStream_t stream, xla::ffi::AnyBuffer factor,
                                xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer sum);

absl::Status RunEmbeddingNormCuda(cudaStream_t stream, xla::ffi::AnyBuffer ids,
                                  xla::ffi::AnyBuffer g,
                                  xla::ffi::AnyBuffer sq_norm,
                                  xla::ffi::AnyBuffer sq_norm_upper,
                                  xla::ffi::AnyBuffer workspace);

absl::Status RunClippedScatterCuda(cudaStream_t stream, xla::ffi::AnyBuffer ids,
                                   xla::ffi::AnyBuffer factor,
                                   xla::ffi::AnyBuffer g,
                                   xla::ffi::AnyBuffer initial,
                                   xla::ffi::AnyBuffer sum,
                                   xla::ffi::AnyBuffer workspace);

absl::Status RunTiedCrossCuda(cudaStream_t stream, xla::ffi::AnyBuffer left,
                              xla::ffi::AnyBuffer right,
                              xla::ffi::AnyBuffer ids, xla::ffi::AnyBuffer g,
                              xla::ffi::AnyBuffer cross,
                              xla::ffi::AnyBuffer cross_upper,
                              xla::ffi::AnyBuffer workspace);

absl::Status RunConvNormCuda(cudaStream_t stream,
                             const xla::ffi::Dictionary& attributes,
                             xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer g,
                             xla::ffi::AnyBuffer sq_norm,
                             xla::ffi::AnyBuffer sq_norm_upper,
                             xla::ffi::AnyBuffer workspace);

absl::Status RunConvGradCuda(cudaStream_t stream,
                             const xla::ffi::Dictionary& attributes,
                             xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer g,
                             xla::ffi::AnyBuffer grad,
                             xla::ffi::AnyBuffer sq_norm,
                             xla::ffi::AnyBuffer sq_norm_upper,
                             xla::ffi::AnyBuffer workspace);

absl::Status RunConvSumCuda(cudaStream_t stream,
                            const xla::ffi::Dictionary& attributes,
                            xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer factor,
                            xla::ffi::AnyBuffer g, xla::ffi::AnyBuffer sum,
                            xla::ffi::AnyBuffer workspace);

// `name` is the stream of the noise.
absl::Status RunGaussianCuda(cudaStream_t stream, uint32_t name,
                             const std::vector<int64_t>& whole,
                             xla::ffi::AnyBuffer x, xla::ffi::AnyBuffer key,
                             xla::ffi::AnyBuffer stddev,
                             xla::ffi::AnyBuffer start,
                             xla::ffi::AnyBuffer out);

absl::Status RunChachaBitsCuda(cudaStream_t stream, uint32_t name,
                               uint32_t domain, xla::ffi::AnyBuffer key,
                               xla::ffi::AnyBuffer words);

}  // namespace bk

extern "C" {
XLA_FFI_Error* BkGhostNormCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkDirectNormCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkPerSampleGradCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClipFactorCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClippedGemmCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClippedGemmAddCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkWeightedSumCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkEmbeddingNormCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkClippedScatterCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkTiedCrossCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkConvNormCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkConvGradCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkConvSumCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkGaussianCuda(XLA_FFI_CallFrame* call_frame);
XLA_FFI_Error* BkChachaBitsCuda(XLA_FFI_CallFrame* call_frame);
}

#endif  // BK_JAX_XLA_PLUGIN_CUDA_HANDLERS_H_
