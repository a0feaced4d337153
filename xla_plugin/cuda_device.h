// Whether the GPUs of a machine can run our kernels, and if not, what to do.
#ifndef BK_JAX_XLA_PLUGIN_CUDA_DEVICE_H_
#define BK_JAX_XLA_PLUGIN_CUDA_DEVICE_H_

#include <string>
#include <vector>

namespace bk {

// A GPU that CUDA shows, with its compute capability.
struct CudaDevice {
  std::string name;
  int major;
  int minor;
};

// Versions as CUDA has them: 13000 is 13.0. `driver` is 0 without one.
struct CudaVersions {
  int driver;
  int runtime;
};

// Empty, or why kernels cannot run: XLA may call them on any of the devices.
std::string ProblemOf(const CudaVersions& versions,
                      const std::vector<CudaDevice>& devices);

// The same for this machine.
std::string DeviceProblem();

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_CUDA_DEVICE_H_
