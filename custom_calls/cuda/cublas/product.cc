// cublasLt thinks in columns: row-major out [m, n] is a matrix of n rows to it,
// right^T left, whose factors are stored as [n, rows] and [m, rows].
#include "custom_calls/cuda/cublas/product.h"

#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#define BK_RETURN_IF_CUBLAS_ERROR(expression)        \
  if (const cublasStatus_t bk_status = (expression); \
      bk_status != CUBLAS_STATUS_SUCCESS) {          \
    return bk_status;                                \
  }

namespace bk::cuda {
namespace {

// Below this, in either direction, a library's tile is mostly padding.
constexpr int64_t kSmallest = 32;
// XLA's buffers start at multiples of this, and products that follow each other
// at those of an element: what holds for a product is part of its plan.
constexpr uint32_t kAligned = 16;

struct Plan {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t left = nullptr;
  cublasLtMatrixLayout_t right = nullptr;
  cublasLtMatrixLayout_t out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};

cudaDataType ElementType(ProductElement element) {
  switch (element) {
    case ProductElement::kBf16:
      return CUDA_R_16BF;
    case ProductElement::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t ComputeType(ProductElement element) {
  return element == ProductElement::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F;
}

template <class Value, class Set, class Object, class Attribute>
cublasStatus_t SetAttribute(Set set, Object object, Attribute attribute,
                            Value value) {
  return set(object, attribute, &value, sizeof(value));
}

// Matrices of `rows` columns of `height`, one after the other.
cublasStatus_t MakeLayout(const CublasLt& lt, cudaDataType type, int64_t height,
                          int64_t rows, int64_t count,
                          cublasLtMatrixLayout_t* layout) {
  BK_RETURN_IF_CUBLAS_ERROR(
      lt.cublasLtMatrixLayoutCreate(layout, type, static_cast<uint64_t>(height),
                                    static_cast<uint64_t>(rows), height));
  const auto set = lt.cublasLtMatrixLayoutSetAttribute;
  BK_RETURN_IF_CUBLAS_ERROR(SetAttribute(set, *layout,
                                         CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                         static_cast<int32_t>(count)));
  return SetAttribute(set, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                      int64_t{height * rows});
}

cublasStatus_t MakeLayouts(const CublasLt& lt, const Products& p, Plan* plan) {
  const cudaDataType type = ElementType(p.element);
  BK_RETURN_IF_CUBLAS_ERROR(
      MakeLayout(lt, type, p.n, p.rows, p.count, &plan->right));
  BK_RETURN_IF_CUBLAS_ERROR(
      MakeLayout(lt, type, p.m, p.rows, p.count, &plan->left));
  BK_RETURN_IF_CUBLAS_ERROR(
      MakeLayout(lt, CUDA_R_32F, p.n, p.m, p.count, &plan->out));
  BK_RETURN_IF_CUBLAS_ERROR(lt.cublasLtMatmulDescCreate(
      &plan->product, ComputeType(p.element), CUDA_R_32F));
  return SetAttribute(lt.cublasLtMatmulDescSetAttribute, plan->product,
                      CUBLASLT_MATMUL_DESC_TRANSB,
                      static_cast<int32_t>(CUBLAS_OP_T));
}

// INPLACE adds parts of a sum in the order in which they are ready.
cublasStatus_t SetPreferences(const CublasLt& lt, uint32_t alignment,
                              cublasLtMatmulPreference_t preference) {
  const auto set = lt.cublasLtMatmulPreferenceSetAttribute;
  BK_RETURN_IF_CUBLAS_ERROR(
      SetAttribute(set, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                   static_cast<uint64_t>(kProductScratchBytes)));
  BK_RETURN_IF_CUBLAS_ERROR(
      SetAttribute(set, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK &
                            ~CUBLASLT_REDUCTION_SCHEME_INPLACE}));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    BK_RETURN_IF_CUBLAS_ERROR(
        SetAttribute(set, preference, attribute, alignment));
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t ChooseAlgorithm(const CublasLt& lt, cublasLtHandle_t handle,
                               uint32_t alignment, Plan* plan) {
  cublasLtMatmulPreference_t preference = nullptr;
  BK_RETURN_IF_CUBLAS_ERROR(lt.cublasLtMatmulPreferenceCreate(&preference));
  cublasLtMatmulHeuristicResult_t result = {};
  int found = 0;
  cublasStatus_t status = SetPreferences(lt, alignment, preference);
  if (status == CUBLAS_STATUS_SUCCESS) {
    status = lt.cublasLtMatmulAlgoGetHeuristic(
        handle, plan->product, plan->right, plan->left, plan->out, plan->out,
        preference, 1, &result, &found);
  }
  lt.cublasLtMatmulPreferenceDestroy(preference);
  BK_RETURN_IF_CUBLAS_ERROR(status);
  if (found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  plan->algorithm = result.algo;
  return result.state;
}

// What has been chosen in this process; nothing of it is ever given back.
class Plans {
 public:
  using Key = std::tuple<const CublasLt*, int, uint32_t, int, int64_t, int64_t,
                         int64_t, int64_t>;

  const Plan& For(const CublasLt& lt, const Products& p, uint32_t alignment) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Key key = {&lt,     Device(), alignment, static_cast<int>(p.element),
                     p.count, p.rows,   p.m,       p.n};
    const auto [place, is_new] = plans_.try_emplace(key);
    if (is_new) place->second.status = Make(lt, p, alignment, &place->second);
    return place->second;
  }

  cublasStatus_t Handle(const CublasLt& lt, cublasLtHandle_t* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return HandleOf(lt, handle);
  }

 private:
  // Of the stream that XLA has made current; 0 where there is no device.
  static int Device() {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) cudaGetLastError();
    return device;
  }

  cublasStatus_t HandleOf(const CublasLt& lt, cublasLtHandle_t* handle) {
    auto& kept = handles_[{&lt, Device()}];
    if (kept == nullptr) {
      BK_RETURN_IF_CUBLAS_ERROR(lt.cublasLtCreate(&kept));
    }
    *handle = kept;
    return CUBLAS_STATUS_SUCCESS;
  }

  cublasStatus_t Make(const CublasLt& lt, const Products& p, uint32_t alignment,
                      Plan* plan) {
    cublasLtHandle_t handle = nullptr;
    BK_RETURN_IF_CUBLAS_ERROR(HandleOf(lt, &handle));
    BK_RETURN_IF_CUBLAS_ERROR(MakeLayouts(lt, p, plan));
    return ChooseAlgorithm(lt, handle, alignment, plan);
  }

  std::mutex mutex_;
  std::map<Key, Plan> plans_;
  std::map<std::pair<const CublasLt*, int>, cublasLtHandle_t> handles_;
};

Plans& AllPlans() {
  static auto* const plans = new Plans();
  return *plans;
}

// 16, or what is left of it where products follow at odd places.
uint32_t AlignmentOf(const ProductOperands& operands) {
  const auto any = reinterpret_cast<uintptr_t>(operands.left) |
                   reinterpret_cast<uintptr_t>(operands.right) |
                   reinterpret_cast<uintptr_t>(operands.out);
  uint32_t alignment = kAligned;
  while (any % alignment != 0) alignment /= 2;
  return alignment;
}

}  // namespace

bool AreLarge(const Products& p) {
  return p.m >= kSmallest && p.n >= kSmallest && p.rows > 0 && p.count > 0 &&
         p.count <= INT32_MAX;
}

bool CanMultiply(const Products& p) {
  const CublasLt* lt = CublasInUse();
  return lt != nullptr && AreLarge(p) &&
         AllPlans().For(*lt, p, kAligned).status == CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Multiply(const Products& products,
                        const ProductOperands& operands, const Scratch& scratch,
                        cudaStream_t stream) {
  const CublasLt& lt = *CublasInUse();
  const Plan& plan = AllPlans().For(lt, products, AlignmentOf(operands));
  cublasLtHandle_t handle = nullptr;
  BK_RETURN_IF_CUBLAS_ERROR(plan.status);
  BK_RETURN_IF_CUBLAS_ERROR(AllPlans().Handle(lt, &handle));
  if (loading_only) return CUBLAS_STATUS_SUCCESS;
  const float one = 1, beta = operands.add ? 1 : 0;
  return lt.cublasLtMatmul(
      handle, plan.product, &one, operands.right, plan.right, operands.left,
      plan.left, &beta, operands.out, plan.out, operands.out, plan.out,
      &plan.algorithm, scratch.data, scratch.bytes, stream);
}

}  // namespace bk::cuda
