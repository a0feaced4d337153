// The types of CUDA's runtime that launchers show: real ones, or those of the
// emulation that the tests run on (BK_CUDA_ON_CPU).
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_RUNTIME_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_RUNTIME_H_

#include "custom_calls/cuda/loading.h"
#if defined(BK_CUDA_ON_CPU)
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#else
#include <cuda_runtime_api.h>
#endif

// Leaves a launcher when a step of it failed.
#define BK_RETURN_IF_CUDA_ERROR(expression)                                 \
  if (const cudaError_t bk_error = (expression); bk_error != cudaSuccess) { \
    return bk_error;                                                        \
  }

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_RUNTIME_H_
