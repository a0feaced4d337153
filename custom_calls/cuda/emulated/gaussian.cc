// gaussian.cu for the emulation.
#include "custom_calls/cuda/gaussian.cu"
