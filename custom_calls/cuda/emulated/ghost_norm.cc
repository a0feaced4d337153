// ghost_norm.cu for the emulation.
#include "custom_calls/cuda/ghost_norm.cu"
