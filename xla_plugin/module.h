// What the Python modules of all platforms have.
#ifndef BK_JAX_XLA_PLUGIN_MODULE_H_
#define BK_JAX_XLA_PLUGIN_MODULE_H_

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <string>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace bk {

// `targets` maps names to structures with a handler.
template <class Targets>
void DefineTargets(nanobind::module_& module, const Targets& targets) {
  namespace nb = nanobind;
  module.def(
      "registrations",
      [&targets] {
        nb::dict capsules;
        for (const auto& [name, target] : targets) {
          capsules[nb::str(name.data(), name.size())] =
              nb::capsule(reinterpret_cast<void*>(target.handler));
        }
        return capsules;
      },
      "Target names and the capsules that jax.ffi registers.");
  module.def(
      "ffi_api_version",
      [] { return std::pair(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR); },
      "(major, minor) of the XLA FFI headers this module was built with.");
}

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_MODULE_H_
