// Products of matrices by cublasLt. The algorithm for a product is asked for
// once in a process and kept, and none that adds up in an order of its own is
// taken, so the same product has the same bits each time.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_PRODUCT_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "custom_calls/cuda/cublas/library.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"

namespace bk::cuda {

enum class ProductElement { kF32, kTf32, kBf16, kF16 };

template <class T>
inline constexpr ProductElement kProductElement = ProductElement::kF32;
template <>
inline constexpr ProductElement kProductElement<BFloat16> =
    ProductElement::kBf16;
template <>
inline constexpr ProductElement kProductElement<Float16> = ProductElement::kF16;

// out[k] = left[k]^T right[k] for k < count, in float32: left[k] [rows, m],
// right[k] [rows, n] and out[k] [m, n] are dense and row-major, and the next
// ones follow directly. kTf32: operands are float32, rounded to tf32.
struct Products {
  ProductElement element;
  int64_t count;
  int64_t rows;
  int64_t m;
  int64_t n;
};

struct ProductOperands {
  const void* left;
  const void* right;
  float* out;
  bool add;  // to what is there
};

// Memory on the device that a product may use, at a multiple of 256 bytes.
struct Scratch {
  void* data;
  size_t bytes;
};

// As much as cublasLt gets; XLA gives its own products as much by default.
inline constexpr int64_t kProductScratchBytes = int64_t{4} << 20;

// Whether products are large enough for a library: ours take fewer launches.
bool AreLarge(const Products& products);

// Whether products are made by the library: they are large, it is there, and it
// has an algorithm for them.
bool CanMultiply(const Products& products);

// Enqueues them; while `loading_only` is set, chooses the algorithm only.
cublasStatus_t Multiply(const Products& products,
                        const ProductOperands& operands, const Scratch& scratch,
                        cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_PRODUCT_H_
