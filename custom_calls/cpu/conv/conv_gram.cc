// The Gram matrix of patches has entry (t, s) = sum over kernel offsets k of
// P[t + k, s + k], P the Gram matrix of pixels, for stride 1. So a pair of
// output lines (R, S) needs the blocks P[R + k, S + k] of pairs of pixel lines,
// the next pair (R + 1, S + 1) the same but one. A task walks along a diagonal:
// for lines a distance S - R apart it makes each block of P once and keeps as
// many as the kernel has lines. Nothing is made twice and little is kept.
//
// Stride: pixel t * stride + k * dilation is pixel t + k * dilation / stride of
// phase k * dilation % stride. Each phase is an image with stride 1.
#include "custom_calls/cpu/conv/conv_gram.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "custom_calls/cpu/conv/conv_grad.h"
#include "custom_calls/cpu/dense/gram_norm.h"
#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/norm_bound.h"
#include "custom_calls/cpu/scratch.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {
namespace {

int64_t Largest(const ConvShape& s, int axis) {
  return (s.kernel[axis] - 1) * s.dilation[axis] / s.stride[axis];
}

// Kernel offsets, and the phases that they meet.
void AddOffsets(const ConvShape& s, GramLayout* layout) {
  std::map<std::array<int64_t, 3>, int64_t> known;
  for (int64_t d = 0; d < s.kernel[0]; ++d) {
    for (int64_t h = 0; h < s.kernel[1]; ++h) {
      for (int64_t w = 0; w < s.kernel[2]; ++w) {
        const std::array<int64_t, 3> at = {d * s.dilation[0], h * s.dilation[1],
                                           w * s.dilation[2]};
        const std::array<int64_t, 3> phase = {
            at[0] % s.stride[0], at[1] % s.stride[1], at[2] % s.stride[2]};
        const auto count = static_cast<int64_t>(known.size());
        const auto [entry, is_new] = known.emplace(phase, count);
        if (is_new) layout->phases.push_back({{phase[0], phase[1], phase[2]}});
        layout->offsets.push_back(
            {entry->second,
             at[0] / s.stride[0] * layout->plan.height + at[1] / s.stride[1],
             at[2] / s.stride[2]});
      }
    }
  }
}

// The widest tile of which all blocks of one distance fit, then as many
// distances as fit: a line is read once for all of them.
void ChooseTile(const ConvShape& s, int64_t lanes, GramPlan* plan) {
  plan->tile = 0;
  if (plan->span >= kLinePixels) return;
  for (int64_t limit = std::min(kLinePixels - plan->span, s.out[2]); limit > 0;
       limit /= 2) {
    const int64_t tile = EvenPart(s.out[2], limit, 1);
    const int64_t stride = CeilDiv(tile, lanes) * lanes + plan->span;
    const int64_t blocks =
        plan->window * plan->phase_count * (tile + plan->span) * stride;
    if (blocks > kLineBlocks) continue;
    plan->tile = tile;
    plan->stride = stride;
    plan->deltas = std::min(kLineDeltas, kLineBlocks / blocks);
    return;
  }
}

// Pairs of tiles, and distances, of one group of one example.
struct Tasks {
  int64_t tiles, delta_blocks;
  int64_t Count() const { return tiles * tiles * delta_blocks; }
};

Tasks CountTasks(const ConvShape& s, const GramPlan& plan) {
  const int64_t distances = plan.lines - plan.window + 1;
  return {CeilDiv(s.out[2], plan.tile), CeilDiv(distances, plan.deltas)};
}

int64_t Pixels(const int64_t (&size)[3]) { return size[0] * size[1] * size[2]; }

// Elements of one example.
int64_t ImageSize(const ConvShape& s) {
  return s.images * Pixels(s.in) * s.groups * s.cin;
}

int64_t GradientSize(const ConvShape& s) {
  return s.images * Pixels(s.out) * s.groups * s.cout;
}

// Roundings in the accumulator type on the way of a product to an entry of a
// Gram matrix of pixels: as in a Gram matrix, and the sum over depth blocks.
int64_t EntryRoundings(int64_t width, int64_t lanes) {
  return GramRoundings(width, kLineDepth, lanes) + CeilDiv(width, kLineDepth) -
         1;
}

// kappa * u such that |computed - exact| <= kappa u S^2 for one group, where
// S = sum_t A_t G_t with A_t >= |patch_t|, G_t >= |g_t|. Derivation, as in
// ghost_norm.cc:
//
// 1. A computed <x_u, x_v> errs by at most gamma_c |x_u| |x_v|, c roundings,
// plus
//    cin 2^-150 for gradual underflow. The sum over kernel offsets is made in
//    double, so <patch_t, patch_s> errs by gamma_c |patch_t| |patch_s|
//    (Cauchy-Schwarz over offsets) + d 2^-150, d = offsets * cin, and by
//    offsets 2^-53 of its terms. A_t^2 >= d 2^-126 for every t, hence the
//    second term is <= u A_t A_s.
// 2. <g_t, g_s> likewise; a zero row has only zero entries and G_t = 0.
// 3. A product of both errs by (gamma_ca + gamma_cg + 2u + higher order) A_t
//    A_s G_t G_s. The sum over all (t, s) of A_t G_t A_s G_s is S^2.
// 4. Sums in double: over offsets, over a tile (a lane adds one vector for each
//    row and column), over lanes, over lines, over tasks.
// 5. A_t and G_t are made from computed diagonals, below the exact ones by at
//    most gamma_c relatively; c u < 1e-4. This, higher order terms and gamma_c
//    - c u are less than 0.1 %; 2 % are added.
template <class Acc>
double RelativeError(const ConvShape& s, const GramPlan& plan, int64_t lanes) {
  const auto entries = static_cast<double>(EntryRoundings(s.cin, lanes) +
                                           EntryRoundings(s.cout, lanes) + 2);
  const auto sums = static_cast<double>(
      plan.offset_count + plan.tile * plan.tile + 2 * plan.lines * plan.deltas +
      CountTasks(s, plan).Count() + s.groups + 32);
  return 1.02 * (entries * kUnitRoundoff<Acc> + sums * kUnitRoundoff<double>);
}

// Runs over (example, group, pair of tiles, distances).
template <class T>
std::vector<GramPartial> RunTasks(const CpuKernels& kernels, Parallel& parallel,
                                  const ConvShape& s, const GramPlan& plan,
                                  const T* x, const T* g) {
  const Tasks tasks = CountTasks(s, plan);
  const int64_t count = tasks.Count();
  const int64_t x_size = ImageSize(s);
  const int64_t g_size = GradientSize(s);
  const double positions = static_cast<double>(s.images * Pixels(s.out));
  const double flops = positions * positions *
                       static_cast<double>(s.cin + s.cout) /
                       static_cast<double>(count);
  std::vector<GramPartial> partials(s.batch * s.groups * count);
  const auto body = [&](int64_t begin, int64_t end) {
    const ScopedFloatEnvironment environment;
    auto* scratch = ThreadScratchOf<Accumulator<T>>(kLineScratch);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t i = item / count / s.groups;
      const int64_t group = item / count % s.groups;
      const int64_t delta0 = item % tasks.delta_blocks * plan.deltas;
      const int64_t pair = item / tasks.delta_blocks;
      partials[item] = KernelsFor<T>(kernels).conv.gram(
          {&s, &plan, x + i * x_size + group * s.cin,
           g + i * g_size + group * s.cout, delta0,
           std::min(delta0 + plan.deltas, plan.lines - plan.window + 1),
           pair / tasks.tiles % tasks.tiles * plan.tile,
           pair % tasks.tiles * plan.tile},
          scratch);
    }
  };
  parallel.For(static_cast<int64_t>(partials.size()), flops, body);
  return partials;
}

}  // namespace

GramLayout MakeGramLayout(const ConvShape& s, int64_t lanes) {
  GramLayout layout = {};
  GramPlan& plan = layout.plan;
  if (IsEmpty(s) || s.kernel[0] > kLineOffsets || s.kernel[1] > kLineOffsets ||
      s.kernel[2] > kLineOffsets || Pixels(s.kernel) > kLineOffsets) {
    return layout;
  }
  plan.depth = s.out[0] + Largest(s, 0);
  plan.height = s.out[1] + Largest(s, 1);
  plan.lines = s.images * plan.depth * plan.height;
  plan.window = Largest(s, 0) * plan.height + Largest(s, 1) + 1;
  plan.span = Largest(s, 2);
  AddOffsets(s, &layout);
  plan.phases = layout.phases.data();
  plan.phase_count = static_cast<int64_t>(layout.phases.size());
  plan.offsets = layout.offsets.data();
  plan.offset_count = static_cast<int64_t>(layout.offsets.size());
  if (plan.window <= kLineBlocks) ChooseTile(s, lanes, &plan);
  return layout;
}

template <class T>
void ConvGramNorm(const CpuKernels& kernels, Parallel& parallel,
                  const ConvShape& shape, const T* x, const T* g,
                  Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper) {
  using Acc = Accumulator<T>;
  const int64_t lanes = LanesOf<Acc>(kernels);
  const GramLayout layout = MakeGramLayout(shape, lanes);
  const GramPlan& plan = layout.plan;
  if (plan.tile == 0) {
    ConvNorm(kernels, parallel, shape, x, g, sq_norm, sq_norm_upper);
    return;
  }
  const std::vector<GramPartial> partials =
      RunTasks(kernels, parallel, shape, plan, x, g);
  const ScopedFloatEnvironment environment;
  ConvShape one = shape;
  one.batch = 1;
  CertifyOrRecompute(
      partials, shape.batch, shape.groups,
      RelativeError<Acc>(shape, plan, lanes), sq_norm, sq_norm_upper,
      [&](int64_t i, Acc* direct, Acc* direct_upper) {
        ConvNorm(kernels, parallel, one, x + i * ImageSize(shape),
                 g + i * GradientSize(shape), direct, direct_upper);
      });
}

#define BK_INSTANTIATE(T)                                                    \
  template void ConvGramNorm(const CpuKernels&, Parallel&, const ConvShape&, \
                             const T*, const T*, Accumulator<T>*,            \
                             Accumulator<T>*)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk
