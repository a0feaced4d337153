// Kernels that are not of dense layers, with sizes taken from one: T tokens of
// a table of d rows and p columns, an image of T pixels.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/gpu/device/maker.h"
#include "custom_calls/cuda/clipped_scatter.h"
#include "custom_calls/cuda/conv_grad.h"
#include "custom_calls/cuda/embedding_norm.h"
#include "custom_calls/cuda/tied_cross.h"
#include "custom_calls/cuda/weighted_sum.h"

namespace bk::bench {
namespace {

// Channels of a convolution, at most: a kernel of 3 x 3 has nine times as many
// weights as a dense layer.
constexpr int64_t kMaxChannels = 256;
constexpr int64_t kSmallestImage = 3;

template <class T>
class Others {
 public:
  Others(const DenseShape& shape, Maker<T>& maker) : s_(shape), make_(maker) {
    std::mt19937 random(7);
    std::uniform_int_distribution<int32_t> row(0,
                                               static_cast<int32_t>(s_.d) - 1);
    std::vector<int32_t> ids(Tokens());
    for (int32_t& id : ids) id = row(random);
    ids_ = make_.Of(ids, "ids");
    g_ = make_.Filled(Tokens() * s_.p, "g");
    factor_ = make_.Of(std::vector<float>(s_.batch, 0.5f), "factor");
  }

  void AddAll() {
    AddEmbeddingNorm();
    AddScatter();
    AddTiedCross();
    const auto side =
        static_cast<int64_t>(std::sqrt(static_cast<double>(s_.positions)));
    if (side >= kSmallestImage) AddConvolution(side);
  }

 private:
  int64_t Tokens() const { return s_.batch * s_.positions; }
  double GradBytes() const {
    return static_cast<double>(Tokens() * s_.p) * sizeof(T);
  }
  double TokenFlops() const { return static_cast<double>(Tokens() * s_.p); }
  LookupShape Lookup() const { return {s_.batch, s_.positions, s_.p, s_.d}; }
  template <class Element>
  const Memory* New(int64_t size, const std::string& name) {
    return make_.template New<Element>(size, name);
  }

  void AddEmbeddingNorm() {
    const LookupShape shape = Lookup();
    const Memory* workspace =
        New<char>(cuda::EmbeddingNormWorkspaceBytes(shape), "workspace");
    const Memory* norm = New<float>(s_.batch, "sq_norm");
    const Memory* upper = New<float>(s_.batch, "sq_norm_upper");
    make_.Add({"embedding_norm",
               "ours",
               2 * TokenFlops(),
               GradBytes(),
               [=, ids = ids_->As<int32_t>(), g = g_->As<T>()](void* stream) {
                 return Text(cuda::EmbeddingNorm<T>(
                     shape, ids, g, norm->As<float>(), upper->As<float>(),
                     workspace->As<void>(), static_cast<cudaStream_t>(stream)));
               },
               {norm, upper}});
  }

  // The sum is added to, so it is made 0 first: a sum over no examples.
  void AddScatter() {
    const LookupShape shape = Lookup();
    const Memory* workspace =
        New<char>(cuda::ClippedScatterWorkspaceBytes(shape), "workspace");
    const Memory* sum = New<float>(s_.d * s_.p, "sum");
    const WeightedSumShape zeros = {0, s_.d * s_.p};
    make_.Add(
        {"clipped_scatter",
         "ours",
         2 * TokenFlops(),
         GradBytes() + 3 * static_cast<double>(s_.d * s_.p) * sizeof(float),
         [=, ids = ids_->As<int32_t>(), g = g_->As<T>(),
          factor = factor_->As<float>()](void* stream) -> std::string {
           const auto on = static_cast<cudaStream_t>(stream);
           const std::string text = Text(cuda::WeightedSum<float>(
               zeros, factor, factor, sum->As<float>(), on));
           if (!text.empty()) return text;
           return Text(cuda::ClippedScatter<T>(shape, ids, factor, g,
                                               sum->As<float>(),
                                               workspace->As<void>(), on));
         },
         {sum}});
  }

  // T tokens that are looked up and T that are multiplied by.
  void AddTiedCross() {
    const TiedCrossShape shape = {s_.batch, s_.positions, s_.d, s_.positions,
                                  s_.p};
    const Memory* left = make_.Filled(Tokens() * s_.d, "left");
    const Memory* right = make_.Filled(Tokens() * s_.p, "right");
    const Memory* workspace =
        New<char>(cuda::TiedCrossWorkspaceBytes(shape), "workspace");
    const Memory* cross = New<float>(s_.batch, "cross");
    const Memory* upper = New<float>(s_.batch, "cross_upper");
    const double flops = 2 * TokenFlops() * static_cast<double>(s_.positions);
    make_.Add({"tied_cross",
               "ours",
               flops,
               2 * GradBytes(),
               [=, ids = ids_->As<int32_t>(), g = g_->As<T>()](void* stream) {
                 return Text(cuda::TiedCross<T>(
                     shape, left->As<T>(), right->As<T>(), ids, g,
                     cross->As<float>(), upper->As<float>(),
                     workspace->As<void>(), static_cast<cudaStream_t>(stream)));
               },
               {cross, upper}});
    make_.AddProduct("tied_cross", flops,
                     {s_.batch, s_.p, s_.positions, s_.positions});
  }

  // 3 x 3, as large as the image, without dilation.
  static ConvShape Convolution(int64_t batch, int64_t side, int64_t cin,
                               int64_t cout) {
    return {batch,     1,         {1, side, side}, {1, side, side}, {1, 3, 3},
            {1, 1, 1}, {0, 1, 1}, {1, 1, 1},       {1, 1, 1},       1,
            cin,       cout};
  }

  void AddConvolution(int64_t side) {
    const int64_t cin = std::min(s_.d, kMaxChannels);
    const int64_t cout = std::min(s_.p, kMaxChannels);
    const ConvShape shape = Convolution(s_.batch, side, cin, cout);
    const int64_t pixels = s_.batch * side * side;
    const Memory* x = make_.Filled(pixels * cin, "x");
    const Memory* g = make_.Filled(pixels * cout, "g");
    const double flops =
        18 * static_cast<double>(pixels) * static_cast<double>(cin * cout);
    const double bytes = static_cast<double>(pixels * (cin + cout)) * sizeof(T);
    AddConvNorm(shape, x, g, flops, bytes);
    AddConvSum(shape, x, g, flops, bytes);
    for (const char* name : {"conv_norm", "conv_sum"}) {
      make_.AddProduct(name, flops, {1, pixels, 9 * cin, cout});
    }
  }

  void AddConvNorm(const ConvShape& shape, const Memory* x, const Memory* g,
                   double flops, double bytes) {
    const Memory* workspace =
        New<char>(cuda::ConvNormWorkspaceBytes(shape), "workspace");
    const Memory* norm = New<float>(s_.batch, "sq_norm");
    const Memory* upper = New<float>(s_.batch, "sq_norm_upper");
    make_.Add({"conv_norm",
               "ours",
               flops,
               bytes,
               [=](void* stream) {
                 return Text(cuda::ConvNorm<T>(
                     shape, x->As<T>(), g->As<T>(), norm->As<float>(),
                     upper->As<float>(), workspace->As<void>(),
                     static_cast<cudaStream_t>(stream)));
               },
               {norm, upper}});
  }

  void AddConvSum(const ConvShape& shape, const Memory* x, const Memory* g,
                  double flops, double bytes) {
    const Memory* workspace =
        New<char>(cuda::ConvSumWorkspaceBytes(shape), "workspace");
    const Memory* sum = New<float>(9 * shape.cin * shape.cout, "sum");
    make_.Add({"conv_sum",
               "ours",
               flops,
               bytes,
               [=, factor = factor_->As<float>()](void* stream) {
                 return Text(cuda::ConvSum<T>(
                     shape, x->As<T>(), factor, g->As<T>(), sum->As<float>(),
                     workspace->As<void>(), static_cast<cudaStream_t>(stream)));
               },
               {sum}});
  }

  DenseShape s_;
  Maker<T>& make_;
  const Memory* ids_ = nullptr;
  const Memory* g_ = nullptr;
  const Memory* factor_ = nullptr;
};

}  // namespace

template <class T>
void AddOthers(const DenseShape& shape, Maker<T>& maker) {
  Others<T>(shape, maker).AddAll();
}

template void AddOthers(const DenseShape&, Maker<float>&);
template void AddOthers(const DenseShape&, Maker<BFloat16>&);
template void AddOthers(const DenseShape&, Maker<Float16>&);

}  // namespace bk::bench
