// The table of functions that every instruction set fills. Tasks and sizes that
// drivers (ghost_norm.cc, clipped_gemm.cc) and bodies (*-inl.h) share are in
// the room of each kind.
//
// Drivers own threads, scratch memory and the order of sums; they are compiled
// once. Bodies own arithmetic; they are compiled once per instruction set.
// Everything that crosses this line is a plain struct, because an inline
// function used on both sides could be emitted with instructions that the CPU
// lacks and then be picked by the linker for all.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_KERNELS_H_

#include <cstdint>

#include "custom_calls/cpu/conv/conv_kernels.h"
#include "custom_calls/cpu/dense/dense_kernels.h"
#include "custom_calls/cpu/noise/noise_kernels.h"
#include "custom_calls/cpu/sparse/sparse_kernels.h"
#include "custom_calls/element.h"

namespace bk {

template <class T>
struct ElementKernels {
  // Tiles (I, J >= I) of the Gram matrices, where tile row I starts at
  // `first_position`.
  GramPartial (*ghost_tile_row)(const GhostPair<T>& pair,
                                int64_t first_position, double* grams,
                                Accumulator<T>* scratch);
  // The same for T = 1, where the Gram matrices are numbers. No scratch.
  GramPartial (*ghost_single)(const GhostPair<T>& pair);
  // S = sum_t |a_t| |g_t|, not below it by more than rounding.
  double (*spread)(const GhostPair<T>& pair);
  void (*clipped_gemm_tile)(const GemmTask<T>& task, Accumulator<T>* scratch);
  // Returns the sum of squares of the result.
  double (*product_tile)(const ProductTask<T>& task, Accumulator<T>* scratch);
  // Elements [begin, end) of a sum with at least one live example.
  void (*weighted_sum_chunk)(const SumTask<T>& task, int64_t begin,
                             int64_t end);
  // |x[0:count]|^2 in double.
  double (*squares)(const T* x, int64_t count);
  void (*gaussian)(const GaussianTask<T>& task);
  SparseKernels<T> sparse;
  ConvKernels<T> conv;
  // Whether products are made by tile registers, which add in an order of their
  // own and take denormal numbers for zero: see tile_kernels.h.
  bool tiles = false;
};

struct CpuKernels {
  const char* name;
  int64_t vector_bytes;
  ElementKernels<float> f32;
  ElementKernels<BFloat16> bf16;
  ElementKernels<Float16> f16;
  ElementKernels<double> f64;
  void (*chacha)(const ChachaTask& task) = nullptr;
  void (*update)(const UpdateTask& task) = nullptr;
};

extern const CpuKernels kBaselineKernels;
extern const CpuKernels kAvx2Kernels;    // x86-64 only
extern const CpuKernels kAvx512Kernels;  // x86-64 only

// The column of the table for element type T.
template <class T>
const ElementKernels<T>& KernelsFor(const CpuKernels& kernels);
template <>
inline const ElementKernels<float>& KernelsFor(const CpuKernels& kernels) {
  return kernels.f32;
}
template <>
inline const ElementKernels<BFloat16>& KernelsFor(const CpuKernels& kernels) {
  return kernels.bf16;
}
template <>
inline const ElementKernels<Float16>& KernelsFor(const CpuKernels& kernels) {
  return kernels.f16;
}
template <>
inline const ElementKernels<double>& KernelsFor(const CpuKernels& kernels) {
  return kernels.f64;
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_KERNELS_H_
