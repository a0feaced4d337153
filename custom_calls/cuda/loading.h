// Kernels are loaded before they are launched.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_LOADING_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_LOADING_H_

namespace bk::cuda {

// While this is set, launchers load the kernels that they would launch and do
// nothing else. The first launch of a kernel may load its code, which is not
// allowed while XLA records a command buffer: so it happens before.
inline thread_local bool loading_only = false;

class LoadingOnly {
 public:
  LoadingOnly() { loading_only = true; }
  ~LoadingOnly() { loading_only = false; }
  LoadingOnly(const LoadingOnly&) = delete;
  LoadingOnly& operator=(const LoadingOnly&) = delete;
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_LOADING_H_
