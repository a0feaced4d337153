// The same operation gives the same bits: twice, on other streams, after other
// work, beside other work, and recorded in a graph. Each is compared with a
// first run, byte by byte; results are overwritten before.
//
//   bazel run --config=cuda //benchmarks/gpu:bits_check -- --out=bits.json
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/gpu/device/device.h"
#include "benchmarks/gpu/device/layer.h"
#include "benchmarks/gpu/device/options.h"
#include "custom_calls/cuda/loading.h"

namespace bk::bench {
namespace {

constexpr int kStreams = 3;

using Bits = std::vector<std::vector<char>>;

// What it leaves behind where `run` has run it.
class Run {
 public:
  Run(const Operation& operation, std::string* problem)
      : operation_(operation), problem_(*problem) {}

  Bits Of(const std::function<void()>& run) {
    Wait();
    for (const Memory* result : operation_.results) result->Poison();
    run();
    Wait();
    Bits bits;
    for (const Memory* result : operation_.results) {
      bits.push_back(result->Bytes());
    }
    return bits;
  }
  void On(void* stream) { Keep(operation_.enqueue(stream)); }
  void Load() {
    const cuda::LoadingOnly loading_only;
    Keep(operation_.enqueue(nullptr));
  }

 private:
  void Keep(const std::string& text) {
    if (!text.empty()) problem_ = text;
  }
  const Operation& operation_;
  std::string& problem_;
};

struct Case {
  std::string name;
  std::function<void()> run;
};

// Ways to run operation `k` of all; the first run is on streams[0].
std::vector<Case> CasesOf(const Operations& operations, size_t k, Run& run,
                          const std::vector<void*>& streams) {
  const Operation& other = operations.all[(k + 1) % operations.all.size()];
  return {
      {"again", [&run, streams] { run.On(streams[0]); }},
      {"another stream", [&run, streams] { run.On(streams[1]); }},
      {"after other work",
       [&run, &other, streams] {
         other.enqueue(streams[0]);
         run.On(streams[0]);
       }},
      {"beside other work",
       [&run, &other, streams] {
         other.enqueue(streams[2]);
         run.On(streams[1]);
         other.enqueue(streams[2]);
       }},
      {"graph",
       [&run, streams] {
         Replay(
             streams[0], [&run, streams] { run.On(streams[0]); }, 2);
       }},
  };
}

// No operation writes what the next one reads, so any two may run at once.
std::string Check(const Operations& operations, size_t k, const char* type,
                  const std::string& shape, const std::vector<void*>& streams) {
  const Operation& operation = operations.all[k];
  std::string problem, different;
  Run run(operation, &problem);
  run.Load();
  const Bits first = run.Of([&] { run.On(streams[0]); });
  int equal = 0;
  const std::vector<Case> cases = CasesOf(operations, k, run, streams);
  for (const Case& one : cases) {
    if (run.Of(one.run) == first) {
      ++equal;
    } else {
      different += (different.empty() ? "" : ", ") + one.name;
    }
  }
  return "{\"kernel\": " + Quoted(operation.name) +
         ", \"maker\": " + Quoted(operation.maker) +
         ", \"type\": " + Quoted(type) + ", \"shape\": " + Quoted(shape) +
         ", \"equal\": " + std::to_string(equal) +
         ", \"cases\": " + std::to_string(cases.size()) +
         ", \"different\": " + Quoted(different) +
         ", \"problem\": " + Quoted(problem) + "}";
}

int Main(int count, char** arguments) {
  const Options options = TakeOptions(&count, arguments);
  const std::string problem =
      options.problem.empty() ? Missing() : options.problem;
  if (!problem.empty() || count > 1) {
    std::fprintf(stderr, "bits_check: %s\n",
                 problem.empty() ? arguments[1] : problem.c_str());
    return 1;
  }
  const std::string no_library = UseLibrary(options);
  std::vector<void*> streams;
  for (int k = 0; k < kStreams; ++k) streams.push_back(NewStream());
  std::string rows;
  for (const DenseShape& shape : options.shapes) {
    for (const Type type : options.types) {
      const Operations operations = MakeOperations(shape, type);
      for (size_t k = 0; k < operations.all.size(); ++k) {
        rows += (rows.empty() ? "\n " : ",\n ") +
                Check(operations, k, NameOf(type), NameOf(shape), streams);
      }
    }
  }
  return Write(options, "{\"device\": " + DescriptionAsJson() +
                            ",\n\"cublasLt\": " + Quoted(no_library) +
                            ",\n\"rows\": [" + rows + "]}\n");
}

}  // namespace
}  // namespace bk::bench

int main(int count, char** arguments) {
  return bk::bench::Main(count, arguments);
}
