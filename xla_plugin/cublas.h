// What handlers with a library's products share.
#ifndef BK_JAX_XLA_PLUGIN_CUBLAS_H_
#define BK_JAX_XLA_PLUGIN_CUBLAS_H_

#include "custom_calls/cuda/cublas/dense.h"
#include "xla_plugin/call.h"
#include "xla_plugin/status.h"

namespace bk {

// The attribute tf32: products of float32 may round their operands to tf32.
bool AsksForTf32(const Attributes& attributes);

// "<operation>: cuBLAS error 13 (the library's words) at <file>:<line>".
Status CublasStatus(const char* operation, const cuda::LibraryStatus& library,
                    const char* file, int line);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CUBLAS_H_
