#include "custom_calls/cpu/conv/conv_grad.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/live.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

// Sizes of blocks; see conv_kernels.h for the limits.
struct BlockSizes {
  int64_t kernel_rows;
  int64_t kernel_columns;
  int64_t in_channels;
  int64_t out_channels;
};

int64_t KernelRows(const ConvShape& s) { return s.kernel[0] * s.kernel[1]; }

int64_t BlockCount(const ConvShape& s, const BlockSizes& sizes) {
  return s.groups * CeilDiv(KernelRows(s), sizes.kernel_rows) *
         CeilDiv(s.kernel[2], sizes.kernel_columns) *
         CeilDiv(s.cin, sizes.in_channels) *
         CeilDiv(s.cout, sizes.out_channels);
}

// As large as the limits allow, because every block packs its operands again;
// smaller, output channels first, where there would be too few.
BlockSizes ChooseSizes(const ConvShape& s, int64_t lanes, int64_t wanted) {
  static_assert(kConvColumns % 8 == 0);
  BlockSizes sizes = {KernelRows(s), 0, 0, 0};
  sizes.kernel_columns = std::min({s.kernel[2], kConvKernelColumns,
                                   1 + (kConvKernelSpan - 1) / s.dilation[2]});
  const int64_t offsets =
      std::min(KernelRows(s) * sizes.kernel_columns, kConvRows / lanes);
  sizes.in_channels =
      EvenPart(s.cin, kConvRows / offsets / lanes * lanes, lanes);
  sizes.out_channels = EvenPart(s.cout, kConvColumns, 8);
  while (BlockCount(s, sizes) < wanted && sizes.out_channels > 16) {
    sizes.out_channels = PadTo(sizes.out_channels / 2, 8);
  }
  while (BlockCount(s, sizes) < wanted && sizes.in_channels > lanes) {
    sizes.in_channels = PadTo(sizes.in_channels / 2, lanes);
  }
  const int64_t row = sizes.kernel_columns * std::min(sizes.in_channels, s.cin);
  // One pixel at least must fit the packed image.
  const int64_t span = (sizes.kernel_columns - 1) * s.dilation[2] + 1;
  const int64_t pixel = PadTo(sizes.in_channels, lanes) * span;
  sizes.kernel_rows = std::clamp<int64_t>(
      std::min(kConvRows / row, kConvImage / pixel), 1, KernelRows(s));
  return sizes;
}

// Pixels of one block: as many columns of a row as fit, then rows.
void ChoosePixels(const ConvShape& s, int64_t lanes, ConvBlock* b) {
  const int64_t depth = (b->q1 - b->q0) * PadTo(b->c1 - b->c0, lanes);
  const int64_t room = std::max<int64_t>(kConvImage / depth, 1);
  const int64_t span = (b->kw1 - b->kw0 - 1) * s.dilation[2] + 1;
  b->pixel_columns = std::clamp<int64_t>((room - span) / s.stride[2] + 1, 1,
                                         EvenPart(s.out[2], kConvPixels, 1));
  const int64_t width = (b->pixel_columns - 1) * s.stride[2] + span;
  b->pixel_rows = std::clamp<int64_t>(
      std::min(kConvPixels / b->pixel_columns, room / width), 1,
      std::max<int64_t>(s.images * s.out[0] * s.out[1], 1));
}

// One channel in, one out, for each of several groups.
bool IsDepthwise(const ConvShape& s) {
  return s.groups > 1 && s.cin == 1 && s.cout == 1 && s.kernel[2] <= kConvRows;
}

// Blocks of channels and all kernel columns, for as many kernel rows as fit.
std::vector<ConvBlock> DepthwiseBlocks(const ConvShape& s, int64_t lanes) {
  const int64_t channels = kDepthwiseVectors * lanes;
  const int64_t rows = kConvRows / s.kernel[2];
  const int64_t columns = EvenPart(s.out[2], kConvPixels, 1);
  std::vector<ConvBlock> blocks;
  for (int64_t q = 0; q < KernelRows(s); q += rows) {
    for (int64_t c = 0; c < s.groups; c += channels) {
      blocks.push_back({.group = c,
                        .q0 = q,
                        .q1 = std::min(q + rows, KernelRows(s)),
                        .kw0 = 0,
                        .kw1 = s.kernel[2],
                        .c0 = 0,
                        .c1 = 1,
                        .o0 = 0,
                        .o1 = std::min(channels, s.groups - c),
                        .pixel_rows = kConvPixels / columns,
                        .pixel_columns = columns});
    }
  }
  return blocks;
}

// The body that makes blocks of this convolution.
template <class T>
auto BlockBody(const CpuKernels& kernels, const ConvShape& shape) {
  const ConvKernels<T>& conv = KernelsFor<T>(kernels).conv;
  return IsDepthwise(shape) ? conv.depthwise : conv.block;
}

int64_t KernelSize(const ConvShape& s) {
  return KernelRows(s) * s.kernel[2] * s.cin * s.groups * s.cout;
}

double BlockFlops(const ConvShape& s, int64_t blocks) {
  return 2.0 * static_cast<double>(s.images * s.out[0] * s.out[1] * s.out[2]) *
         static_cast<double>(KernelSize(s)) / static_cast<double>(blocks);
}

// gamma such that the computed gradient errs by at most gamma S in norm, S^2 =
// sum over kernel offsets of (sum over blocks of pixels of |x| |g|)^2.
//
// An entry of the gradient at one offset is a sum over blocks of pixels; in one
// block it errs by at most gamma_c sum_t |x_t| |g_t|, c roundings in the
// accumulator type: the product and at most kConvPixels sums. As a matrix over
// channels, this is at most gamma_c |x|_F |g|_F (Cauchy-Schwarz over pixels).
// Gradual underflow adds at most pixels 2^-150 to an entry, covered by one more
// u because the lengths of blocks count with 2^-126 for each element
// (PackedLength). The rest is double; 2 % cover it, gamma_c - c u, and the
// rounding of S, whose squares are sums of at most kConvPixels * kConvColumns /
// lanes elements.
//
// Depthwise: S^2 = sum over offsets and channels of |x_c|^2 |g_c|^2 over all
// pixels of a channel. An offset meets at most as many pixels as the smaller of
// image and output gradient has, so underflow is covered as above.
template <class Acc>
double RelativeError(const ConvShape& s, const std::vector<ConvBlock>& blocks) {
  int64_t pixels = 0;
  for (const ConvBlock& b : blocks) {
    pixels = std::max(pixels, b.pixel_rows * b.pixel_columns);
  }
  const int64_t wide =
      s.images * s.out[0] * s.out[1] * s.out[2] + 16;  // blocks, generously
  return 1.02 * (static_cast<double>(pixels + 2) * kUnitRoundoff<Acc> +
                 static_cast<double>(wide) * kUnitRoundoff<double>);
}

// Runs all blocks of all examples; `grad` may be null.
template <class T>
std::vector<ConvPartial> RunBlocks(const CpuKernels& kernels,
                                   Parallel& parallel, const ConvShape& shape,
                                   const std::vector<ConvBlock>& blocks,
                                   const T* x, const T* g,
                                   Accumulator<T>* grad) {
  using Acc = Accumulator<T>;
  const auto count = static_cast<int64_t>(blocks.size());
  std::vector<ConvPartial> partials(shape.batch * count);
  parallel.For(
      shape.batch * count, BlockFlops(shape, count),
      [&](int64_t begin, int64_t end) {
        const ScopedFloatEnvironment environment;
        auto* sums = ThreadScratchOf<double>(
            ConvScratchBytes<T>() / static_cast<int64_t>(sizeof(double)));
        auto* scratch = reinterpret_cast<Acc*>(sums + kConvRows * kConvColumns);
        for (int64_t item = begin; item < end; ++item) {
          const int64_t i = item / count;
          const LiveExample<Acc> example = {i, 1};
          Acc* out = grad == nullptr ? nullptr : grad + i * KernelSize(shape);
          partials[item] = BlockBody<T>(kernels, shape)(
              {shape, blocks[item % count], x, g, &example, 1, out}, sums,
              scratch);
        }
      });
  return partials;
}

template <class T>
void Norms(const CpuKernels& kernels, Parallel& parallel,
           const ConvShape& shape, const T* x, const T* g, Accumulator<T>* grad,
           Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  using Acc = Accumulator<T>;
  if (IsEmpty(shape)) {
    std::fill_n(sq_norm, shape.batch, Acc{0});
    std::fill_n(sq_norm_upper, shape.batch, Acc{0});
    if (grad != nullptr) {
      std::fill_n(grad, shape.batch * KernelSize(shape), Acc{0});
    }
    return;
  }
  const int64_t lanes = LanesOf<Acc>(kernels);
  const std::vector<ConvBlock> blocks = ConvBlocks(shape, lanes, 1);
  const std::vector<ConvPartial> partials =
      RunBlocks(kernels, parallel, shape, blocks, x, g, grad);
  const ScopedFloatEnvironment environment;
  const double gamma = grad == nullptr ? RelativeError<Acc>(shape, blocks) : 0;
  const auto roundings = static_cast<double>(
      kConvRows + kConvColumns + static_cast<int64_t>(blocks.size()) + 8);
  const ConvPartial* partial = partials.data();
  for (int64_t i = 0; i < shape.batch; ++i) {
    ConvPartial sum = {0, 0, sizeof(Acc) < sizeof(double)};
    for (size_t k = 0; k < blocks.size(); ++k, ++partial) {
      sum.squares += partial->squares;
      sum.bound += partial->bound;
      sum.zero = sum.zero && partial->zero;
    }
    const double error = gamma == 0 ? 0 : gamma * std::sqrt(sum.bound);
    StoreCertified<Acc>({sum.squares, error, roundings, sum.zero}, sq_norm + i,
                        sq_norm_upper + i);
  }
}

}  // namespace

bool IsEmpty(const ConvShape& s) {
  return AnyZero({s.images, s.out[0], s.out[1], s.out[2], s.kernel[0],
                  s.kernel[1], s.kernel[2], s.groups, s.cin, s.cout});
}

std::vector<ConvBlock> ConvBlocks(const ConvShape& s, int64_t lanes,
                                  int64_t wanted) {
  if (IsDepthwise(s)) return DepthwiseBlocks(s, lanes);
  const BlockSizes sizes = ChooseSizes(s, lanes, wanted);
  std::vector<ConvBlock> blocks;
  for (int64_t group = 0; group < s.groups; ++group) {
    for (int64_t q = 0; q < KernelRows(s); q += sizes.kernel_rows) {
      for (int64_t kw = 0; kw < s.kernel[2]; kw += sizes.kernel_columns) {
        for (int64_t c = 0; c < s.cin; c += sizes.in_channels) {
          for (int64_t o = 0; o < s.cout; o += sizes.out_channels) {
            ConvBlock b = {
                .group = group,
                .q0 = q,
                .q1 = std::min(q + sizes.kernel_rows, KernelRows(s)),
                .kw0 = kw,
                .kw1 = std::min(kw + sizes.kernel_columns, s.kernel[2]),
                .c0 = c,
                .c1 = std::min(c + sizes.in_channels, s.cin),
                .o0 = o,
                .o1 = std::min(o + sizes.out_channels, s.cout),
                .pixel_rows = 0,
                .pixel_columns = 0};
            ChoosePixels(s, lanes, &b);
            blocks.push_back(b);
          }
        }
      }
    }
  }
  return blocks;
}

template <class T>
int64_t ConvScratchBytes() {
  return kConvRows * kConvColumns * static_cast<int64_t>(sizeof(double)) +
         (kConvImage + kConvGradient) *
             static_cast<int64_t>(sizeof(Accumulator<T>));
}

template <class T>
void ConvNorm(const CpuKernels& kernels, Parallel& parallel,
              const ConvShape& shape, const T* x, const T* g,
              Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  Norms<T>(kernels, parallel, shape, x, g, nullptr, sq_norm, sq_norm_upper);
}

template <class T>
void ConvGrad(const CpuKernels& kernels, Parallel& parallel,
              const ConvShape& shape, const T* x, const T* g,
              Accumulator<T>* grad, Accumulator<T>* sq_norm,
              Accumulator<T>* sq_norm_upper) {
  Norms<T>(kernels, parallel, shape, x, g, grad, sq_norm, sq_norm_upper);
}

template <class T>
void ConvSum(const CpuKernels& kernels, Parallel& parallel,
             const ConvShape& shape, const T* x, const Accumulator<T>* factor,
             const T* g, Accumulator<T>* sum) {
  using Acc = Accumulator<T>;
  const std::vector<LiveExample<Acc>> live = FindLive(shape.batch, factor);
  const auto live_count = static_cast<int64_t>(live.size());
  if (live_count == 0 || IsEmpty(shape)) {
    std::fill_n(sum, KernelSize(shape), Acc{0});
    return;
  }
  // Enough for four threads; more would pack the operands more often.
  constexpr int64_t kSumBlocks = 4;
  const int64_t lanes = LanesOf<Acc>(kernels);
  const std::vector<ConvBlock> blocks = ConvBlocks(shape, lanes, kSumBlocks);
  const auto count = static_cast<int64_t>(blocks.size());
  const double flops =
      static_cast<double>(live_count) * BlockFlops(shape, count);
  parallel.For(count, flops, [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    auto* sums = ThreadScratchOf<double>(ConvScratchBytes<T>() /
                                         static_cast<int64_t>(sizeof(double)));
    auto* scratch = reinterpret_cast<Acc*>(sums + kConvRows * kConvColumns);
    for (int64_t item = begin; item < end; ++item) {
      BlockBody<T>(kernels, shape)(
          {shape, blocks[item], x, g, live.data(), live_count, sum}, sums,
          scratch);
    }
  });
}

#define BK_INSTANTIATE(T)                                                      \
  template int64_t ConvScratchBytes<T>();                                      \
  template void ConvNorm(const CpuKernels&, Parallel&, const ConvShape&,       \
                         const T*, const T*, Accumulator<T>*,                  \
                         Accumulator<T>*);                                     \
  template void ConvGrad(const CpuKernels&, Parallel&, const ConvShape&,       \
                         const T*, const T*, Accumulator<T>*, Accumulator<T>*, \
                         Accumulator<T>*);                                     \
  template void ConvSum(const CpuKernels&, Parallel&, const ConvShape&,        \
                        const T*, const Accumulator<T>*, const T*,             \
                        Accumulator<T>*)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk
