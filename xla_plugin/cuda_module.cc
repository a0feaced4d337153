// Python module bk_jax._cuda: hands the CUDA handlers to jax.ffi. It loads on
// machines without a driver; device_problem() says so then.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "custom_calls/cuda/cublas/library.h"
#include "xla_plugin/cuda_device.h"
#include "xla_plugin/cuda_target.h"
#include "xla_plugin/module.h"

namespace {

// An array without elements: the name of its type in NumPy, and its shape.
using Array = std::pair<std::string, std::vector<int64_t>>;

bk::Buffer ToBuffer(const Array& array) {
  namespace ffi = xla::ffi;
  static const auto* const kTypes = new std::map<std::string, ffi::DataType>{
      {"float32", ffi::F32}, {"bfloat16", ffi::BF16}, {"float16", ffi::F16},
      {"float64", ffi::F64}, {"int32", ffi::S32},     {"uint32", ffi::U32},
      {"bool", ffi::PRED}};
  const auto type = kTypes->find(array.first);
  const bool known = type != kTypes->end();
  return {
      {}, known ? type->second : ffi::DataType::INVALID, array.second, nullptr};
}

std::vector<bk::Buffer> ToBuffers(const std::vector<Array>& arrays) {
  std::vector<bk::Buffer> buffers;
  for (const Array& array : arrays) buffers.push_back(ToBuffer(array));
  return buffers;
}

int64_t WorkspaceBytes(const std::string& target,
                       const std::vector<Array>& operands,
                       const std::vector<Array>& results,
                       const bk::MapAttributes::Map& map) {
  const bk::MapAttributes attributes(map);
  const bk::CallFrame frame = {ToBuffers(operands), ToBuffers(results),
                               attributes};
  int64_t bytes = 0;
  const bk::Status status =
      bk::CudaTargets().at(target).workspace_bytes(frame, &bytes);
  if (!status.ok()) throw std::invalid_argument(std::string(status.message()));
  return bytes;
}

// Uses the library that is found; says why there is none.
std::string FindCublas(const std::vector<std::string>& folders) {
  const bk::cuda::FoundCublas found = bk::cuda::FindCublas({true, folders});
  bk::cuda::UseCublas(found.functions);
  return found.problem;
}

}  // namespace

NB_MODULE(_cuda, module) {
  module.doc() = "CUDA kernels of bk_jax as XLA FFI targets.";
  bk::DefineTargets(module, bk::CudaTargets(), [](const auto& target) {
    return bk::Stages{{"initialize", target.initialize},
                      {"execute", target.handler}};
  });
  module.def(
      "device_problem", [] { return bk::DeviceProblem(); },
      "Empty, or why no CUDA device can be used.");
  module.def("find_cublas", &FindCublas,
             "Looks for cublasLt by name, then in these folders, and uses it. "
             "Empty, or why our kernels make all products.");
  module.def(
      "workspace_bytes", &WorkspaceBytes,
      "Bytes of the workspace that a call has as its last result; 0: none. "
      "Operands and results are given as (name of dtype, shape).");
}
