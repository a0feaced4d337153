// clipped_scatter.cu for the emulation.
#include "custom_calls/cuda/clipped_scatter.cu"
