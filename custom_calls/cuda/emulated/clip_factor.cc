// clip_factor.cu for the emulation.
#include "custom_calls/cuda/clip_factor.cu"
