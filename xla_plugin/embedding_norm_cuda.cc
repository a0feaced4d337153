// Handler of bk_embedding_norm on a GPU.
#include "custom_calls/cuda/embedding_norm.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/lookup_checks.h"
#include "xla_plugin/norm_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_embedding_norm";

ffi::Error EmbeddingNormImpl(cudaStream_t stream, ffi::AnyBuffer ids,
                             ffi::AnyBuffer g,
                             ffi::Result<ffi::AnyBuffer> sq_norm,
                             ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                             ffi::Result<ffi::AnyBuffer> workspace,
                             ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    return RunEmbeddingNormCuda(stream, ids, g, *sq_norm, *sq_norm_upper,
                                *workspace);
  });
}

}  // namespace

absl::Status RunEmbeddingNormCuda(cudaStream_t stream, ffi::AnyBuffer ids,
                                  ffi::AnyBuffer g, ffi::AnyBuffer sq_norm,
                                  ffi::AnyBuffer sq_norm_upper,
                                  ffi::AnyBuffer workspace) {
  BK_RETURN_IF_ERROR(CheckLookup(kName, ids, g));
  const auto dims = g.dimensions();
  const LookupShape shape = {dims[0], dims[1], dims[2], 0};
  const ffi::DataType result = AccumulatorType(g.element_type());
  BK_RETURN_IF_ERROR(
      CheckNorms(kName, shape.batch, result, sq_norm, sq_norm_upper));
  BK_RETURN_IF_ERROR(CheckWorkspace(kName, workspace,
                                    cuda::EmbeddingNormWorkspaceBytes(shape)));
  return DispatchFloat({kName, "g"}, g.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        kName,
        cuda::EmbeddingNorm(shape, Data<const int32_t>(ids), Data<const T>(g),
                            Data<Acc>(sq_norm), Data<Acc>(sq_norm_upper),
                            workspace.untyped_data(), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkEmbeddingNormCuda, bk::EmbeddingNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // ids (B, T)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, T, p)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});
