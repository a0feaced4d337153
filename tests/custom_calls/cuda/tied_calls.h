// The cross term of a tied table, run on a device, and what the definition
// says.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_TIED_CALLS_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_TIED_CALLS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "custom_calls/cuda/tied_cross.h"
#include "custom_calls/reference/lookup.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/lookup_data.h"

namespace bk::cuda {

// Small integers, and ids some of which are outside of the table.
template <class T>
struct Tied {
  Tied(Random& random, const TiedCrossShape& s)
      : shape(s),
        left(Integers<T>(random, s.batch * s.positions * s.rows)),
        right(Integers<T>(random, s.batch * s.positions * s.p)),
        ids(Ids(random, s.batch * s.tokens, -2,
                static_cast<int32_t>(s.rows) + 1)),
        g(Integers<T>(random, s.batch * s.tokens * s.p)),
        exact(s.batch) {}

  void Run() {
    // Both begin `skipped` elements into their buffers.
    auto device_right = Put(right, "right");
    auto device_g = Put(g, "g");
    RunOn(device_right.data() + skipped, device_g.data() + skipped);
  }
  // With right [positions, p] the beginning of g [tokens, p].
  void RunOnOneArray() {
    std::copy_n(g.data(), right.size(), right.data());
    auto device_g = Put(g, "g");
    RunOn(device_g.data() + skipped, device_g.data() + skipped);
  }

  TiedCrossShape shape;
  Array<T> left, right;
  Array<int32_t> ids;
  Array<T> g;
  int64_t skipped = 0;
  std::vector<Accumulator<T>> cross, upper;
  std::vector<long double> exact;

 private:
  DeviceBuffer<T> Put(const Array<T>& values, const std::string& name) const {
    std::vector<T> elements(skipped + values.size());
    std::copy_n(values.data(), values.size(), elements.data() + skipped);
    return DeviceBuffer<T>::Of(elements, name);
  }
  void RunOn(const T* right_on_device, const T* g_on_device) {
    auto device_left = DeviceBuffer<T>::Of(left, "left");
    auto device_ids = DeviceBuffer<int32_t>::Of(ids, "ids");
    DeviceBuffer<Accumulator<T>> device_cross(shape.batch, "cross");
    DeviceBuffer<Accumulator<T>> device_upper(shape.batch, "cross_upper");
    DeviceBuffer<char> workspace(TiedCrossWorkspaceBytes(shape), "workspace");
    EXPECT_TRUE(
        Succeeded(TiedCross(shape, device_left.data(), right_on_device,
                            device_ids.data(), g_on_device, device_cross.data(),
                            device_upper.data(), workspace.data(), nullptr)));
    cross = device_cross.Get();
    upper = device_upper.Get();
    reference::TiedCross(shape, left.data(), right.data(), ids.data(), g.data(),
                         exact.data());
  }
};

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_TIED_CALLS_H_
