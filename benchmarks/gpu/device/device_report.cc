// What CUDA says of the device at hand, as JSON; or, with exit code 1, why
// there is none.
//
//   bazel run --config=cuda //benchmarks/gpu:device_report
#include <cstdio>
#include <string>

#include "benchmarks/gpu/device/device.h"
#include "benchmarks/gpu/device/options.h"

int main() {
  const std::string missing = bk::bench::Missing();
  if (!missing.empty()) {
    std::fprintf(stderr, "device_report: %s\n", missing.c_str());
    return 1;
  }
  std::printf("%s\n", bk::bench::DescriptionAsJson().c_str());
  return 0;
}
