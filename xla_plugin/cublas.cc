#include "xla_plugin/cublas.h"

#include "xla_plugin/cuda_target.h"
#include "xla_plugin/text.h"

namespace bk {

bool AsksForTf32(const Attributes& attributes) {
  return attributes.Integer("tf32").value_or(0) != 0;
}

Status CublasStatus(const char* operation, const cuda::LibraryStatus& library,
                    const char* file, int line) {
  BK_RETURN_IF_ERROR(CudaStatus(operation, library.cuda, file, line));
  if (library.cublas == CUBLAS_STATUS_SUCCESS) return OkStatus();
  const cuda::CublasLt* lt = cuda::CublasInUse();
  return InternalError(StrCat(
      operation, ": cuBLAS error ", static_cast<int>(library.cublas), " (",
      lt == nullptr ? "" : lt->cublasLtGetStatusString(library.cublas), ") at ",
      file, ":", line));
}

}  // namespace bk
