// tied_cross.cu for the emulation.
#include "custom_calls/cuda/tied_cross.cu"
