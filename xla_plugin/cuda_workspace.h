// How many bytes of workspace a call needs on a GPU. Python asks when it traces
// a call, because the workspace is a result of it.
#ifndef BK_JAX_XLA_PLUGIN_CUDA_WORKSPACE_H_
#define BK_JAX_XLA_PLUGIN_CUDA_WORKSPACE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace bk {

// A call as Python sees it: shapes of operands, in the form with all axes
// ([B, N, T, d], not [B * T, d]), bytes of an element of the result, and those
// attributes that are integers or lists of them.
struct CallForm {
  std::vector<std::vector<int64_t>> operands;
  int64_t result_bytes;
  std::map<std::string, std::vector<int64_t>> attributes;
};

// 0 for calls that have none, and no such result; at least 1 for the others.
int64_t WorkspaceBytes(std::string_view target, const CallForm& form);

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CUDA_WORKSPACE_H_
