// direct_norm.cu for the emulation.
#include "custom_calls/cuda/direct_norm.cu"
