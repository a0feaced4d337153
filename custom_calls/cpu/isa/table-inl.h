// Fills the table of this instruction set with the bodies.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_TABLE_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_TABLE_INL_H_

#include "custom_calls/cpu/conv/conv-inl.h"
#include "custom_calls/cpu/conv/conv_depthwise-inl.h"
#include "custom_calls/cpu/conv/conv_gram-inl.h"
#include "custom_calls/cpu/dense/clipped_gemm-inl.h"
#include "custom_calls/cpu/dense/ghost_norm-inl.h"
#include "custom_calls/cpu/dense/product-inl.h"
#include "custom_calls/cpu/dense/weighted_sum-inl.h"
#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/noise/gaussian_isa.h"
#include "custom_calls/cpu/noise/noisy_update_isa.h"
#include "custom_calls/cpu/sparse/clipped_scatter-inl.h"
#include "custom_calls/cpu/sparse/embedding_norm-inl.h"
#include "custom_calls/cpu/sparse/tied_cross-inl.h"

namespace bk::BK_ISA {

template <class T>
inline constexpr SparseKernels<T> kSparseKernels = {
    SegmentSum<T>, ScatterSegment<T>, CrossTileRow<T>};

template <class T>
inline constexpr ConvKernels<T> kConvKernels = {
    ConvBlockSum<T>, DepthwiseBlockSum<T>, ConvGramLines<T>};

template <class T>
inline constexpr ElementKernels<T> kElementKernels = {
    GhostTileRow<T>,   GhostSingle<T>,      Spread<T>,      ClippedGemmTile<T>,
    ProductTile<T>,    WeightedSumChunk<T>, WideSquares<T>, GaussianRange<T>,
    kSparseKernels<T>, kConvKernels<T>};

inline constexpr CpuKernels Table(const char* name) {
  return {name,
          BK_VECTOR_BYTES,
          kElementKernels<float>,
          kElementKernels<BFloat16>,
          kElementKernels<Float16>,
          kElementKernels<double>,
          ChachaRange,
          UpdateRange};
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_TABLE_INL_H_
