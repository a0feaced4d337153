#include "custom_calls/cuda/cublas/library.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>

namespace bk::cuda {
namespace {

std::string LibraryName() {
  return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
}

// JAX's plugin has loaded one in most processes that use a GPU: then that.
void* Open(const CublasSearch& search) {
  const std::string name = LibraryName();
  void* found = nullptr;
  if (search.by_name) {
    found = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (found == nullptr) found = dlopen(name.c_str(), RTLD_LAZY);
  }
  for (const std::string& folder : search.folders) {
    if (found != nullptr) break;
    found = dlopen((folder + "/" + name).c_str(), RTLD_LAZY);
  }
  return found;
}

std::string NotFound(const CublasSearch& search) {
  std::string text = LibraryName() + " was not found";
  const char* between = " in ";
  for (const std::string& folder : search.folders) {
    text += between + folder;
    between = ", ";
  }
  return text + ": install nvidia-cublas";
}

// The name of a function that the library lacks, or an empty one.
std::string ReadFunctions(void* library, CublasLt* functions) {
#define BK_READ(function)                                                 \
  functions->function =                                                   \
      reinterpret_cast<decltype(&::function)>(dlsym(library, #function)); \
  if (functions->function == nullptr) return #function;
  BK_CUBLAS_FUNCTIONS(BK_READ)
#undef BK_READ
  return "";
}

std::atomic<const CublasLt*> in_use = nullptr;

}  // namespace

FoundCublas FindCublas(const CublasSearch& search) {
  void* library = Open(search);
  if (library == nullptr) return {nullptr, NotFound(search)};
  auto functions = std::make_unique<CublasLt>();
  const std::string missing = ReadFunctions(library, functions.get());
  if (!missing.empty()) return {nullptr, LibraryName() + " lacks " + missing};
  const auto version = static_cast<int>(functions->cublasLtGetVersion());
  if (version / 10000 != CUBLAS_VER_MAJOR) {
    return {nullptr, LibraryName() + " says that it is version " +
                         std::to_string(version) + ", and this build needs " +
                         std::to_string(CUBLAS_VER_MAJOR) + "xxxx"};
  }
  return {functions.release(), ""};
}

void UseCublas(const CublasLt* functions) { in_use = functions; }
const CublasLt* CublasInUse() { return in_use; }

}  // namespace bk::cuda
