// weighted_sum.cu for the emulation.
#include "custom_calls/cuda/weighted_sum.cu"
