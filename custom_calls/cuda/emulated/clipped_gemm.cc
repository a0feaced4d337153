// clipped_gemm.cu for the emulation.
#include "custom_calls/cuda/clipped_gemm.cu"
