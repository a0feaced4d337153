// DotBlock, the sums of up to two by two tiles: by vectors if BK_JAX_PAIRS is
// defined, or else by tiles.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_AMX_DOT_BLOCK_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_AMX_DOT_BLOCK_INL_H_

#if defined(BK_JAX_PAIRS)
#include "custom_calls/cpu/amx/pair_block-inl.h"
#else
#include "custom_calls/cpu/amx/tile_block-inl.h"
#endif

#endif  // BK_JAX_CUSTOM_CALLS_CPU_AMX_DOT_BLOCK_INL_H_
