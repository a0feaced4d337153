// embedding_norm.cu for the emulation.
#include "custom_calls/cuda/embedding_norm.cu"
