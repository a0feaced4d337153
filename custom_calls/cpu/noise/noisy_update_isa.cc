// Updates of optimizers, a vector at a time. Every operation is rounded by
// itself, in the order of optax: op by op, JAX computes the same bits. XLA too
// multiplies by the reciprocal of what an array is divided by.
#include "custom_calls/cpu/noise/noisy_update_isa.h"

#include "custom_calls/cpu/noise/normal-inl.h"

namespace bk::BK_ISA {
namespace {

using Floats = Vec<float>;

template <Optimizer kOptimizer>
inline constexpr int64_t kUpdated = Updated(kOptimizer);

// What a parameter x is moved by, up to the step size; moments are updated.
template <Optimizer kOptimizer>
BK_INLINE Floats Direction(const UpdateNumbers& n, const Floats& gradient,
                           const Floats& x, Floats& first, Floats& second) {
  if constexpr (kOptimizer == Optimizer::kSgd) {
    return gradient;
  } else if constexpr (kOptimizer == Optimizer::kMomentum) {
    return first = gradient + n.decay * first;
  } else if constexpr (kOptimizer == Optimizer::kNesterov) {
    first = gradient + n.decay * first;
    return gradient + n.decay * first;
  } else {
    first = n.gain * gradient + n.decay * first;
    second = n.second_gain * (gradient * gradient) + n.second_decay * second;
    const Floats square = n.second_unbias * second;
    const Floats direction =
        (n.unbias * first) / (Sqrt(square + n.epsilon_root) + n.epsilon);
    if constexpr (kOptimizer == Optimizer::kAdam) return direction;
    return direction + n.weight_decay * x;
  }
}

// One vector of every array.
template <Optimizer kOptimizer>
BK_INLINE void UpdateVector(const UpdateNumbers& n, const float* sum,
                            const float* const* from, float* const* to,
                            int64_t i) {
  Floats values[kMaxUpdated] = {};
#pragma GCC unroll 3
  for (int64_t k = 0; k < kUpdated<kOptimizer>; ++k) {
    values[k] = Load(from[k] + i);
  }
  const Floats direction = Direction<kOptimizer>(
      n, n.scale * Load(sum + i), values[0], values[1], values[2]);
  values[0] = values[0] + n.step * direction;
#pragma GCC unroll 3
  for (int64_t k = 0; k < kUpdated<kOptimizer>; ++k) {
    Store(values[k], to[k] + i);
  }
}

// Fewer values than a vector has, through copies that are whole ones.
template <Optimizer kOptimizer>
void UpdateRest(const UpdateTask& task, int64_t done) {
  float sum[kLanes<float>] = {};
  float copies[kMaxUpdated][kLanes<float>] = {};
  float* const whole[] = {copies[0], copies[1], copies[2]};
  const auto bytes = static_cast<uint64_t>(task.count - done) * sizeof(float);
  __builtin_memcpy(sum, task.sum + done, bytes);
  for (int64_t k = 0; k < kUpdated<kOptimizer>; ++k) {
    __builtin_memcpy(whole[k], task.from[k] + done, bytes);
  }
  UpdateVector<kOptimizer>(task.numbers, sum, whole, whole, 0);
  for (int64_t k = 0; k < kUpdated<kOptimizer>; ++k) {
    __builtin_memcpy(task.to[k] + done, whole[k], bytes);
  }
}

template <Optimizer kOptimizer>
void UpdateAll(const UpdateTask& given) {
  const UpdateTask task = given;  // which no store can change
  int64_t i = 0;
  for (; i + kLanes<float> <= task.count; i += kLanes<float>) {
    UpdateVector<kOptimizer>(task.numbers, task.sum, task.from, task.to, i);
  }
  if (i < task.count) UpdateRest<kOptimizer>(task, i);
}

}  // namespace

void UpdateRange(const UpdateTask& task) {
  switch (task.optimizer) {
    case Optimizer::kSgd:
      return UpdateAll<Optimizer::kSgd>(task);
    case Optimizer::kMomentum:
      return UpdateAll<Optimizer::kMomentum>(task);
    case Optimizer::kNesterov:
      return UpdateAll<Optimizer::kNesterov>(task);
    case Optimizer::kAdam:
      return UpdateAll<Optimizer::kAdam>(task);
    case Optimizer::kAdamW:
      return UpdateAll<Optimizer::kAdamW>(task);
  }
}

}  // namespace bk::BK_ISA
