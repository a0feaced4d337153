// conv_grad.cu for the emulation.
#include "custom_calls/cuda/conv_grad.cu"
