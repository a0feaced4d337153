// Roundings of sums on the main loop, for the bounds of norms.
//
// Assumed of tensor cores: an instruction adds its products in steps of at
// least kStepTerms. A step over k terms aligns the k exact products and the
// accumulator to the largest of them and truncates each, then truncates the
// result: at most (k + 2) 2^-23 relative to the sum of their absolute values,
// 2 (k + 2) roundings. Shorter steps round more often, so the shortest ones
// are counted. No document of NVIDIA promises it: tests/custom_calls/cuda
// checks it on the device at hand (engine_test.cc), and that the compiled code
// has the instructions that are counted here (static_gates.py).
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CHAIN_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CHAIN_H_

#include <cstdint>

namespace bk::cuda {

// Terms of the shortest step that was ever measured on a tensor core: 4, on a
// V100 and for tf32 on an A100; 8 for 16-bit elements there, 16 on an H100.
inline constexpr int kStepTerms = 4;

// Instructions add 16 terms (or 8) at a time, some of which may be zeros.
inline constexpr int64_t kInstructionTerms = 16;

// Of a sum of so many products in a tensor core.
constexpr int64_t ChainRoundings(int64_t terms) {
  const int64_t instructions =
      (terms + kInstructionTerms - 1) / kInstructionTerms;
  return instructions * (kInstructionTerms / kStepTerms) * 2 * (kStepTerms + 2);
}

// Of a sum of `length` products that leaves the tensor core after `chain` of
// them for a sum in float.
constexpr int64_t ChainedRoundings(int64_t length, int64_t chain) {
  return ChainRoundings(length < chain ? length : chain) + 1 +
         (length + chain - 1) / chain;
}

// A tensor core may flush products below 2^-126 to zero. Rows count with at
// least this squared length per element in S, which makes up for it.
inline constexpr double kTensorTiny = 0x1p-100;

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CHAIN_H_
