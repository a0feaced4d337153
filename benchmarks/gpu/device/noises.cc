// Noise for as many numbers as a layer has weights: added to one array, from
// several keys, and to many arrays of a share of that size.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "benchmarks/gpu/device/maker.h"
#include "custom_calls/cuda/banded_gaussian.h"
#include "custom_calls/cuda/gaussian.h"
#include "custom_calls/cuda/gaussians.h"

namespace bk::bench {
namespace {

constexpr int64_t kBands = 8;
constexpr int64_t kArrays = 64;  // biases and scales of a model
constexpr cuda::NoiseName kName = {1, kNoiseDomain};

template <class T>
class Noises {
 public:
  Noises(const DenseShape& shape, Maker<T>& maker)
      : size_(shape.d * shape.p),
        make_(maker),
        x_(make_.Filled(size_, "x")),
        keys_(make_.Of(std::vector<uint32_t>(kBands * kKeyWords, 3), "keys")),
        stddevs_(make_.Of(std::vector<float>(kBands, 0.5f), "stddevs")),
        start_(make_.Of(std::vector<int32_t>{0}, "start")) {}

  void AddAll() {
    AddOne();
    if constexpr (std::is_same_v<T, float>) {
      AddBanded();
      AddMany();
    }
  }

 private:
  // To be read once and written once.
  double Bytes() const { return 2 * static_cast<double>(size_) * sizeof(T); }
  cuda::NoiseBlock Block() const { return {1, {size_}, {size_}}; }

  void AddOne() {
    const Memory* out = make_.template New<T>(size_, "out");
    make_.Add({"gaussian",
               "ours",
               static_cast<double>(size_),
               Bytes(),
               [block = Block(), x = x_->As<T>(), key = keys_->As<uint32_t>(),
                stddev = stddevs_->As<float>(), start = start_->As<int32_t>(),
                out](void* stream) {
                 return Text(cuda::Gaussian<T>(
                     block, kName, x, key, stddev, start, out->As<T>(),
                     static_cast<cudaStream_t>(stream)));
               },
               {out}});
  }

  void AddBanded() {
    const Memory* out = make_.template New<T>(size_, "out");
    make_.Add({"banded_gaussian",
               "ours",
               static_cast<double>(size_ * kBands),
               Bytes(),
               [block = Block(), x = x_->As<T>(), keys = keys_->As<uint32_t>(),
                stddevs = stddevs_->As<T>(), start = start_->As<int32_t>(),
                out](void* stream) {
                 return Text(cuda::BandedGaussian<T>(
                     block, kName, x, keys, stddevs, kBands, start,
                     out->As<T>(), static_cast<cudaStream_t>(stream)));
               },
               {out}});
  }

  // Pieces of x, as equal as they can be: short ones too, or empty.
  void AddMany() {
    const Memory* out = make_.template New<T>(size_, "out");
    std::vector<NoiseArray> arrays;
    for (int64_t k = 0; k < kArrays; ++k) {
      const int64_t begin = size_ * k / kArrays;
      arrays.push_back({static_cast<uint32_t>(k),
                        size_ * (k + 1) / kArrays - begin, x_->As<T>() + begin,
                        out->As<T>() + begin});
    }
    make_.Add({"gaussians",
               "ours",
               static_cast<double>(size_),
               Bytes(),
               [arrays, key = keys_->As<uint32_t>(),
                stddev = stddevs_->As<float>()](void* stream) {
                 return Text(
                     cuda::Gaussians(static_cast<int64_t>(arrays.size()),
                                     arrays.data(), kNoiseDomain, key, stddev,
                                     static_cast<cudaStream_t>(stream)));
               },
               {out}});
  }

  int64_t size_;
  Maker<T>& make_;
  const Memory* x_;
  const Memory* keys_;
  const Memory* stddevs_;
  const Memory* start_;
};

}  // namespace

template <class T>
void AddNoises(const DenseShape& shape, Maker<T>& maker) {
  Noises<T>(shape, maker).AddAll();
}

template void AddNoises(const DenseShape&, Maker<float>&);
template void AddNoises(const DenseShape&, Maker<BFloat16>&);
template void AddNoises(const DenseShape&, Maker<Float16>&);

}  // namespace bk::bench
