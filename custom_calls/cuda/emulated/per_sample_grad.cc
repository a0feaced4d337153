// per_sample_grad.cu for the emulation.
#include "custom_calls/cuda/per_sample_grad.cu"
