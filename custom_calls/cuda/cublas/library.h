// cublasLt, found at run time the way JAX's CUDA plugin finds it: the one that
// the process has loaded already, then one that the loader knows by name, then
// those of folders, such as that of the package nvidia-cublas. It is never
// linked, so nothing of ours needs it.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_LIBRARY_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_LIBRARY_H_

#include <cublasLt.h>

#include <string>
#include <vector>

namespace bk::cuda {

// The functions of cublasLt that we call.
#define BK_CUBLAS_FUNCTIONS(X)            \
  X(cublasLtCreate)                       \
  X(cublasLtGetStatusString)              \
  X(cublasLtGetVersion)                   \
  X(cublasLtMatmul)                       \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutSetAttribute)

struct CublasLt {
// NOLINTNEXTLINE(bugprone-macro-parentheses): it names a member
#define BK_MEMBER(function) decltype(&::function) function = nullptr;
  BK_CUBLAS_FUNCTIONS(BK_MEMBER)
#undef BK_MEMBER
};

// Where to look.
struct CublasSearch {
  bool by_name = true;
  std::vector<std::string> folders = {};
};

struct FoundCublas {
  const CublasLt* functions;  // null if there is a problem
  std::string problem;        // says where it was looked for, and what to do
};

// The library of the version that this file is compiled for. It stays loaded.
FoundCublas FindCublas(const CublasSearch& search);

// The library that products are made with from now on; null, as at first: with
// none.
void UseCublas(const CublasLt* functions);
const CublasLt* CublasInUse();

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_CUBLAS_LIBRARY_H_
