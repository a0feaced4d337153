// A library with the names and the ABI of cublasLt that computes on the CPU, in
// double: what tests have in place of the real one, which needs a GPU. It is
// loaded like the real one, by dlopen; BkStandIn() is the one function more.
#ifndef BK_JAX_TESTS_CUBLAS_STAND_IN_STAND_IN_H_
#define BK_JAX_TESTS_CUBLAS_STAND_IN_STAND_IN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bk {

// A product as it was asked for.
struct StandInCall {
  int64_t rows, columns, depth, batch;  // of the matrices in columns
  int64_t strides[3];                   // of A, B and D
  int compute_type;
  float alpha, beta;
  size_t workspace_bytes;
};

// What the library is to do, and what it has done. It refuses what the real one
// would: layouts that do not fit, an algorithm that it has not chosen itself,
// less workspace than that needs, pointers that are less aligned than promised.
struct StandIn {
  size_t version = 0;          // to say, if not 0
  bool no_algorithm = false;   // for anything
  int failure = 0;             // the status of every product, if not 0
  size_t needed_bytes = 4096;  // of workspace, all of which is written

  int handles = 0, heuristics = 0;
  uint32_t reduction_schemes = 0;
  uint32_t alignment = 0;
  std::vector<StandInCall> calls;
};

}  // namespace bk

extern "C" bk::StandIn* BkStandIn();

#endif  // BK_JAX_TESTS_CUBLAS_STAND_IN_STAND_IN_H_
