// Operands of dense layers: one row for each example, weight and position.
#ifndef BK_JAX_XLA_PLUGIN_DENSE_H_
#define BK_JAX_XLA_PLUGIN_DENSE_H_

#include <cstdint>
#include <vector>

#include "custom_calls/shapes.h"
#include "xla_plugin/call.h"
#include "xla_plugin/status.h"

namespace bk {

struct Rows {
  int64_t batch;
  int64_t weights;
  int64_t positions;
  int64_t width;
};

// Reads the shape [B, N, T, width], or [B * T, width] when there is one
// weight: so XLA's own dots read activations, and it stores them once for all.
Status ReadRows(const Buffer& buffer, int64_t batch, Rows* rows);

// The same number of rows as `first`, of the same type and rank.
Status ReadSameRows(const Buffer& buffer, const Buffer& first, int64_t* width);

// sq_norm and sq_norm_upper [batch], for operands like this one.
Status CheckNorms(int64_t batch, const Buffer& operand, const Buffer& sq_norm,
                  const Buffer& sq_norm_upper);

// An operation on activations and output gradients.
struct DenseCall : Call {
  using Call::Call;
  Buffer a = Operand("a");  // [B, N, T, d] or [B * T, d]
  Buffer g = Operand("g");  // [B, N, T, p] or [B * T, p]
  DenseShape shape = {};

  const Buffer& Typed() const { return a; }
  Status ReadShape(int64_t batch);
};

// The same with norms of gradients as results.
struct DenseNormCall : DenseCall {
  using DenseCall::DenseCall;
  Buffer sq_norm = Result("sq_norm");              // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]

  Status Check();
};

// Operands of several dense layers of one shape: left_1, right_1, left_2, ...
class LayerOperands {
 public:
  // Of all operands that are left. `what` stands for them in messages.
  LayerOperands(const Named& what, const std::vector<Buffer>& operands,
                const char* left_name, const char* right_name);

  // Pairs, 1 to `most`, all of the shapes and the type of the first.
  Status Check(int64_t most) const;

  std::vector<Buffer> left, right;

 private:
  Named what_;
  size_t operands_;
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_DENSE_H_
