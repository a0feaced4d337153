// How an operand of a product lies in memory.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_LAYOUT_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_LAYOUT_CUH_

namespace bk::cuda {

// kRows: the sum runs along rows, X Y^T (Gram matrices).
// kColumns: it runs along columns, X^T Y (gradients).
enum class Layout { kRows, kColumns };

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_LAYOUT_CUH_
