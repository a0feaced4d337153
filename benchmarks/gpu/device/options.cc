#include "benchmarks/gpu/device/options.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "custom_calls/cuda/cublas/library.h"

namespace bk::bench {
namespace {

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) {
    parts.push_back(part);
  }
  return parts;
}

void TakeShapes(const std::string& text, Options* options) {
  for (const std::string& part : Split(text, ',')) {
    DenseShape shape = {1, 1, 1, 1, 1};
    const auto numbers = Split(part, 'x');
    if (numbers.size() != 4) {
      options->problem = "--shapes takes BxTxdxp, got " + part;
      return;
    }
    shape.batch = std::atoll(numbers[0].c_str());
    shape.positions = std::atoll(numbers[1].c_str());
    shape.d = std::atoll(numbers[2].c_str());
    shape.p = std::atoll(numbers[3].c_str());
    options->shapes.push_back(shape);
  }
}

void TakeTypes(const std::string& text, Options* options) {
  for (const std::string& part : Split(text, ',')) {
    bool known = false;
    for (const Type type : {Type::kF32, Type::kBf16, Type::kF16}) {
      if (part != NameOf(type)) continue;
      options->types.push_back(type);
      known = true;
    }
    if (!known) options->problem = "--types takes f32, bf16, f16, got " + part;
  }
}

bool Take(const std::string& argument, Options* options) {
  const size_t at = argument.find('=');
  if (at == std::string::npos) return false;
  const std::string name = argument.substr(0, at);
  const std::string value = argument.substr(at + 1);
  if (name == "--shapes") {
    TakeShapes(value, options);
  } else if (name == "--types") {
    TakeTypes(value, options);
  } else if (name == "--cublas") {
    options->cublas = value;
  } else if (name == "--out") {
    options->out = value;
  } else if (name == "--repeats") {
    options->repeats = std::atoi(value.c_str());
  } else if (name == "--tensor_core_error") {
    options->tensor_core_error = std::atoi(value.c_str());
  } else {
    return false;
  }
  return true;
}

}  // namespace

Options TakeOptions(int* count, char** arguments) {
  Options options;
  int kept = 1;
  for (int k = 1; k < *count; ++k) {
    if (!Take(arguments[k], &options)) arguments[kept++] = arguments[k];
  }
  *count = kept;
  if (options.types.empty()) {
    options.types = {Type::kF32, Type::kBf16, Type::kF16};
  }
  if (options.shapes.empty()) options.shapes = {{2, 1, 40, 48, 64}};
  return options;
}

// A folder that is named comes before what the loader knows.
std::string UseLibrary(const Options& options) {
  cuda::FoundCublas found = {nullptr, ""};
  if (!options.cublas.empty()) {
    found = cuda::FindCublas({/*by_name=*/false, {options.cublas}});
  }
  if (found.functions == nullptr) {
    const cuda::FoundCublas by_name = cuda::FindCublas({/*by_name=*/true, {}});
    if (by_name.functions == nullptr) {
      return found.problem.empty() ? by_name.problem : found.problem;
    }
    found = by_name;
  }
  cuda::UseCublas(found.functions);
  return "";
}

std::string NameOf(const DenseShape& shape) {
  return std::to_string(shape.batch) + "x" + std::to_string(shape.positions) +
         "x" + std::to_string(shape.d) + "x" + std::to_string(shape.p);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  return quoted + "\"";
}

std::string DescriptionAsJson() {
  std::string json =
      std::string("{\"emulated\": ") + (IsEmulated() ? "true" : "false");
  for (const auto& [name, value] : Describe()) {
    json += ", " + Quoted(name) + ": " + Quoted(value);
  }
  return json + "}";
}

int Write(const Options& options, const std::string& json) {
  FILE* file =
      options.out.empty() ? stdout : std::fopen(options.out.c_str(), "w");
  if (file == nullptr) {
    std::fprintf(stderr, "cannot write %s\n", options.out.c_str());
    return 1;
  }
  std::fputs(json.c_str(), file);
  if (file != stdout) std::fclose(file);
  return 0;
}

}  // namespace bk::bench
