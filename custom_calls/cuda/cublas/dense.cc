#include "custom_calls/cuda/cublas/dense.h"

#include <algorithm>

#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "custom_calls/cuda/scaled_copy.h"

#define BK_LIBRARY_CUDA(expression)                                         \
  if (const cudaError_t bk_error = (expression); bk_error != cudaSuccess) { \
    return {bk_error, CUBLAS_STATUS_SUCCESS};                               \
  }
#define BK_LIBRARY_CUBLAS(expression)                \
  if (const cublasStatus_t bk_status = (expression); \
      bk_status != CUBLAS_STATUS_SUCCESS) {          \
    return {cudaSuccess, bk_status};                 \
  }

namespace bk::cuda {
namespace {

constexpr LibraryStatus kDone = {cudaSuccess, CUBLAS_STATUS_SUCCESS};
constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kAlignment = 256;
// Several weights take a product for each example, and each is a launch.
constexpr int64_t kMostCalls = 64;

int64_t RoundUp(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Hands out parts of a workspace, each at a multiple of 256 bytes.
class Parts {
 public:
  explicit Parts(void* workspace) : begin_(static_cast<char*>(workspace)) {
    const auto address = reinterpret_cast<uintptr_t>(workspace);
    used_ =
        (kAlignment - static_cast<int64_t>(address % kAlignment)) % kAlignment;
  }
  template <class T>
  T* Take(int64_t bytes) {
    char* part = begin_ + used_;
    used_ += RoundUp(bytes);
    return reinterpret_cast<T*>(part);
  }

 private:
  char* begin_;
  int64_t used_;
};

// The product over all examples of one weight; of several weights those of one
// example: the rows of a weight do not follow each other.
Products ProductsOf(const LibrarySum& sum) {
  const ClippedGemmShape& s = sum.shape;
  const auto element = sum.tf32 ? ProductElement::kTf32 : ProductElement::kF32;
  if (s.weights == 1) return {element, 1, s.batch * s.positions, s.m, s.n};
  return {element, s.weights, s.positions, s.m, s.n};
}

Products ProductsOf(const LibraryGradients& gradients) {
  const DenseShape& s = gradients.shape;
  return {gradients.element, s.batch * s.weights, s.positions, s.d, s.p};
}

bool ScalesLeft(const ClippedGemmShape& s) { return s.m <= s.n; }

// Of the operand that is copied, and of the other one.
ScaledCopyShape OperandShape(const ClippedGemmShape& s, bool left) {
  return {s.batch, s.weights * s.positions * (left ? s.m : s.n)};
}

int64_t CopyBytes(const ClippedGemmShape& s) {
  const ScaledCopyShape copy = OperandShape(s, ScalesLeft(s));
  return copy.batch * copy.size * kFloat;
}

bool HasFewCalls(const ClippedGemmShape& s) {
  return s.weights == 1 || (s.batch > 0 && s.batch <= kMostCalls);
}

int64_t SumElements(const ClippedGemmShape& s) { return s.weights * s.m * s.n; }

// Adds up products with the scaled operand in place of its original.
cublasStatus_t AddProducts(const LibrarySum& sum, const float* lhs,
                           const float* rhs, const Scratch& scratch, float* out,
                           cudaStream_t stream) {
  const ClippedGemmShape& s = sum.shape;
  const int64_t calls = s.weights == 1 ? 1 : s.batch;
  const int64_t rows = s.weights * s.positions;
  for (int64_t i = 0; i < calls; ++i) {
    const cublasStatus_t status =
        Multiply(ProductsOf(sum),
                 {lhs + i * rows * s.m, rhs + i * rows * s.n, out,
                  sum.accumulate || i > 0},
                 scratch, stream);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

bool CanSum(const LibrarySum& sum) {
  return HasFewCalls(sum.shape) && CanMultiply(ProductsOf(sum));
}

int64_t SumWorkspaceBytes(const LibrarySum& sum) {
  const ClippedGemmShape& s = sum.shape;
  if (!HasFewCalls(s) || !AreLarge(ProductsOf(sum))) return 0;
  const int64_t flags =
      RoundUp(FindSpoilersWorkspaceBytes(OperandShape(s, !ScalesLeft(s))));
  const int64_t saved = sum.accumulate ? RoundUp(SumElements(s) * kFloat) : 0;
  const int64_t product = RoundUp(CopyBytes(s)) + kProductScratchBytes;
  const int64_t own = ClippedGemmWorkspaceBytes(s, kFloat);
  return 2 * kAlignment + flags + saved + std::max(product, own);
}

LibraryStatus Sum(const LibrarySum& sum, const float* lhs, const float* factor,
                  const float* rhs, void* workspace, float* out,
                  cudaStream_t stream) {
  const ClippedGemmShape& s = sum.shape;
  const bool left = ScalesLeft(s);
  const ScaledCopyShape other = OperandShape(s, !left);
  Parts parts(workspace);
  auto* spoils = parts.Take<int32_t>(sizeof(int32_t));
  auto* flags = parts.Take<void>(FindSpoilersWorkspaceBytes(other));
  auto* saved =
      sum.accumulate ? parts.Take<float>(SumElements(s) * kFloat) : nullptr;
  auto* copy = parts.Take<float>(CopyBytes(s));
  const Scratch scratch = {parts.Take<void>(kProductScratchBytes),
                           kProductScratchBytes};
  BK_LIBRARY_CUDA(ScaledCopy(OperandShape(s, left), left ? lhs : rhs, factor,
                             copy, stream));
  BK_LIBRARY_CUDA(
      FindSpoilers(other, left ? rhs : lhs, factor, flags, spoils, stream));
  if (sum.accumulate) {
    BK_LIBRARY_CUDA(CopyIf(spoils, SumElements(s), out, saved, stream));
  }
  BK_LIBRARY_CUBLAS(AddProducts(sum, left ? copy : lhs, left ? rhs : copy,
                                scratch, out, stream));
  if (sum.accumulate) {
    BK_LIBRARY_CUDA(CopyIf(spoils, SumElements(s), saved, out, stream));
  }
  // The copy is not needed any more: its memory is that of these kernels.
  BK_LIBRARY_CUDA(ClippedGemm(s, lhs, factor, rhs, sum.accumulate, copy, out,
                              stream, spoils));
  return kDone;
}

bool CanMakeGradients(const LibraryGradients& gradients) {
  return CanMultiply(ProductsOf(gradients));
}

int64_t GradientsWorkspaceBytes(const LibraryGradients& gradients) {
  if (!AreLarge(ProductsOf(gradients))) return 0;
  return 2 * kAlignment + RoundUp(StoredNormsWorkspaceBytes(gradients.shape)) +
         kProductScratchBytes;
}

LibraryStatus MakeGradients(const LibraryGradients& gradients, const void* a,
                            const void* g, void* workspace, float* grad,
                            float* sq_norm, float* sq_norm_upper,
                            cudaStream_t stream) {
  const DenseShape& s = gradients.shape;
  Parts parts(workspace);
  auto* squares = parts.Take<void>(StoredNormsWorkspaceBytes(s));
  const Scratch scratch = {parts.Take<void>(kProductScratchBytes),
                           kProductScratchBytes};
  BK_LIBRARY_CUBLAS(Multiply(ProductsOf(gradients), {a, g, grad, /*add=*/false},
                             scratch, stream));
  BK_LIBRARY_CUDA(
      StoredNorms(s, grad, squares, sq_norm, sq_norm_upper, stream));
  return kDone;
}

}  // namespace bk::cuda
