// From an operation to a handler for GPUs. See operation.h.
//
// A handler enqueues kernels on XLA's stream and returns: it allocates nothing,
// waits for nothing and reads no device memory, so XLA may record it into a
// command buffer (kCmdBufferCompatible). What must not happen while it records,
// the loading of kernels, happens before, in XLA's initialize stage. Kernels
// keep partial sums in a workspace, which is the last result of an operation
// with WorkspaceBytes(): u8[n]. Python asks for n when it traces a call.
#ifndef BK_JAX_XLA_PLUGIN_CUDA_TARGET_H_
#define BK_JAX_XLA_PLUGIN_CUDA_TARGET_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <type_traits>

#include "custom_calls/cuda/runtime.h"
#include "xla/ffi/api/ffi.h"
#include "xla_plugin/call.h"
#include "xla_plugin/ffi_frame.h"
#include "xla_plugin/status.h"

// The status of a launcher, with operation, file and line.
#define BK_CUDA_STATUS(call) ::bk::CudaStatus(kName, call, __FILE__, __LINE__)

namespace bk {

// What kernels run with.
struct Gpu {
  cudaStream_t stream;
  void* workspace;

  // The caller asks for one buffer; without that the sum starts as a copy.
  cudaError_t StartFrom(const Buffer& initial, const Buffer& sum) const;
};

struct CudaTarget {
  XLA_FFI_Handler* handler;
  XLA_FFI_Handler* initialize;
  Status (*run)(const CallFrame& frame, cudaStream_t stream);
  // Makes a run with a frame like this one launch and nothing else.
  Status (*load)(const CallFrame& frame);
  // For a frame without workspace. 0: the call has none; at least 1 otherwise.
  Status (*workspace_bytes)(const CallFrame& frame, int64_t* bytes);
};

// All operations that are linked in, by name.
std::map<std::string_view, CudaTarget>& CudaTargets();

Status CudaStatus(const char* operation, cudaError_t error, const char* file,
                  int line);

// u8[n] with n >= bytes.
Status CheckWorkspace(const Buffer& workspace, int64_t bytes);

template <class Operation, class = void>
inline constexpr bool kHasWorkspace = false;
template <class Operation>
inline constexpr bool kHasWorkspace<
    Operation, std::void_t<decltype(&Operation::WorkspaceBytes)>> = true;

template <class Operation>
Status WorkspaceBytes(const CallFrame& frame, int64_t* bytes) {
  *bytes = 0;
  if constexpr (kHasWorkspace<Operation>) {
    Operation operation(Operation::kName, frame);
    BK_RETURN_IF_ERROR(operation.CheckCounts());
    BK_RETURN_IF_ERROR(operation.Check());
    *bytes = std::max<int64_t>(operation.WorkspaceBytes(), 1);
  }
  return OkStatus();
}

template <class Operation>
Status RunOnCuda(const CallFrame& frame, cudaStream_t stream) {
  Operation operation(Operation::kName, frame);
  Buffer workspace;
  if constexpr (kHasWorkspace<Operation>) {
    workspace = operation.Result("workspace");
  }
  BK_RETURN_IF_ERROR(operation.CheckCounts());
  BK_RETURN_IF_ERROR(operation.Check());
  if constexpr (kHasWorkspace<Operation>) {
    BK_RETURN_IF_ERROR(CheckWorkspace(workspace, operation.WorkspaceBytes()));
  }
  const Gpu gpu = {stream, workspace.data};
  return ForType(typename Operation::Types(), operation.Typed(), [&](auto tag) {
    return operation.template OnCuda<typename decltype(tag)::Type>(gpu);
  });
}

template <class Operation>
Status LoadOnCuda(const CallFrame& frame) {
  const cuda::LoadingOnly loading;
  return RunOnCuda<Operation>(frame, /*stream=*/nullptr);
}

template <class Operation>
ffi::Error InitializeOnCuda(ffi::RemainingArgs operands,
                            ffi::RemainingRets results,
                            ffi::Dictionary dictionary) {
  return Guarded(Operation::kName, [&] {
    const FfiAttributes attributes(dictionary);
    return LoadOnCuda<Operation>(FfiFrame(operands, results, attributes));
  });
}

template <class Operation>
ffi::Error HandleOnCuda(cudaStream_t stream, ffi::RemainingArgs operands,
                        ffi::RemainingRets results,
                        ffi::Dictionary dictionary) {
  return Guarded(Operation::kName, [&] {
    const FfiAttributes attributes(dictionary);
    return RunOnCuda<Operation>(FfiFrame(operands, results, attributes),
                                stream);
  });
}

// A global object of this type enters an operation.
template <class Operation>
struct CudaRegistration {
  CudaRegistration() {
    XLA_FFI_DEFINE_HANDLER(handler, HandleOnCuda<Operation>,
                           ffi::Ffi::Bind()
                               .Ctx<ffi::PlatformStream<cudaStream_t>>()
                               .RemainingArgs()
                               .RemainingRets()
                               .Attrs(),
                           {ffi::Traits::kCmdBufferCompatible});
    XLA_FFI_DEFINE_HANDLER(initialize, InitializeOnCuda<Operation>,
                           ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>()
                               .RemainingArgs()
                               .RemainingRets()
                               .Attrs());
    CudaTargets()[Operation::kName] = {
        handler, initialize, RunOnCuda<Operation>, LoadOnCuda<Operation>,
        WorkspaceBytes<Operation>};
  }
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CUDA_TARGET_H_
