// Marks functions that kernels for GPUs use too; nothing for other compilers.
#ifndef BK_JAX_CUSTOM_CALLS_HOST_DEVICE_H_
#define BK_JAX_CUSTOM_CALLS_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define BK_HOST_DEVICE __host__ __device__
#else
#define BK_HOST_DEVICE
#endif

#endif  // BK_JAX_CUSTOM_CALLS_HOST_DEVICE_H_
