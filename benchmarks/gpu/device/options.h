// What the programs of this folder take on their command line.
#ifndef BK_JAX_BENCHMARKS_GPU_DEVICE_OPTIONS_H_
#define BK_JAX_BENCHMARKS_GPU_DEVICE_OPTIONS_H_

#include <string>
#include <vector>

#include "benchmarks/gpu/device/layer.h"
#include "custom_calls/shapes.h"

namespace bk::bench {

struct Options {
  std::vector<DenseShape> shapes;  // --shapes=BxTxdxp,...
  std::vector<Type> types;         // --types=f32,bf16,f16
  std::string cublas;              // --cublas=FOLDER of libcublasLt
  std::string out;                 // --out=FILE.json
  int repeats = 3;                 // --repeats=N
  int tensor_core_error = 0;       // --tensor_core_error=N, emulated only
  std::string problem;             // with what was given
};

// Takes what it knows from the arguments and leaves the rest.
Options TakeOptions(int* count, char** arguments);

// Finds cublasLt and uses it; empty, or why there is none.
std::string UseLibrary(const Options& options);

// "16x100x768x3072"
std::string NameOf(const DenseShape& shape);

// Text as JSON has it, with its quotes.
std::string Quoted(const std::string& text);

// {"name": ..., "emulated": ...}
std::string DescriptionAsJson();

// Writes to the file that was asked for, or prints; the exit code.
int Write(const Options& options, const std::string& json);

}  // namespace bk::bench

#endif  // BK_JAX_BENCHMARKS_GPU_DEVICE_OPTIONS_H_
