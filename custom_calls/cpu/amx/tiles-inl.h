// The class Tiles: registers of AMX, or memory if BK_JAX_SOFT_TILES is defined.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_INL_H_

#if defined(BK_JAX_SOFT_TILES)
#include "custom_calls/cpu/amx/tiles_soft-inl.h"
#else
#include "custom_calls/cpu/amx/tiles_amx-inl.h"
#endif

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_TILES_INL_H_
